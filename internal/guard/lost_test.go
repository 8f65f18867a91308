package guard

import (
	"strings"
	"syscall"
	"testing"
	"time"

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
	h := newHouse(t, "GROUPS=no") // else the next guard of the host would help
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
	if _, err := ReadSession(h.credentials().File); err != nil {
		t.Error(err) // the daemon has still to release it
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
	h := newHouse(t, "GROUPS=no")
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
