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
func (d *remote) lost(why string) {
	d.t.Helper()
	if cause := ask[string](d, "Lost", 0); !strings.HasPrefix(cause, ErrLost.Error()) || !strings.Contains(cause, why) {
		d.t.Errorf("the daemon says %q", cause)
	}
	if _, err := try[int](d, "Start", d.shell("echo $$ >$D/ran")); err == nil || !strings.Contains(err.Error(), ErrLost.Error()) {
		d.t.Errorf("start: %v", err)
	}
	if read(d.dir+"/ran") != "" {
		d.t.Error("it ran")
	}
}

// What has left the group and lost its parents dies by the daemon's hand: it is known by its environment.
func TestKilledGuard(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "CONTAINMENT=keeper")
	d := h.daemon()
	ask[int](d, "Session", h.credentials())
	_, pids := d.work(time.Hour)
	h.signal(syscall.SIGKILL)
	if e := ask[Ending](d, "Dead", 0); len(e.Left) > 0 || e.Status != "was killed with the guard" {
		t.Errorf("%+v", e)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("%d survives", pid)
		}
	}
	d.lost("")
	if all := h.burials(); len(all) > 0 {
		t.Errorf("nobody could close a session, and yet: %+v", all)
	}
	if _, err := ReadSessionFile(h.credentials().File); err != nil {
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
	for _, by := range contained {
		h := newHouse(t, "CONTAINMENT="+string(by))
		d := h.daemon()
		_, pids := d.bare(time.Hour)
		h.stop(h.keeper(), d.pid) // the daemon finds nothing below a guard that is gone
		h.signal(syscall.SIGKILL)
		h.status()
		syscall.Kill(d.pid, syscall.SIGCONT)
		h.dead(pids...)
	}
}

func TestKilledGuardWithoutWork(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	d := h.daemon()
	h.signal(syscall.SIGKILL)
	d.lost("")
}

// Guard and daemon killed at once: the death signal is what is left, and reaches the main process.
func TestKilledGuardAndDaemon(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "CONTAINMENT=keeper")
	d := h.daemon()
	_, pids := d.work(time.Hour)
	syscall.Kill(d.pid, syscall.SIGSTOP)
	h.signal(syscall.SIGKILL)
	syscall.Kill(d.pid, syscall.SIGKILL)
	h.dead(pids[0])
}

// S1, with a guard that does nothing: the daemon ends the work with what was confirmed last, whatever was sent since.
func TestStoppedGuard(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	d := h.daemon()
	deadline, pids := d.work(500 * time.Millisecond)
	eventually(t, "the confirmation", func() bool { return ask[time.Duration](d, "Confirmed", 0) == deadline })
	h.signal(syscall.SIGSTOP)
	ask[time.Duration](d, "Lease", time.Hour)
	if dead := h.dead(pids...); dead < deadline {
		t.Errorf("dead %s early", deadline-dead)
	} else {
		late(t, dead, deadline)
	}
	if e := ask[Ending](d, "Dead", 0); len(e.Left) > 0 || e.Status != "was killed with the guard" {
		t.Errorf("%+v", e)
	}
	if status := h.status(); status != -1 {
		t.Errorf("the guard ended with status %d", status)
	}
	d.lost("it has not ended the work with the lease")
}

// S1, with a guard that does nothing while the lease is cut: the daemon ends the work with the cut lease, confirmed or not.
func TestLeaseCutWhileTheGuardIsStopped(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	d := h.daemon()
	confirmed, pids := d.work(time.Hour)
	eventually(t, "the confirmation", func() bool { return ask[time.Duration](d, "Confirmed", 0) == confirmed })
	h.signal(syscall.SIGSTOP)
	deadline := ask[time.Duration](d, "Lease", 300*time.Millisecond)
	late(t, h.dead(pids...), deadline)
	d.lost("it has not ended the work with the lease")
}

// A guard that is stopped while it starts work is noticed with the end of the lease, not only when it should have answered:
// the work may run already. Start fails once nothing does.
func TestGuardStoppedWhileItStartsWork(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	d := h.daemon()
	deadline := ask[time.Duration](d, "Lease", 500*time.Millisecond)
	eventually(t, "the confirmation", func() bool { return ask[time.Duration](d, "Confirmed", 0) == deadline })
	h.signal(syscall.SIGSTOP)
	if _, err := try[int](d, "Start", d.shell("echo $$ >$D/ran; exec sleep 1000")); err == nil || !strings.Contains(err.Error(), ErrLost.Error()) {
		t.Errorf("start: %v", err)
	}
	if took := boottime.Now() - deadline; took > answerLimit/2 {
		t.Errorf("noticed %s after the end of the lease", took)
	}
	if left := stamped([]string{workMark(h.dir)}); len(left) > 0 {
		t.Errorf("%d is left", left)
	}
}

// A guard that is stopped while nothing runs does no harm by itself; it is lost once it is asked for work.
func TestStoppedGuardStartsNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	d := h.daemon()
	deadline := ask[time.Duration](d, "Lease", 20*time.Millisecond)
	h.signal(syscall.SIGSTOP)
	eventually(t, "the end of the lease", func() bool { return boottime.Now() > deadline+2*overdue })
	ask[time.Duration](d, "Lease", time.Hour)
	if _, err := try[int](d, "Start", h.shell("echo $$ >$D/ran")); err == nil || !strings.Contains(err.Error(), ErrLost.Error()) {
		t.Errorf("start: %v", err)
	}
	if status := h.status(); status != -1 {
		t.Errorf("the guard ended with status %d", status)
	}
	d.lost("")
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
	divisible(t)
	h := newHouse(t, "CONTAINMENT=keeper")
	first := h.daemon()
	ask[time.Duration](first, "Lease", time.Hour)
	ask[int](first, "Start", first.shell("exec sleep 1000"))
	ask[int](first, "Kill", 0)
	ask[Ending](first, "Dead", 0)
	syscall.Kill(first.pid, syscall.SIGKILL)
	second := h.daemon()
	_, pids := second.bare(time.Hour)
	mount, own := ownCgroup()
	freezer := filepath.Join(mount, own, fmt.Sprintf("freezer-test-%d", h.keeper()))
	if err := errors.Join(os.Mkdir(freezer, 0o755), os.WriteFile(filepath.Join(freezer, "cgroup.procs"), fmt.Append(nil, h.keeper()), 0),
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
	h.dead(pids...)
	h.daemon() // the next one
}
