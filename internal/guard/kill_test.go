package guard

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
)

// bareGuard is a guard whose methods a test calls directly, in its own process. Its daemon and its keeper are processes that
// only sleep, and the test reads the messages to them. As all children belong to the test process, these tests must not run in
// parallel.
type bareGuard struct {
	*guard
	t                    *testing.T
	l                    *leadership // of the daemon
	keeper               *keeperProcess
	daemonEnd, keeperEnd *os.File
	logText              *strings.Builder // the log
}

func newBareGuard(t *testing.T) *bareGuard {
	t.Helper()
	runtime.LockOSThread() // see openChildList
	t.Cleanup(runtime.UnlockOSThread)
	b := &bareGuard{t: t, logText: new(strings.Builder)}
	pair := func() (near *socket, far *os.File) {
		near, far, err := socketpair()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { near.Close(); far.Close() })
		return near, far
	}
	toDaemon, daemonEnd := pair()
	toKeeper, keeperEnd := pair()
	_, d := sleeper(t)
	_, k := sleeper(t)
	b.keeper = &keeperProcess{Process: k, pid: k.Pid, socket: toKeeper, out: newOutbox(toKeeper, keeperOutbox), ready: true}
	board, file, err := newBoard()
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	b.guard = &guard{
		board:      board,
		log:        slog.New(slog.NewTextHandler(b.logText, nil)),
		opt:        Options{Containment: CgroupContainment},
		daemon:     &daemon{pid: d.Pid, socket: toDaemon, out: newOutbox(toDaemon, daemonOutbox)},
		keeper:     b.keeper,
		keepers:    []*keeperProcess{b.keeper},
		fromDaemon: make(chan incoming),
		spareAt:    1 << 62, // no other keeper is started
	}
	b.l = b.addLeadership(1, "g")
	b.daemonEnd, b.keeperEnd = daemonEnd, keeperEnd
	if b.children, err = openChildList(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.children.close)
	return b
}

// addLeadership adds a leadership with a lease.
func (b *bareGuard) addLeadership(id int, name string) *leadership {
	l := &leadership{id: id, name: name, daemon: b.daemon, place: b.board.place(id, id)}
	l.setLease(boottime.Now() + time.Hour)
	b.leaderships = append(b.leaderships, l)
	return l
}

// setLease sets a lease, which the guard has read.
func (l *leadership) setLease(at time.Duration) {
	l.place.setDeadline(at)
	l.place.enforce(at)
}

// give gives a leadership work that the keeper or a unit runs.
func (b *bareGuard) give(l *leadership, w *work) *work {
	w.leadership, w.task, w.prepared, w.launched = l, w.seq, true, true
	if w.unit == nil && w.keeper == nil {
		w.keeper = b.keeper
	}
	if w.spec == nil {
		w.spec = new(Spec)
	}
	if w.container = w.unit; w.unit == nil {
		w.container = &keptWork{b.guard, w}
	}
	l.work = w
	return w
}

// sent returns the messages that were sent to f, as "kind seq text".
func (b *bareGuard) sent(f *os.File) []string {
	b.t.Helper()
	var all []string
	for readable(b.t, f) { // messages are available immediately
		m, err := readFrame(f)
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, strings.TrimSpace(fmt.Sprint(m.Kind, " ", m.Seq, " ", m.Status, m.Error, m.Output)))
	}
	return all
}

// expect checks the messages that were sent to daemon and keeper since the last call.
func (b *bareGuard) expect(what string, daemon, keeper []string) {
	b.t.Helper()
	if got := b.sent(b.daemonEnd); !slices.Equal(got, daemon) {
		b.t.Errorf("%s: sent %q to the daemon, want %q", what, got, daemon)
	}
	if got := b.sent(b.keeperEnd); !slices.Equal(got, keeper) {
		b.t.Errorf("%s: sent %q to the keeper, want %q", what, got, keeper)
	}
}

// Work that may not run any longer is killed at once, and the reason is logged once.
func TestEnforce(t *testing.T) {
	const ahead, behind = time.Hour, -time.Millisecond // relative to now
	for name, c := range map[string]struct {
		work                work // its times are relative to now
		noDaemon, abandoned bool
		lease               time.Duration
		log                 string
		survives            bool
	}{
		"within the lease":                  {lease: ahead, survives: true},
		"no lease":                          {log: "the lease has ended"},
		"after the lease":                   {lease: behind, log: "the lease has ended"},
		"no daemon":                         {lease: ahead, noDaemon: true},
		"abandoned daemon":                  {lease: ahead, abandoned: true},
		"asked to stop":                     {lease: ahead, work: work{killAt: ahead}, survives: true},
		"after the grace period":            {lease: ahead, work: work{killAt: behind}, log: "did not stop in time"},
		"stopped within the grace period":   {lease: ahead, work: work{killAt: behind, status: StatusSuccess}, survives: true},
		"a pending hook":                    {noDaemon: true, work: work{hookDeadline: ahead}, survives: true},
		"a pending hook after its deadline": {noDaemon: true, work: work{hookDeadline: behind}, log: "it has timed out"},
		"the same with a lease":             {lease: ahead, work: work{hookDeadline: behind}, log: "it has timed out"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBareGuard(t)
			now := boottime.Now()
			w := c.work
			w.seq, w.spec = 7, new(Spec)
			for _, at := range []*time.Duration{&w.killAt, &w.hookDeadline, &c.lease} {
				if *at != 0 {
					*at += now
				}
			}
			b.l.setLease(c.lease)
			b.daemon.abandoned = c.abandoned
			b.give(b.l, &w)
			other := b.give(b.addLeadership(2, "h"), &work{seq: 8})
			if c.noDaemon {
				b.daemon = nil
			}
			for _, later := range []time.Duration{0, drainTime, 2 * drainTime} { // the last has no further effect
				b.enforce(&w, now+later)
				if !c.abandoned && !c.noDaemon {
					b.enforce(other, now+later)
				}
			}
			var killed, killing []string
			if !c.survives {
				killed = []string{"kill 7"}
				if !c.noDaemon && !c.abandoned && w.hookDeadline == 0 {
					killing = []string{"killing 7"}
				}
			}
			b.expect("", killing, killed)
			if other.killing {
				t.Error("the work of another leadership was killed")
			}
			if w.killing == c.survives || strings.Count(b.logText.String(), "level=ERROR") != min(1, len(c.log)) || !strings.Contains(b.logText.String(), c.log) {
				t.Errorf("killing: %t; log: %q", w.killing, b.logText)
			}
		})
	}
}

// The guard asks the keeper to kill. If the keeper does not act, the guard continues it and kills its descendants; if it hangs,
// the guard kills it.
func TestKillAssistsKeeper(t *testing.T) {
	for name, c := range map[string]struct {
		waited              time.Duration
		confirmed           bool
		asked, below, woken bool // the keeper is asked, its descendant is killed, it is continued
		killed              bool // the keeper
	}{
		"first":                          {asked: true},
		"immediately":                    {waited: time.Nanosecond},
		"after a while":                  {waited: 2 * assistAfter, below: true, woken: true},
		"long after, kill confirmed":     {waited: 2 * keeperHungAfter, confirmed: true, below: true, woken: true},
		"long after, kill not confirmed": {waited: 2 * keeperHungAfter, killed: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBareGuard(t)
			dir := t.TempDir()
			cmd := exec.Command("sh", "-c", `setsid sh -c 'echo $$ >$D/below; exec sleep 1000' & kill -STOP $$; : >$D/woken; exec sleep 1000`)
			cmd.Env = []string{"D=" + dir, "PATH=" + os.Getenv("PATH")}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			fx := &fixture{t: t, dir: dir}
			below := fx.pidFromFile("below")
			t.Cleanup(func() {
				unix.Kill(below, unix.SIGKILL)
				cmd.Process.Kill()
				cmd.Wait()
			})
			eventually(t, "the stop", func() bool { return !isRunning(cmd.Process.Pid) })
			b.keeper.pid = cmd.Process.Pid
			w := b.give(b.l, &work{seq: 7, confirmed: c.confirmed})
			switch {
			case c.waited == time.Nanosecond:
				w.killStarted = boottime.Now() + time.Hour // even if this process is delayed
			case c.waited != 0:
				w.killStarted = boottime.Now() - c.waited
			}
			before := boottime.Now()
			b.kill(w)
			if c.asked {
				b.expect("", nil, []string{"kill 7"})
				if w.killStarted < before || w.killStarted > boottime.Now() {
					t.Errorf("recorded a start %s ago", boottime.Now()-w.killStarted)
				}
				return // a further call might be delayed
			}
			b.expect("", nil, nil)
			switch {
			case c.below:
				eventually(t, "the death of the descendant", func() bool { return !alive(below) })
			case !alive(below):
				t.Error("the keeper's descendant is dead")
			}
			switch {
			case c.killed:
				eventually(t, "the death of the keeper", func() bool { return !alive(cmd.Process.Pid) })
			case !alive(cmd.Process.Pid):
				t.Error("the keeper is dead")
			case c.woken:
				eventually(t, "its continuation", func() bool { _, err := os.Stat(dir + "/woken"); return err == nil })
			}
		})
	}
}

// Orphans of a dead keeper are killed, even if no file can be opened any more; the daemon is spared.
func TestOrphansAreKilled(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil { // as a guard
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) })
	for _, descriptors := range []bool{true, false} {
		b := newBareGuard(t)
		b.keeper.dead, b.guard.keeper, b.keepers = true, nil, b.keepers[:0]
		dir := t.TempDir()
		family := func(name string) (top, below int) {
			cmd := exec.Command("sh", "-c", `setsid sh -c 'echo $$ >$D/`+name+`; exec sleep 1000' & exec sleep 1000`)
			cmd.Env = []string{"D=" + dir, "PATH=" + os.Getenv("PATH")}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			below = (&fixture{t: t, dir: dir}).pidFromFile(name)
			t.Cleanup(func() {
				unix.Kill(below, unix.SIGKILL)
				cmd.Process.Kill()
				cmd.Wait()
			})
			return cmd.Process.Pid, below
		}
		own, ownBelow := family("own")
		orphan, orphanBelow := family("orphan")
		b.daemon.pid = own
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if !descriptors {
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil {
				t.Fatal(err)
			}
		}
		b.kill(b.give(b.l, &work{seq: 7}))
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the death of an orphan", func() bool { return !alive(orphan) })
		eventually(t, "the death of its child", func() bool { // an orphan, too, by then
			b.kill(b.give(b.l, &work{seq: 7}))
			return !alive(orphanBelow)
		})
		for _, pid := range []int{own, ownBelow} {
			if !alive(pid) {
				t.Errorf("process %d of the daemon is dead", pid)
			}
		}
	}
}

// Work is killed again and again until the keeper reports its death; if the keeper is dead, until the kernel does.
func TestSweep(t *testing.T) {
	unreadable := &cgroup{killFD: -1, eventsFD: -1}
	for name, c := range map[string]struct {
		work       work
		keeperDead bool
		noChildren bool
		mode       Containment
		dead       bool
		killed     bool
		daemon     []string
	}{
		"not killing":              {work: work{status: StatusSuccess, nextSweep: -1}, noChildren: true},
		"before the next sweep":    {work: work{killing: true, nextSweep: time.Hour}},
		"next sweep":               {work: work{killing: true, nextSweep: -1}, killed: true},
		"keeper alive":             {work: work{killing: true, nextSweep: -1}, noChildren: true, killed: true},
		"nothing left":             {work: work{killing: true}, keeperDead: true, noChildren: true, dead: true, daemon: []string{"exited 7 was killed with its keeper", "dead 7"}},
		"nothing left, exit known": {work: work{killing: true, status: StatusSuccess}, keeperDead: true, noChildren: true, dead: true, daemon: []string{"dead 7"}},
		"a child left":             {work: work{killing: true}, keeperDead: true, killed: true},
		"unreadable control group": {work: work{killing: true, group: unreadable}, keeperDead: true, noChildren: true, killed: true},
		"a pending hook, not reported to the daemon": {work: work{killing: true, status: StatusSuccess, hookDeadline: time.Hour}, keeperDead: true, noChildren: true, dead: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBareGuard(t)
			w := c.work
			w.seq, w.spec = 7, new(Spec)
			if w.nextSweep > 0 {
				w.nextSweep += boottime.Now()
			}
			next := w.nextSweep
			b.give(b.l, &w)
			b.noChildren, b.opt.Containment = c.noChildren, c.mode
			sent := b.keeperEnd
			if b.keeper.dead = c.keeperDead; c.keeperDead { // its process, which is a child, stands for an orphan
				b.guard.keeper, b.keepers = nil, nil
			}
			before := boottime.Now()
			b.sweep(&w)
			if got := b.sent(b.daemonEnd); !slices.Equal(got, c.daemon) {
				t.Errorf("sent %q to the daemon", got)
			}
			if asked := len(b.sent(sent)) > 0; asked != (c.killed && !c.keeperDead) || (w.killStarted != 0) != c.killed {
				t.Errorf("asked: %t, %+v", asked, w)
			}
			if (b.l.work == nil) != c.dead {
				t.Errorf("dead: %t", b.l.work == nil)
			}
			if swept := c.dead || c.killed; swept != (w.nextSweep != next) || swept && (w.nextSweep < before+minSweepDelay || w.nextSweep > boottime.Now()+maxSweepDelay) {
				t.Errorf("swept: %t, again after %s", swept, w.nextSweep-before)
			}
		})
	}
}

// The work of an earlier daemon that could not be killed keeps its leadership: the end of a later session releases only
// what is dead (S1).
func TestASurvivorIsNotReleasedWithALaterSession(t *testing.T) {
	b := newBareGuard(t)
	b.l.release, b.l.survivor = []byte("survivor"), true
	b.addLeadership(2, "dead").release = []byte("dead")
	sent := make(chan Credentials, 1)
	b.opt.Close = func(_ context.Context, c Credentials) (string, error) {
		sent <- c
		return "", nil
	}
	b.closeResults = make(chan closeResult, 1)
	b.closeSession(Credentials{Timeout: time.Minute})
	if c := <-sent; len(c.Releases) != 1 || string(c.Releases[0]) != "dead" {
		t.Errorf("released: %s", c.Releases)
	}
}

// A stop without a grace period is a kill. Only the first stop counts, and only systemd stops a unit.
func TestStopMessages(t *testing.T) {
	b := newBareGuard(t)
	for _, m := range []message{{Kind: kindKill, Seq: 7}, {Kind: kindStop, Seq: 7}} {
		w := b.give(b.l, &work{seq: 7})
		if b.request(w, m); !w.killing || w.killAt != 0 {
			t.Errorf("%+v: %+v", m, w)
		}
		b.expect("no grace", []string{"killing 7"}, []string{"kill 7"})
	}
	w := b.give(b.l, &work{seq: 7})
	before := boottime.Now()
	b.request(w, message{Kind: kindStop, Seq: 7, Grace: time.Hour})
	first := w.killAt
	if w.killing || first < before+time.Hour || first > boottime.Now()+time.Hour {
		t.Errorf("%+v", w)
	}
	b.expect("asked", nil, []string{"stop 7"})
	if b.request(w, message{Kind: kindStop, Seq: 7, Grace: time.Minute}); w.killAt != first {
		t.Error("the second stop had an effect")
	}
	b.expect("asked again", nil, nil)
	unit := b.give(b.l, &work{seq: 8, unit: new(unitContainer)})
	if b.request(unit, message{Kind: kindStop, Seq: 8, Grace: time.Hour}); unit.killAt == 0 {
		t.Error("a unit has no grace period")
	}
	b.expect("a unit", nil, nil)
	prepared := b.give(b.l, &work{seq: 9})
	prepared.launched = false
	if b.request(prepared, message{Kind: kindKill, Seq: 9}); b.l.work != nil {
		t.Error("work that was only prepared still exists")
	}
	b.expect("prepared work", []string{"dead 9"}, nil)
}
