package guard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/boottime"
)

// lost checks that the daemon has learnt that its guard is lost, and starts nothing any more.
func (d *remoteDaemon) checkGuardLost(why string) {
	d.t.Helper()
	if cause := call[string](d, "Lost", 0); !strings.HasPrefix(cause, ErrLost.Error()) || !strings.Contains(cause, why) {
		d.t.Errorf("the daemon says %q", cause)
	}
	if _, err := tryCall[int](d, "Start", d.shell("echo $$ >$D/ran")); err == nil || !strings.Contains(err.Error(), ErrLost.Error()) {
		d.t.Errorf("start: %v", err)
	}
	if read(d.dir+"/ran") != "" {
		d.t.Error("it ran")
	}
}

// What has left the group and lost its parents dies by the daemon's hand: it is known by its environment.
func TestKilledGuard(t *testing.T) {
	t.Parallel()
	fx := startGuard(t, "CONTAINMENT=keeper")
	d := fx.nextDaemon()
	call[int](d, "SetSession", fx.credentials())
	_, pids := d.startWork(time.Hour)
	fx.signalGuard(syscall.SIGKILL)
	if e := call[ExitInfo](d, "Dead", 0); len(e.StillAlive) > 0 || e.Status != "was killed with the guard" {
		t.Errorf("%+v", e)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is still alive", pid)
		}
	}
	d.checkGuardLost("")
	if all := fx.closedSessions(); len(all) > 0 {
		t.Errorf("nobody could close a session, and yet: %+v", all)
	}
	if _, err := ReadSessionFile(fx.credentials().File); err != nil {
		t.Error(err) // the daemon has still to release it
	}
}

// A keeper that is stopped when the guard is killed is woken by the daemon. Where orphans go to a process of the same session, as
// to a shell that is the first process of a container, the kernel does not wake it.
func TestAStoppedKeeperIsWokenWhenTheGuardIsLost(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) })
	for _, by := range allContainments {
		fx := startGuard(t, "CONTAINMENT="+string(by))
		d := fx.nextDaemon()
		_, pids := d.startUntraceableWork(time.Hour)
		fx.stopProcesses(fx.keeperPid(), d.pid) // the daemon finds nothing below a guard that is gone
		fx.signalGuard(syscall.SIGKILL)
		fx.guardExitStatus()
		syscall.Kill(d.pid, syscall.SIGCONT)
		fx.waitDead(pids...)
	}
}

func TestKilledGuardWithoutWork(t *testing.T) {
	t.Parallel()
	fx := startGuard(t)
	d := fx.nextDaemon()
	fx.signalGuard(syscall.SIGKILL)
	d.checkGuardLost("")
}

// Guard and daemon killed at once: the death signal is what is left, and reaches the main process.
func TestKilledGuardAndDaemon(t *testing.T) {
	t.Parallel()
	fx := startGuard(t, "CONTAINMENT=keeper")
	d := fx.nextDaemon()
	_, pids := d.startWork(time.Hour)
	syscall.Kill(d.pid, syscall.SIGSTOP)
	fx.signalGuard(syscall.SIGKILL)
	syscall.Kill(d.pid, syscall.SIGKILL)
	fx.waitDead(pids[0])
}

// S1, with a guard that does nothing: the daemon ends the work with what was confirmed last, whatever was sent since.
func TestStoppedGuard(t *testing.T) {
	t.Parallel()
	fx := startGuard(t)
	d := fx.nextDaemon()
	deadline, pids := d.startWork(500 * time.Millisecond)
	eventually(t, "the confirmation", func() bool { return call[time.Duration](d, "Confirmed", 0) == deadline })
	fx.signalGuard(syscall.SIGSTOP)
	call[time.Duration](d, "SetLease", time.Hour)
	if dead := fx.waitDead(pids...); dead < deadline {
		t.Errorf("dead %s early", deadline-dead)
	} else {
		checkNotLate(t, dead, deadline)
	}
	if e := call[ExitInfo](d, "Dead", 0); len(e.StillAlive) > 0 || e.Status != "was killed with the guard" {
		t.Errorf("%+v", e)
	}
	if status := fx.guardExitStatus(); status != -1 {
		t.Errorf("the guard ended with status %d", status)
	}
	d.checkGuardLost("it has not killed the work at the end of the lease")
}

// S1, with a guard that does nothing while the lease is cut: the daemon ends the work with the cut lease, confirmed or not.
func TestLeaseCutWhileTheGuardIsStopped(t *testing.T) {
	t.Parallel()
	fx := startGuard(t)
	d := fx.nextDaemon()
	confirmed, pids := d.startWork(time.Hour)
	eventually(t, "the confirmation", func() bool { return call[time.Duration](d, "Confirmed", 0) == confirmed })
	fx.signalGuard(syscall.SIGSTOP)
	deadline := call[time.Duration](d, "SetLease", 300*time.Millisecond)
	checkNotLate(t, fx.waitDead(pids...), deadline)
	d.checkGuardLost("it has not killed the work at the end of the lease")
}

// A guard that is stopped while it starts work is noticed with the end of the lease, not only when it should have answered:
// the work may run already. Start fails once nothing does.
func TestGuardStoppedWhileItStartsWork(t *testing.T) {
	t.Parallel()
	fx := startGuard(t)
	d := fx.nextDaemon()
	deadline := call[time.Duration](d, "SetLease", 500*time.Millisecond)
	eventually(t, "the confirmation", func() bool { return call[time.Duration](d, "Confirmed", 0) == deadline })
	fx.signalGuard(syscall.SIGSTOP)
	if _, err := tryCall[int](d, "Start", d.shell("echo $$ >$D/ran; exec sleep 1000")); err == nil || !strings.Contains(err.Error(), ErrLost.Error()) {
		t.Errorf("start: %v", err)
	}
	if took := boottime.Now() - deadline; took > startTimeout/2 {
		t.Errorf("noticed %s after the end of the lease", took)
	}
	if left := pidsWithEnv([]string{workEnv(fx.dir)}); len(left) > 0 {
		t.Errorf("%d is left", left)
	}
}

// A guard that is stopped while nothing runs does no harm by itself; it is lost once it is asked for work.
func TestStoppedGuardStartsNothing(t *testing.T) {
	t.Parallel()
	fx := startGuard(t)
	d := fx.nextDaemon()
	deadline := call[time.Duration](d, "SetLease", 20*time.Millisecond)
	fx.signalGuard(syscall.SIGSTOP)
	eventually(t, "the end of the lease", func() bool { return boottime.Now() > deadline+2*guardOverdue })
	call[time.Duration](d, "SetLease", time.Hour)
	if _, err := tryCall[int](d, "Start", fx.shell("echo $$ >$D/ran")); err == nil || !strings.Contains(err.Error(), ErrLost.Error()) {
		t.Errorf("start: %v", err)
	}
	if status := fx.guardExitStatus(); status != -1 {
		t.Errorf("the guard ended with status %d", status)
	}
	d.checkGuardLost("")
}

// Whoever is not started by a guard is told so.
func TestNoGuard(t *testing.T) {
	if c, err := Connect(1000, nil); err == nil || !strings.Contains(err.Error(), "zkelectd run") {
		t.Errorf("%v, %v", c, err)
	}
}

// A keeper that hangs for good is killed once it does not act on a kill, whatever an earlier daemon's work was numbered.
func TestAKeeperThatHangsIsKilled(t *testing.T) {
	t.Parallel()
	requireCgroups(t)
	fx := startGuard(t, "CONTAINMENT=keeper")
	first := fx.nextDaemon()
	call[time.Duration](first, "SetLease", time.Hour)
	call[int](first, "Start", first.shell("exec sleep 1000"))
	call[int](first, "Kill", 0)
	call[ExitInfo](first, "Dead", 0)
	syscall.Kill(first.pid, syscall.SIGKILL)
	second := fx.nextDaemon()
	_, pids := second.startUntraceableWork(time.Hour)
	mount, own := ownCgroup()
	freezer := filepath.Join(mount, own, fmt.Sprintf("freezer-test-%d", fx.keeperPid()))
	if err := errors.Join(os.Mkdir(freezer, 0o755), os.WriteFile(filepath.Join(freezer, "cgroup.procs"), fmt.Append(nil, fx.keeperPid()), 0),
		os.WriteFile(filepath.Join(freezer, "cgroup.freeze"), []byte("1"), 0)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		os.WriteFile(filepath.Join(freezer, killFile), []byte("1"), 0)
		eventually(t, "the end of the keeper", func() bool {
			err := os.Remove(freezer)
			return err == nil || os.IsNotExist(err)
		})
	})
	syscall.Kill(second.pid, syscall.SIGKILL)
	fx.waitDead(pids...)
	fx.nextDaemon() // the next one
}
