package guard

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
)

// newTestBoard returns a board, and opens it again as another process does.
func newTestBoard(t *testing.T, protection int) (b, other *board) {
	t.Helper()
	b, file, err := newBoard()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 300)
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	if other, err = inheritBoard(fd, protection); other == nil || err != nil {
		t.Fatalf("the board cannot be opened: %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
		t.Error("the file is still open: the work would inherit it")
	}
	return b, other
}

func TestBoard(t *testing.T) {
	b, other := newTestBoard(t, unix.PROT_READ|unix.PROT_WRITE)
	other.setDeadline(3, 70)
	if at := b.deadline(3); at != 70 {
		t.Errorf("deadline %d", at)
	}
	b.confirm(3, 60)
	if at := other.confirmed(3); at != 60 {
		t.Errorf("confirmed %d", at)
	}
	for at, want := range map[time.Duration]time.Duration{0: 0, 1: 70, 70: 70, 71: 71} {
		if got := b.extended(3, at); got != want {
			t.Errorf("%d is extended to %d, want %d", at, got, want)
		}
	}
	b.reset(3)
	if other.deadline(3) != 0 || other.confirmed(3) != 0 {
		t.Error("a slot is not reset")
	}
	for _, slot := range []int{1, boardSlots - 1} {
		b.setDeadline(slot, 5)
		if other.deadline(slot) != 5 || other.deadline(slot-1) != 0 || other.confirmed(slot) != 0 {
			t.Errorf("slot %d", slot)
		}
	}
	for _, slot := range []int{-1, 0, boardSlots, 1 << 40} {
		b.setDeadline(slot, 5)
		b.confirm(slot, 5)
		if b.valid(slot) || b.deadline(slot) != 0 || b.confirmed(slot) != 0 || b.extended(slot, 1) != 1 {
			t.Errorf("slot %d can be used", slot)
		}
	}
	var none *board
	none.setDeadline(1, 5)
	none.reset(1)
	if none.valid(1) || none.deadline(1) != 0 || none.extended(1, 4) != 4 {
		t.Error("a board that is missing has slots")
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
	for _, fd := range []int{fd, 0, 1 << 20} {
		if b, err := inheritBoard(fd, unix.PROT_READ); b != nil || err != nil {
			t.Errorf("file %d: %v", fd, err)
		}
	}
	read, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	if b, err := inheritBoard(int(read.Fd()), unix.PROT_READ|unix.PROT_WRITE); b != nil || err == nil {
		t.Errorf("a board that cannot be written to: %v", err)
	}
}

// The guard reads later leases and heartbeats from the board, and nothing that a message has not allowed.
func TestGuardReadsTheBoard(t *testing.T) {
	b := newBareGuard(t)
	shared, daemon := newTestBoard(t, unix.PROT_READ|unix.PROT_WRITE)
	b.board, b.daemon.slot = shared, 4
	daemon.setDeadline(6, 1<<62) // by an earlier daemon
	shared.confirm(6, 1<<62)
	if err := b.open(b.daemon, message{Leadership: 2, Name: "h"}); err != nil {
		t.Fatal(err)
	}
	l := b.leaderships[1]
	w := b.give(l, &work{})
	if l.slot != 6 || b.nextSlot != 7 || daemon.deadline(6) != 0 || daemon.confirmed(6) != 0 {
		t.Fatalf("slot %d, next slot %d", l.slot, b.nextSlot)
	}
	now := boottime.Now()
	b.extend([]lease{{2, now + time.Second}})
	if at := daemon.confirmed(6); at != now+time.Second {
		t.Errorf("confirmed %s", at)
	}
	daemon.setDeadline(6, now+time.Hour)
	daemon.setDeadline(5, now+2*time.Hour) // of another one
	l.leaseEnd = now
	if b.enforce(w, now+2*time.Second); w.killing || l.lease != now+time.Hour || l.leaseEnd != 0 || daemon.confirmed(6) != l.lease {
		t.Errorf("a later lease: killing %t, lease %s", w.killing, l.lease-now)
	}
	b.heartbeatDeadline = now + time.Second
	daemon.setDeadline(4, now+time.Minute)
	if b.extendHeartbeat(); b.heartbeatDeadline != now+time.Minute {
		t.Errorf("heartbeat %s", b.heartbeatDeadline-now)
	}
	daemon.setDeadline(4, now)
	if b.extendHeartbeat(); b.heartbeatDeadline != now+time.Minute {
		t.Errorf("heartbeat %s", b.heartbeatDeadline-now)
	}
	b.heartbeatDeadline = 0
	if b.extendHeartbeat(); b.heartbeatDeadline != 0 {
		t.Error("a daemon that has promised no heartbeat gets a deadline")
	}

	// A shorter lease is a message. The board does not revive one that was withdrawn or abandoned, nor that of a dead daemon.
	b.extend([]lease{{2, now + 2*time.Hour}})
	if daemon.setDeadline(6, now+time.Hour); b.extended(now) != now+2*time.Hour {
		t.Errorf("a shorter lease on the board alone: %s", l.lease-now)
	}
	daemon.setDeadline(6, now+3*time.Hour)
	b.extend([]lease{{2, 0}})
	if b.enforce(w, now); !w.killing || l.lease != 0 {
		t.Errorf("a lease that was withdrawn: killing %t, lease %s", w.killing, l.lease)
	}
	for name, end := range map[string]func(){
		"abandoned":     func() { b.abandon(message{Leadership: 2}) },
		"a dead daemon": func() { b.daemon.abandoned = true },
	} {
		b.daemon.abandoned, l.abandoned, w.killing = false, false, false
		l.lease, l.leaseEnd = now+time.Second, 0
		end()
		before := l.lease
		if b.enforce(w, now); !w.killing || l.lease != before {
			t.Errorf("%s: killing %t, lease %s", name, w.killing, l.lease)
		}
	}
}

// extended enforces the lease of the second leadership, and returns it.
func (b *bareGuard) extended(now time.Duration) time.Duration {
	b.enforce(b.leaderships[1].work, now)
	return b.leaderships[1].lease
}

// A guard says once that the board has no more slots.
func TestFullBoard(t *testing.T) {
	b := newBareGuard(t)
	b.board, _ = newTestBoard(t, unix.PROT_READ)
	b.daemon.slot = boardSlots - 4
	for id, logged := range []int{2: 0, 3: 0, 4: 1, 5: 1} {
		if id < 2 {
			continue // the bare guard has the first leadership
		}
		if err := b.open(b.daemon, message{Leadership: id, Name: "h"}); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(b.logText.String(), "restart zkelectd when convenient"); n != logged {
			t.Errorf("leadership %d: logged %d times, want %d", id, n, logged)
		}
		if slot := b.leaderships[id-1].slot; b.board.valid(slot) != (id < 4) {
			t.Errorf("leadership %d has slot %d", id, slot)
		}
	}
	b.board, b.boardFull = nil, false
	b.useSlot(boardSlots)
	if n := strings.Count(b.logText.String(), "restart zkelectd when convenient"); n != 1 {
		t.Errorf("without a board: %s", b.logText)
	}
}

// The board counts for work that is to be started, too: it may have been written since the last message.
func TestStartReadsTheBoard(t *testing.T) {
	b := newBareGuard(t)
	shared, daemon := newTestBoard(t, unix.PROT_READ|unix.PROT_WRITE)
	b.board, b.l.slot, b.l.lease = shared, 9, boottime.Now()-time.Second
	daemon.setDeadline(9, boottime.Now()+time.Hour)
	w := b.give(b.l, &work{seq: 7})
	w.launched = false
	b.start(w)
	b.sent(b.daemonEnd)
	if !w.launched || b.l.lease != daemon.deadline(9) {
		t.Errorf("launched: %t", w.launched)
	}
}

// The keeper reads the board when the lease that it knows has ended, and needs no guard for that.
func TestKeeperReadsTheBoard(t *testing.T) {
	k, _ := newBareKeeper(t)
	shared, reading := newTestBoard(t, unix.PROT_READ)
	k.board = reading
	now := boottime.Now()
	for name, c := range map[string]struct {
		lease, board, want time.Duration
		slot               int
		killing            bool
	}{
		"extended":            {lease: now - time.Second, board: now + time.Hour, slot: 3, want: now + time.Hour},
		"not extended":        {lease: now - time.Second, board: now - time.Minute, slot: 3, want: now - time.Second},
		"before the end":      {lease: now + time.Minute, board: now + time.Hour, slot: 3, want: now + time.Minute},
		"withdrawn":           {board: now + time.Hour, slot: 3},
		"without a slot":      {lease: now - time.Second, board: now + time.Hour, want: now - time.Second},
		"being killed":        {lease: now - time.Second, board: now + time.Hour, slot: 3, killing: true, want: now - time.Second},
		"of another work":     {lease: now - time.Second, board: now + time.Hour, slot: 4, want: now - time.Second},
		"a last chance, late": {lease: now - time.Second, board: now - time.Millisecond, slot: 3, want: now - time.Millisecond},
	} {
		shared.setDeadline(3, c.board)
		w := &task{seq: 7, group: &cgroup{}, slot: c.slot, lease: c.lease, killing: c.killing, lastChance: true}
		if k.readLease(w); w.lease != c.want || w.lastChance != (c.want == c.lease) {
			t.Errorf("%s: lease %s, last chance %t", name, w.lease-now, w.lastChance)
		}
	}
}

// sharedClient is a client with a board that runs work.
func sharedClient(t *testing.T, hello bool) (cl *clientFixture, guard *board) {
	t.Helper()
	cl = newClient(t)
	guard, cl.board = newTestBoard(t, unix.PROT_READ|unix.PROT_WRITE)
	if hello {
		cl.send(message{Kind: kindHello, Containment: &ContainmentRecord{Mode: KeeperContainment}, Slot: 5})
		<-cl.hello
	}
	return cl, guard
}

// A lease is extended on the board only while guard and keeper look there.
func TestClientWritesTheBoard(t *testing.T) {
	cl, guard := sharedClient(t, true)
	at := boottime.Now() + time.Hour
	expect := func(when string, next time.Duration, message bool) {
		t.Helper()
		at = next
		cl.l.SetLease(at)
		cl.Notify("end") // the next message, unless there is one for the lease
		m := cl.receiveAny()
		if got := m.Kind == kindLease; got != message || guard.deadline(5+cl.l.id) != at {
			t.Errorf("%s: a message: %t, deadline %s", when, got, guard.deadline(5+cl.l.id))
		}
		if m.Kind == kindLease {
			cl.send(messageOfLease(cl.l.id, at))
			eventually(t, "the confirmation", func() bool {
				cl.mu.Lock()
				defer cl.mu.Unlock()
				return cl.l.confirmed == at
			})
			guard.confirm(5+cl.l.id, at)
			cl.expect(kindNotify)
		}
	}
	expect("the first lease", at, true)
	expect("without work", at+1, true)
	if _, _, err := cl.start(WorkOptions{Command: []string{"sleep"}}, message{Pid: noPid}); err != nil {
		t.Fatal(err)
	}
	expect("extended", at+1, false)
	expect("shortened", at-1, true)
	expect("extended again", at+1, false)
	expect("withdrawn", 0, true)
	expect("after that", boottime.Now()+time.Hour, true)
	expect("extended once more", at+1, false)
	cl.CheckDevice(DeviceSpec{})
	cl.expect(kindDevice)
	expect("with a watchdog device", at+1, true)

	cl, _ = sharedClient(t, false)
	cl.l.SetLease(at)
	cl.expect(kindLease) // the guard has not said yet which slots are for this daemon
}

func messageOfLease(id int, at time.Duration) message {
	return message{Kind: kindLeaseConfirmed, Leases: []lease{{id, at}}}
}

// A heartbeat is a message only if the guard has to act: at first, for an earlier deadline or none, and to feed the service manager's
// watchdog.
func TestHeartbeatOnTheBoard(t *testing.T) {
	cl, guard := sharedClient(t, true)
	expect := func(when string, until time.Duration, message bool) {
		t.Helper()
		cl.Heartbeat(until)
		cl.Notify("end")
		m := cl.receiveAny()
		if got := m.Kind == kindHeartbeat; got != message || guard.deadline(5) != until {
			t.Errorf("%s: a message: %t, deadline %s", when, got, guard.deadline(5))
		}
		if m.Kind == kindHeartbeat {
			cl.expect(kindNotify)
		}
	}
	expect("the first one", 10, true)
	expect("a later one", 11, false)
	expect("an earlier one", 9, true)
	expect("none", 0, true)
	expect("after that", 12, true)
	cl.watchdogInterval = time.Nanosecond
	expect("with a watchdog", 13, true)
	cl.watchdogInterval = time.Hour
	expect("with a watchdog that was fed", 14, false)
}

// state returns whether the lease is on the board, and whether the guard is late.
func (c *clientFixture) state() (onBoard, late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.l.onBoard, c.l.overdue != 0
}

// A guard that does not read the board in time is hung, and so is one that does not kill the work at the end of the last lease.
func TestGuardIsLostWithTheBoard(t *testing.T) {
	for name, c := range map[string]struct {
		first, requested, confirmed time.Duration // from now
		late, lost                  bool
	}{
		"not late":          {first: -guardLate / 2, requested: time.Hour},
		"late":              {first: -2 * guardLate, requested: time.Hour, late: true, lost: true},
		"late, then not":    {first: -2 * guardLate, requested: time.Hour, confirmed: time.Hour, late: true},
		"the lease is over": {first: -time.Second / 2, requested: 50 * time.Millisecond, confirmed: 50 * time.Millisecond, lost: true},
	} {
		cl, guard := sharedClient(t, true)
		w, _, err := cl.start(WorkOptions{Command: []string{"sleep"}}, message{Pid: noPid})
		if err != nil {
			t.Fatal(err)
		}
		now := boottime.Now()
		slot := 5 + cl.l.id
		guard.confirm(slot, now+c.first)
		cl.mu.Lock()
		cl.l.requested, cl.l.confirmed = now+c.first, now+c.first
		cl.mu.Unlock()
		cl.l.SetLease(now + c.requested)
		if onBoard, _ := cl.state(); !onBoard {
			t.Errorf("%s: not on the board", name)
		}
		if c.late {
			eventually(t, "the delay", func() bool { _, late := cl.state(); return late || c.lost && cl.Err() != nil })
		}
		if c.confirmed != 0 {
			guard.confirm(slot, now+c.confirmed)
		}
		if !c.lost {
			eventually(t, "some time", func() bool { return boottime.Now() > now+2*guardOverdue })
			if _, late := cl.state(); cl.Err() != nil || late {
				t.Errorf("%s: %v, overdue: %t", name, cl.Err(), late)
			}
			continue
		}
		<-cl.Context().Done()
		if early := now + guardOverdue - boottime.Now(); early > 0 || isClosed(w.Dead()) {
			t.Errorf("%s: lost %s too early", name, early)
		}
		if !c.late && boottime.Now() > now+guardLate {
			t.Errorf("%s: lost only %s later", name, boottime.Now()-now)
		}
	}
}

// The guard has read a later lease from the board, and the client has not looked since. A lease that is shorter than that one, and a message
// therefore, gives the guard as long as ever.
func TestAShorterLeaseAfterTheBoard(t *testing.T) {
	cl, guard := sharedClient(t, true)
	if _, _, err := cl.start(WorkOptions{Command: []string{"sleep"}}, message{Pid: noPid}); err != nil {
		t.Fatal(err)
	}
	now := boottime.Now()
	before := now - guardLate/2
	guard.confirm(5+cl.l.id, before)
	cl.mu.Lock()
	cl.l.requested, cl.l.confirmed = before, before
	cl.mu.Unlock()
	cl.l.SetLease(now + time.Hour)
	guard.confirm(5+cl.l.id, now+time.Hour)
	cl.l.SetLease(now + time.Minute)
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if at := cl.l.killedBy(); at != now+time.Minute+guardOverdue {
		t.Errorf("the guard must have killed the work within %s", at-now)
	}
}
