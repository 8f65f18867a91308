package guard

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSignalsReachTheDaemon(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		h := newHouse(t)
		d := h.daemon()
		_, pids := d.work(time.Hour)
		h.signal(sig)
		if got := ask[int](d, "Signal", 0); got != int(sig) {
			t.Errorf("%d instead of %d", got, sig)
		}
		h.lives(0, pids...) // when to stop the work is for the daemon to say
		ask[int](d, "Kill", 0)
		ask[Ending](d, "Dead", 0)
		d.last("End", 0)
		if status := h.status(); status != 0 {
			t.Errorf("exit status %d", status)
		}
	}
}

// Only SIGHUP does not mean the end.
func TestStoppingGuardStartsNothing(t *testing.T) {
	t.Parallel()
	for sig, stops := range map[syscall.Signal]bool{syscall.SIGTERM: true, syscall.SIGINT: true, syscall.SIGHUP: false} {
		h := newHouse(t)
		d := h.daemon()
		ask[int](d, "Session", h.credentials())
		_, pids := d.work(time.Hour)
		h.signal(sig)
		ask[int](d, "Signal", 0)
		syscall.Kill(d.pid, syscall.SIGKILL)
		if stops {
			if status := h.status(); status != 128+9 {
				t.Errorf("exit status %d", status)
			}
		} else {
			h.daemon()
		}
		d.checkBurial(pids)
	}
}

// While no daemon can be started the guard keeps trying, and can be stopped.
func TestDaemonThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	d := h.daemon()
	link := filepath.Join(h.dir, "daemon")
	hide := func() {
		if err := os.Rename(link, link+".hidden"); err != nil {
			t.Fatal(err)
		}
		syscall.Kill(d.pid, syscall.SIGKILL)
	}
	failures := func() int { return strings.Count(read(filepath.Join(h.dir, "log")), "not started again yet") }
	hide()
	eventually(t, "two failures", func() bool { return failures() >= 2 })
	if err := os.Rename(link+".hidden", link); err != nil {
		t.Fatal(err)
	}
	d = h.daemon()
	before := failures()
	hide()
	eventually(t, "another", func() bool { return failures() > before })
	h.signal(syscall.SIGTERM)
	if status := h.status(); status != 128+15 {
		t.Errorf("exit status %d", status)
	}
}
