package guard

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/boottime"
)

// late checks that the lease has ended the work. Without that it would live on; the bound is wide for the sake of machines that
// do much else. How long it takes is measured by bench.
func checkNotLate(t *testing.T, dead, deadline time.Duration) {
	t.Helper()
	t.Logf("dead %s after the deadline", (dead - deadline).Round(100*time.Microsecond))
	if dead > deadline+1500*time.Millisecond {
		t.Errorf("dead only %s after the deadline", dead-deadline)
	}
}

func TestNoWorkWithoutALease(t *testing.T) {
	t.Parallel()
	fx := startGuard(t)
	d := fx.nextDaemon()
	refused := func(when string) {
		t.Helper()
		if _, err := tryCall[int](d, "Start", fx.shell("echo $$ >$D/ran")); err == nil || err.Error() != "there is no lease" {
			t.Errorf("%s: %v", when, err)
		}
	}
	refused("without a lease")
	deadline := call[time.Duration](d, "SetLease", 20*time.Millisecond)
	eventually(t, "its end", func() bool { return boottime.Now() > deadline })
	refused("after its end")
	call[time.Duration](d, "SetLease", time.Hour)
	call[time.Duration](d, "SetLease", 0)
	refused("after it was given back")
	if read(fx.dir+"/ran") != "" {
		t.Error("it ran")
	}
	call[time.Duration](d, "SetLease", time.Hour)
	call[int](d, "Start", fx.shell("exit 0"))
}

// S1, with a daemon that does nothing.
func TestLeaseEndsTheWork(t *testing.T) {
	t.Parallel()
	for _, c := range allContainments {
		fx := startGuard(t, "CONTAINMENT="+string(c))
		d := fx.nextDaemon()
		deadline, pids := d.startWork(400 * time.Millisecond)
		syscall.Kill(d.pid, syscall.SIGSTOP)
		if dead := fx.waitDead(pids...); dead < deadline {
			t.Errorf("dead %s early", deadline-dead)
		} else {
			checkNotLate(t, dead, deadline)
		}
		syscall.Kill(d.pid, syscall.SIGCONT)
		if e := call[ExitInfo](d, "Dead", 0); len(e.StillAlive) > 0 || !strings.Contains(e.Status, "killed") {
			t.Errorf("%+v", e)
		}
	}
}

// S1, with a log that nobody reads, or whose reader is gone: it holds up neither the guard, when the daemon is stopped, nor
// the daemon, when the guard is.
func TestLogThatNobodyReads(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ readerGone, guardStopped bool }{{false, false}, {false, true}, {true, false}, {true, true}} {
		r, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if test.readerGone {
			r.Close()
		} else {
			fill(t, out)
		}
		fx := startGuardLoggingTo(t, out)
		out.Close()
		d := fx.nextDaemon()
		deadline, pids := d.startWork(400 * time.Millisecond)
		if test.guardStopped {
			fx.signalGuard(syscall.SIGSTOP)
		} else {
			syscall.Kill(d.pid, syscall.SIGSTOP)
		}
		checkNotLate(t, fx.waitDead(pids...), deadline)
	}
}

// fill leaves no room in a pipe.
func fill(t *testing.T, pipe *os.File) {
	t.Helper()
	raw, err := pipe.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Write(func(fd uintptr) bool {
		for {
			if _, err := unix.Write(int(fd), []byte{'\n'}); err != nil {
				return true
			}
		}
	})
}

// The guard ends the work, and the daemon learns of it: it need not do without the guard.
func TestEndOfTheLeaseIsReported(t *testing.T) {
	t.Parallel()
	fx := startGuard(t)
	d := fx.nextDaemon()
	deadline := call[time.Duration](d, "SetLease", 300*time.Millisecond)
	pid := call[int](d, "Start", fx.shell("trap '' TERM; while :; do sleep 0.01; done"))
	e := call[ExitInfo](d, "Dead", 0)
	checkNotLate(t, boottime.Now(), deadline)
	if alive(pid) || len(e.StillAlive) > 0 || e.Status != "was killed by signal 9 (killed)" {
		t.Errorf("%+v", e)
	}
	call[time.Duration](d, "SetLease", time.Hour)
	call[int](d, "Start", fx.shell("exit 0")) // the guard goes on
}

func TestExtensionKeepsTheWork(t *testing.T) {
	t.Parallel()
	fx := startGuard(t)
	d := fx.nextDaemon()
	first, pids := d.startWork(time.Second)
	var last time.Duration
	eventually(t, "twice the lease", func() bool {
		last = call[time.Duration](d, "SetLease", time.Second)
		return boottime.Now() > first+time.Second
	})
	fx.checkAliveUntil(first+time.Second, pids...)
	checkNotLate(t, fx.waitDead(pids...), last)
}

// A shorter lease than the last counts as well.
func TestLeaseCanBeCutShort(t *testing.T) {
	t.Parallel()
	fx := startGuard(t)
	d := fx.nextDaemon()
	_, pids := d.startWork(time.Hour)
	deadline := call[time.Duration](d, "SetLease", 50*time.Millisecond)
	checkNotLate(t, fx.waitDead(pids...), deadline)
	call[ExitInfo](d, "Dead", 0)
}

// Nor may work go on that has no lease at all.
func TestLeaseCanBeGivenBack(t *testing.T) {
	t.Parallel()
	fx := startGuard(t)
	d := fx.nextDaemon()
	_, pids := d.startWork(time.Hour)
	call[time.Duration](d, "SetLease", 0)
	fx.waitDead(pids...)
	call[ExitInfo](d, "Dead", 0)
}

// A guard that is stopped confirms nothing. When it goes on in time, what was sent meanwhile counts.
func TestGuardStoppedForLessThanTheLease(t *testing.T) {
	t.Parallel()
	fx := startGuard(t)
	d := fx.nextDaemon()
	deadline, pids := d.startWork(2 * time.Second)
	fx.signalGuard(syscall.SIGSTOP)
	last := call[time.Duration](d, "SetLease", time.Hour)
	eventually(t, "half of the lease", func() bool { return boottime.Now() > deadline-time.Second })
	if at := call[time.Duration](d, "Confirmed", 0); at != deadline {
		t.Fatalf("%s is confirmed, not %s", at, deadline)
	}
	fx.signalGuard(syscall.SIGCONT)
	eventually(t, "the confirmation", func() bool { return call[time.Duration](d, "Confirmed", 0) == last })
	fx.checkAliveUntil(deadline+100*time.Millisecond, pids...)
}

// Guard, keeper and daemon are stopped beyond the old lease, as with a container that is frozen. The new one was sent in time: it
// counts, though the timer of the old one has fired.
func TestLeaseThatWaitsInTheQueueCounts(t *testing.T) {
	t.Parallel()
	fx := startGuard(t)
	d := fx.nextDaemon()
	deadline, pids := d.startWork(300 * time.Millisecond)
	fx.signalGuard(syscall.SIGSTOP)
	call[int](d, "Heartbeat", time.Hour)
	call[time.Duration](d, "SetLease", time.Hour)
	syscall.Kill(d.pid, syscall.SIGSTOP)
	keeper := fx.keeperPid()
	syscall.Kill(keeper, syscall.SIGSTOP)
	eventually(t, "the end of the old lease", func() bool { return boottime.Now() > deadline+2*keeperDelay })
	fx.signalGuard(syscall.SIGCONT)
	syscall.Kill(keeper, syscall.SIGCONT)
	fx.checkAliveUntil(boottime.Now()+200*time.Millisecond, pids...)
}

// After a pause of the guard the deadline and what was sent before it are there at once.
func TestDrainTakesInWhatWasSentBeforeTheDeadline(t *testing.T) {
	near, far, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	defer far.Close()
	d := &daemon{socket: near}
	g := &guard{daemon: d, work: &work{}, fromDaemon: make(chan incoming, 3), lease: 1, heartbeatDeadline: 2}
	later := boottime.Now() + time.Hour
	g.fromDaemon <- incoming{daemon: &daemon{}, msg: message{Kind: kindLease, At: 1}} // of a former daemon
	g.fromDaemon <- incoming{daemon: d, msg: message{Kind: kindLease, At: later}}
	g.fromDaemon <- incoming{daemon: d, msg: message{Kind: kindHeartbeat, At: later + 1}}
	g.drainInbox()
	if g.lease != later || g.heartbeatDeadline != later+1 {
		t.Errorf("%s, %s instead of %s", g.lease, g.heartbeatDeadline, later)
	}
	if m, err := readFrame(far); err != nil || m.Kind != kindLeaseConfirmed || m.At != later {
		t.Errorf("%+v, %v", m, err)
	}
	g.lease = 1
	g.drainInbox() // ends though nothing comes
	if g.lease != 1 {
		t.Error(g.lease)
	}
	// One deadline is enough; without any that has passed, nothing is hurried.
	for name, c := range map[string]struct{ lease, silence, want time.Duration }{
		"the lease is over": {1, later, 7}, "the daemon is silent": {later, 1, 7}, "neither": {later, later, later},
	} {
		g.lease, g.heartbeatDeadline = c.lease, c.silence
		g.fromDaemon <- incoming{daemon: d, msg: message{Kind: kindLease, At: 7}}
		if g.drainInbox(); g.lease != c.want {
			t.Errorf("%s: the lease ends at %s", name, g.lease)
		}
		for len(g.fromDaemon) > 0 {
			<-g.fromDaemon
		}
	}
}

// A keeper that stood still while the lease ended does not begin the work then, not even for a moment.
func TestAKeeperThatIsLateStartsNothing(t *testing.T) {
	t.Parallel()
	fx := startGuard(t)
	d := fx.nextDaemon()
	keeper := fx.keeperPid()
	call[time.Duration](d, "SetLease", 300*time.Millisecond)
	fx.stopProcesses(keeper)
	// Where that takes long the daemon gives up on the guard.
	if _, err := tryCall[int](d, "Start", fx.shell("echo $$ >$D/ran; exec sleep 1000")); err == nil {
		t.Error("it was started")
	}
	if read(fx.dir+"/ran") != "" {
		t.Error("it ran")
	}
}
