package guard

import (
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/testhelper"
)

// checkNotLate checks that the work died because its lease ended; otherwise it would still run. The limit is wide, as the machine
// may be busy. Package bench measures how long it takes.
func checkNotLate(t *testing.T, dead, deadline time.Duration) {
	t.Helper()
	t.Logf("dead %s after the deadline", (dead - deadline).Round(100*time.Microsecond))
	limit := 1500 * time.Millisecond
	if testhelper.Race {
		limit = 5 * time.Second // the processors are busy with other tests
	}
	if dead > deadline+limit {
		t.Errorf("dead only %s after the deadline", dead-deadline)
	}
}

// S1 holds with a log that nobody reads, or whose reader is gone: it blocks neither the guard while the daemon is stopped, nor
// the daemon while the guard is stopped.
func TestUnreadLogDelaysNoKill(t *testing.T) {
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

// fill writes to a pipe until it is full.
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

// A stopped guard confirms no lease. If it continues in time, a lease that was sent in the meantime counts.
func TestGuardStoppedForLessThanLease(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
	deadline, pids := d.startWork(2 * time.Second)
	fx.signalGuard(syscall.SIGSTOP)
	last := call[time.Duration](d, "SetLease", time.Hour)
	eventually(t, "half of the lease", func() bool { return boottime.Now() > deadline-time.Second })
	if at := call[time.Duration](d, "Confirmed", 0); at != deadline {
		t.Fatalf("confirmed %s, want %s", at, deadline)
	}
	fx.signalGuard(syscall.SIGCONT)
	eventually(t, "the confirmation", func() bool { return call[time.Duration](d, "Confirmed", 0) == last })
	fx.checkAliveUntil(deadline+100*time.Millisecond, pids...)
}

// Guard, keeper and daemon are stopped until after the end of the lease, as in a frozen container. An extension that was sent in
// time counts, although the timer of the old lease has fired.
func TestUnreadExtensionCounts(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
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

// A keeper that was stopped until after the end of the lease does not start the work, not even for a moment.
func TestLateKeeperStartsNothing(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
	keeper := fx.keeperPid()
	call[time.Duration](d, "SetLease", 300*time.Millisecond)
	fx.stopProcesses(keeper)
	// If this takes long, the daemon gives up on the guard.
	if _, err := tryCall[int](d, "Start", fx.shell("echo $$ >$D/ran; exec sleep 1000")); err == nil {
		t.Error("it was started")
	}
	if read(fx.dir+"/ran") != "" {
		t.Error("it ran")
	}
}
