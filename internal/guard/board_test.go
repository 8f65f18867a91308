package guard

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
)

// newBareBoard returns a board that no other process uses.
func newBareBoard(t *testing.T) *board {
	t.Helper()
	b, file, err := newBoard()
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	return b
}

// What one process writes, another one reads, but only as the leadership that has the place. Nobody inherits the file.
func TestBoard(t *testing.T) {
	b, file, err := newBoard()
	if err != nil {
		t.Fatal(err)
	}
	b.reset(70)
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 300)
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	other, err := inheritBoard(fd, unix.PROT_READ)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
		t.Error("the file is still open: the work would inherit it")
	}
	if id := other.lastID(); id != 70 {
		t.Errorf("the last leadership is %d", id)
	}
	for _, index := range []int{0, 1, boardPlaces - 1} {
		p, read := b.place(index, 71), other.place(index, 71)
		p.setDeadline(70*time.Microsecond + 1)
		p.enforce(60 * time.Microsecond)
		if read.deadline() != 70*time.Microsecond || read.enforced() != 60*time.Microsecond {
			t.Errorf("place %d: %s, %s", index, read.deadline(), read.enforced())
		}
		for _, leadership := range []int{70, 72, 0} {
			if of := other.place(index, leadership); of.deadline() != 0 || of.enforced() != 0 {
				t.Errorf("place %d: leadership %d has a lease of another one", index, leadership)
			}
		}
	}
	p := b.place(5, 1<<40+71)
	for at, want := range map[time.Duration]time.Duration{0: 0, -1: 0, 1: 0, 1 << 55: 1 << 55, 1<<63 - 1: deadlineMask * time.Microsecond} {
		if p.setDeadline(at); p.deadline() != want.Truncate(time.Microsecond) {
			t.Errorf("%d became %d", at, p.deadline())
		}
	}
	b.reset(9)
	if p.deadline() != 0 || b.place(1, 71).deadline() != 0 || other.lastID() != 9 {
		t.Error("not reset")
	}
}

// Reading the board cannot fail: its memory cannot be taken away, and another file is no board.
func TestBoardCannotShrink(t *testing.T) {
	_, file, err := newBoard()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(0); err == nil {
		t.Error("it can be truncated")
	}
	fd, err := unix.MemfdCreate("other", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	read, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	for _, fd := range []int{fd, 0, 1 << 20, int(read.Fd())} {
		if b, err := inheritBoard(fd, unix.PROT_READ|unix.PROT_WRITE); b != nil || err == nil {
			t.Errorf("file %d: %v", fd, err)
		}
	}
}

// The guard reads leases and heartbeats from the board when they end, and shows which lease it enforces.
func TestGuardReadsTheBoard(t *testing.T) {
	b := newBareGuard(t)
	b.board.place(6, 1).setDeadline(time.Hour) // by an earlier leadership
	b.board.place(6, 1).enforce(time.Hour)
	for _, place := range []int{-1, 0, 1, boardPlaces} { // 1 is in use
		if err := b.open(b.daemon, message{Leadership: 2, Name: "h", Place: place}); err == nil {
			t.Errorf("place %d can be used", place)
		}
	}
	if err := b.open(b.daemon, message{Leadership: 2, Name: "h", Place: 6}); err != nil {
		t.Fatal(err)
	}
	l := b.leaderships[1]
	w := b.give(l, &work{})
	daemon := b.board.place(6, 2)
	if l.lease() != 0 || daemon.enforced() != 0 {
		t.Errorf("a new leadership has the lease %s", l.lease())
	}
	now := boottime.Now().Truncate(time.Microsecond)
	daemon.setDeadline(now + time.Second)
	if b.readLeases(); daemon.enforced() != now+time.Second {
		t.Errorf("confirmed %s", daemon.enforced())
	}
	for what, at := range map[string]time.Duration{"later": now + time.Hour, "earlier": now + time.Minute} {
		daemon.setDeadline(at)
		if b.enforce(w, now+2*time.Second); w.killing || l.lease() != at || daemon.enforced() != at {
			t.Errorf("%s: killing %t, lease %s", what, w.killing, l.lease()-now)
		}
	}
	heartbeat := b.board.heartbeat()
	for _, at := range []time.Duration{now + time.Second, now + time.Minute, 0} {
		if heartbeat.setDeadline(at); b.daemonDeadline() != at {
			t.Errorf("heartbeat %s", b.daemonDeadline()-now)
		}
	}

	// The board does not revive a lease that was abandoned, nor that of a dead daemon.
	daemon.setDeadline(0)
	if b.enforce(w, now); !w.killing || l.lease() != 0 {
		t.Errorf("a lease that was withdrawn: killing %t, lease %s", w.killing, l.lease())
	}
	for name, end := range map[string]func(){
		"abandoned":     func() { b.abandon(message{Leadership: 2}) },
		"a dead daemon": func() { b.daemon.abandoned = true },
	} {
		b.daemon.abandoned, l.abandoned, w.killing = false, false, false
		l.setLease(now + time.Second)
		end()
		daemon.setDeadline(now + time.Hour)
		if b.enforce(w, now); !w.killing || b.hasLease(l) || daemon.enforced() != now+time.Second {
			t.Errorf("%s: killing %t, lease %s", name, w.killing, l.lease())
		}
	}
}

// The board counts for work that is to be started, too: it may have been written since the last message.
func TestStartReadsTheBoard(t *testing.T) {
	b := newBareGuard(t)
	b.l.setLease(boottime.Now() - time.Second)
	b.l.place.setDeadline(boottime.Now() + time.Hour)
	w := b.give(b.l, &work{seq: 7})
	w.launched = false
	b.start(w)
	b.sent(b.daemonEnd)
	if !w.launched || b.l.lease() != b.l.place.deadline() {
		t.Errorf("launched: %t", w.launched)
	}
	late := b.give(b.addLeadership(2, "h"), &work{seq: 8})
	late.launched, late.leadership.abandoned = false, true
	if b.start(late); late.launched {
		t.Error("work of an abandoned leadership was started")
	}
}

// The keeper reads the board, and needs no guard for that. The lease of another leadership that has the same place
// never counts.
func TestKeeperReadsTheBoard(t *testing.T) {
	b := newBareBoard(t)
	now := boottime.Now()
	for name, c := range map[string]struct {
		lease      time.Duration
		leadership int
		want       bool
	}{
		"within the lease":          {lease: now + time.Hour, leadership: 7},
		"the guard may still act":   {lease: now + time.Hour - keeperDelay, leadership: 7},
		"over":                      {lease: now - keeperDelay, leadership: 7, want: true},
		"withdrawn":                 {leadership: 7, want: true},
		"of another leadership":     {lease: now + time.Hour, leadership: 8, want: true},
		"of a much later one, here": {lease: now + time.Hour, leadership: 6, want: true},
	} {
		b.place(3, c.leadership).setDeadline(c.lease)
		w := &task{seq: 7, place: b.place(3, 7)}
		if got := w.leaseExpired(); got != c.want {
			t.Errorf("%s: expired: %t", name, got)
		}
	}
	hook := &task{until: now + time.Hour}
	if hook.leaseExpired() {
		t.Error("a hook ends before its deadline")
	}
	if hook.until = now - keeperDelay; !hook.leaseExpired() {
		t.Error("a hook does not end")
	}
}

// A later lease is no message, unless the guard has to act.
func TestClientWritesTheBoard(t *testing.T) {
	cl := newClient(t)
	at := boottime.Now().Truncate(time.Microsecond) + time.Hour
	expect := func(when string, next time.Duration, want ...kind) {
		t.Helper()
		at = next
		cl.l.SetLease(at)
		cl.Notify("end")
		for _, k := range append(want, kindNotify) {
			cl.expect(k)
		}
		if cl.guardPlace.deadline() != at {
			t.Errorf("%s: deadline %s", when, cl.guardPlace.deadline())
		}
	}
	const later = time.Millisecond
	expect("the first lease", at, kindLease)
	expect("without work", at+later)
	if _, _, err := cl.start(Spec{Argv: []string{"sleep"}}, message{Pid: noPid}); err != nil {
		t.Fatal(err)
	}
	expect("extended", at+later)
	expect("shortened", at-later, kindLease)
	expect("extended again", at+later)
	expect("withdrawn", 0, kindLease, kindKill)
	expect("after that", boottime.Now().Truncate(time.Microsecond)+time.Hour, kindLease)
	expect("extended once more", at+later)
	cl.CheckDevice(DeviceSpec{})
	cl.expect(kindDevice)
	expect("with a watchdog device", at+later, kindLease)
}

// Places are used again, but not while their leadership may still run something.
func TestPlacesAreUsedAgain(t *testing.T) {
	cl := newClient(t)
	other := cl.NewLeadership("h")
	if m := cl.expect(kindOpen); m.Place == cl.l.place.index || m.Leadership != cl.l.id+1 {
		t.Errorf("%+v", m)
	}
	cl.l.SetLease(time.Hour)
	cl.expect(kindLease)
	cl.l.Close()
	cl.expect(kindClose)
	third := cl.NewLeadership("i")
	if m := cl.expect(kindOpen); m.Place == cl.l.place.index || m.Place == other.place.index {
		t.Errorf("%+v", m)
	}
	cl.send(message{Kind: kindGone, Leadership: cl.l.id})
	<-cl.l.Dead()
	fourth := cl.NewLeadership("j")
	if m := cl.expect(kindOpen); m.Place != cl.l.place.index || third.place.index == m.Place || fourth.place.deadline() != 0 {
		t.Errorf("%+v", m)
	}
}

// The guard must have killed the work some time after the end of the lease, and must read a later lease some time after
// the end of the one that it enforces, unless it cannot kill the work.
func TestKilledBy(t *testing.T) {
	const soon, late = time.Minute, time.Hour
	b := newBareBoard(t)
	for name, c := range map[string]struct {
		requested, enforced, want time.Duration
		work                      *Work
		unkillable                string
	}{
		"read":                  {requested: soon, enforced: soon, want: soon + guardOverdue},
		"a shorter one is not":  {requested: soon, enforced: late, want: soon + guardOverdue},
		"a later one is not":    {requested: late, enforced: soon, want: soon + guardLate},
		"one that is soon over": {requested: soon + time.Millisecond, enforced: soon, want: soon + time.Millisecond + guardOverdue},
		"withdrawn":             {enforced: soon, want: soon + guardOverdue},
		"nothing is enforced":   {requested: soon},
		"no work":               {requested: soon, enforced: soon, work: new(Work)},
		"being killed":          {requested: soon, enforced: soon, work: &Work{startSent: true, killing: true}},
		"unkillable":            {requested: soon, enforced: soon, unkillable: "hurt"},
	} {
		l := &Leadership{place: b.place(1, 1), running: c.work, unkillable: c.unkillable}
		if c.work == nil {
			l.running = &Work{startSent: true}
		}
		l.place.setDeadline(c.requested)
		l.place.enforce(c.enforced)
		if at := l.killedBy(); at != c.want {
			t.Errorf("%s: %s, not %s", name, at, c.want)
		}
	}
	if at := (&Leadership{place: b.place(1, 1)}).killedBy(); at != 0 {
		t.Errorf("without work: %s", at)
	}
}

// A lease that follows while the disk hangs does not start what was asked for under an earlier one: it may have been killed by then.
func TestLaunchAfterItsLease(t *testing.T) {
	p := newBareBoard(t).place(3, 7)
	p.setDeadline(boottime.Now() - time.Second)
	w := &task{seq: 1, place: p, spec: &Spec{Path: "/bin/true", Argv: []string{"true"}}}
	w.launchBy = w.deadline()
	p.setDeadline(boottime.Now() + time.Hour)
	if err := w.launch(); !errors.Is(err, errNoLease) || w.pid != 0 {
		t.Errorf("%v, process %d", err, w.pid)
	}
}

// A heartbeat is a message only if the guard has to act: at first, for an earlier deadline or none, and to feed the
// service manager's watchdog.
func TestHeartbeatOnTheBoard(t *testing.T) {
	cl := newClient(t)
	heartbeat := cl.board.heartbeat()
	expect := func(when string, until time.Duration, want ...kind) {
		t.Helper()
		until *= time.Second
		cl.Heartbeat(until)
		cl.Notify("end")
		for _, k := range append(want, kindNotify) {
			cl.expect(k)
		}
		if heartbeat.deadline() != until {
			t.Errorf("%s: deadline %s", when, heartbeat.deadline())
		}
	}
	expect("the first one", 10, kindHeartbeat)
	expect("a later one", 11)
	expect("an earlier one", 9, kindHeartbeat)
	expect("none", 0, kindHeartbeat)
	expect("after that", 12, kindHeartbeat)
	cl.watchdogInterval = time.Nanosecond
	expect("with a watchdog", 13, kindHeartbeat)
	cl.watchdogInterval = time.Hour
	expect("with a watchdog that was fed", 14)
}
