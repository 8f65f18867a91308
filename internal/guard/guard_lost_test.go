package guard

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
)

// checkGuardLost checks that the daemon has noticed that its guard is lost, for the given reason, and starts no more work.
func (d *remoteDaemon) checkGuardLost(reason string) {
	d.t.Helper()
	if cause := call[string](d, "Lost", 0); !strings.HasPrefix(cause, ErrLost.Error()) || !strings.Contains(cause, reason) {
		d.t.Errorf("got %q, want %q", cause, reason)
	}
	if _, err := tryCall[int](d, "Start", d.shell("echo $$ >$D/ran")); err == nil || !strings.Contains(err.Error(), ErrLost.Error()) {
		d.t.Errorf("start: %v", err)
	}
	if read(d.dir+"/ran") != "" {
		d.t.Error("it ran")
	}
}

// What a daemon does without a list of processes comes before its search for the descendants of a hung guard, which
// may take longer the more of them there are: it kills the control group, or continues the keeper.
func TestDaemonKillsBeforeItSearches(t *testing.T) {
	t.Parallel()
	for _, by := range []Containment{CgroupContainment, KeeperContainment} {
		fx, d := startDaemon(t, "CONTAINMENT="+string(by))
		_, pids := d.startUntraceableWork(time.Second)
		call[int](d, "HangSearch", 0)
		fx.stopProcesses(fx.cmd.Process.Pid, fx.keeperPid())
		fx.waitDead(pids...)
	}
}

// The daemon continues a keeper that is stopped when the guard is killed. The kernel does not if orphans are adopted by a process
// of the same session, such as a shell that is process 1 of a container.
func TestDaemonWakesStoppedKeeper(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) })
	for _, by := range allContainments {
		fx, d := startDaemon(t, "CONTAINMENT="+string(by))
		_, pids := d.startUntraceableWork(time.Hour)
		fx.stopProcesses(fx.keeperPid(), d.pid) // a dead guard has no descendants that the daemon could find
		fx.signalGuard(syscall.SIGKILL)
		fx.guardExitStatus()
		syscall.Kill(d.pid, syscall.SIGCONT)
		fx.waitDead(pids...)
	}
}

// S1 holds with a stopped guard: the daemon kills the work soon after the confirmed deadline, even if it has a longer lease since.
func TestStoppedGuard(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
	deadline, pids := d.startWork(500 * time.Millisecond)
	eventually(t, "the confirmation", func() bool { return call[time.Duration](d, "Confirmed", 0) == deadline })
	fx.signalGuard(syscall.SIGSTOP)
	call[time.Duration](d, "SetLease", time.Hour)
	if dead := fx.waitDead(pids...); dead < deadline {
		t.Errorf("dead %s too early", deadline-dead)
	} else {
		checkNotLate(t, dead, deadline+guardLate)
	}
	if e := call[ExitInfo](d, "Dead", 0); len(e.StillAlive) > 0 || e.Status != "was killed with the guard" {
		t.Errorf("%+v", e)
	}
	if status := fx.guardExitStatus(); status != -1 {
		t.Errorf("the guard exited with status %d", status)
	}
	d.checkGuardLost("it has not reported at the end of the lease that it kills the work")
}

// A guard that is stopped before it starts work is lost when its answer is overdue. Start fails, and no work runs.
func TestGuardStoppedWhileItStartsWork(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
	d.setConfirmedLease(500 * time.Millisecond)
	fx.signalGuard(syscall.SIGSTOP)
	began := boottime.Now()
	if _, err := tryCall[int](d, "Start", d.shell("echo $$ >$D/ran; exec sleep 1000")); err == nil || !strings.Contains(err.Error(), ErrLost.Error()) {
		t.Errorf("start: %v", err)
	}
	if took := boottime.Now() - began; took > startTimeout+startTimeout/2 {
		t.Errorf("lost only after %s", took)
	}
	if left := pidsWithEnv([]string{workEnv(fx.dir)}); len(left) > 0 {
		t.Errorf("left behind: %d", left)
	}
}

// Connect explains that the process was not started by a guard.
func TestConnectWithoutGuard(t *testing.T) {
	if c, err := Connect(1000, nil); err == nil || !strings.Contains(err.Error(), "zkelectd run") {
		t.Errorf("%v, %v", c, err)
	}
}
