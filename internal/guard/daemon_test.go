package guard

import (
	"encoding/binary"
	"encoding/json"
	"net/rpc"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/boottime"
)

// frame is a message as it goes over the socket.
func frame(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// endings are the ways in which a daemon fails, with the guard's exit status when it is not started again.
var endings = map[string]struct {
	end    func(d *remote)
	status int
}{
	"killed":            {func(d *remote) { syscall.Kill(d.pid, syscall.SIGKILL) }, 128 + 9},
	"aborted":           {func(d *remote) { syscall.Kill(d.pid, syscall.SIGQUIT) }, 2},
	"panic":             {func(d *remote) { d.last("End", 2) }, 2},
	"no JSON":           {func(d *remote) { d.last("Say", frame("nonsense")) }, 128 + 9},
	"not an object":     {func(d *remote) { d.last("Say", frame("[]")) }, 128 + 9},
	"empty frame":       {func(d *remote) { d.last("Say", frame("")) }, 128 + 9},
	"unknown kind":      {func(d *remote) { d.last("Say", frame(`{"kind":"sing"}`)) }, 128 + 9},
	"unknown field":     {func(d *remote) { d.last("Say", frame(`{"kind":"beat","tune":"any"}`)) }, 128 + 9},
	"start without":     {func(d *remote) { d.last("Say", frame(`{"kind":"start","seq":9}`)) }, 128 + 9},
	"too long a frame":  {func(d *remote) { d.last("Say", []byte{1, 0, 0, 0}) }, 128 + 9},
	"start while busy":  {func(d *remote) { d.last("Begin", d.shell("true")) }, 128 + 9},
	"hangs up":          {func(d *remote) { d.last("HangUp", 0) }, 128 + 9},
	"stops to speak":    {func(d *remote) { ask[int](d, "Beat", 50*time.Millisecond) }, 128 + 9},
	"stopped":           {func(d *remote) { ask[int](d, "Beat", 50*time.Millisecond); syscall.Kill(d.pid, syscall.SIGSTOP) }, 128 + 9},
	"its own exit code": {func(d *remote) { d.last("End", 3) }, 3},
}

// last has the daemon do what may be the last thing it does.
func (d *remote) last(method string, arg any) {
	d.conn.Go("Daemon."+method, arg, new(int), make(chan *rpc.Call, 1))
}

// checkBurial wants one session closed: that of the dead daemon, with nothing at work any more.
func (d *remote) checkBurial(pids []int) {
	d.t.Helper()
	all := d.burials()
	if len(all) != 1 {
		d.t.Fatalf("%d sessions were closed", len(all))
	}
	if b := all[0]; !reflect.DeepEqual(b.Session, d.credentials()) || len(b.Left) > 0 || b.Daemon {
		d.t.Errorf("%+v", b)
	}
	for _, pid := range append(pids, d.pid) {
		if alive(pid) {
			d.t.Errorf("%d survives", pid)
		}
	}
	eventually(d.t, "the end of the session file", func() bool {
		_, err := os.Stat(d.credentials().File)
		return os.IsNotExist(err)
	})
}

// First the work is dead, then the session is closed, then there is a new daemon.
func TestFailedDaemonIsReplaced(t *testing.T) {
	t.Parallel()
	for name, c := range endings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			d := h.daemon()
			ask[int](d, "Session", h.credentials())
			_, pids := d.work(time.Hour)
			c.end(d)
			next := h.daemon()
			if next.pid == d.pid {
				t.Error("the same daemon")
			}
			d.checkBurial(pids)
			if _, err := try[int](next, "Start", h.shell("true")); err == nil || err.Error() != "the lease is over" {
				t.Errorf("the new daemon has inherited the lease: %v", err)
			}
			ask[time.Duration](next, "Lease", time.Hour)
			ask[int](next, "Start", h.shell("exit 0"))
			if e := ask[Ending](next, "Dead", 0); e.Status != StatusSuccess {
				t.Error(e.Status)
			}
		})
	}
}

func TestFailedDaemonIsNotReplaced(t *testing.T) {
	t.Parallel()
	for name, c := range endings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, "RESPAWN=no")
			d := h.daemon()
			ask[int](d, "Session", h.credentials())
			_, pids := d.work(time.Hour)
			c.end(d)
			if status := h.status(); status != c.status {
				t.Errorf("exit status %d", status)
			}
			d.checkBurial(pids)
		})
	}
}

// A daemon's own verdict is final. It has closed its session itself.
func TestDaemonEnds(t *testing.T) {
	t.Parallel()
	for status := range 2 {
		h := newHouse(t)
		d := h.daemon()
		ask[int](d, "Session", h.credentials())
		ask[int](d, "SessionClosed", 0)
		d.last("End", status)
		if got := h.status(); got != status {
			t.Errorf("exit status %d instead of %d", got, status)
		}
		if all := h.burials(); len(all) > 0 {
			t.Errorf("%+v", all)
		}
		if log := read(filepath.Join(h.dir, "log")); strings.Contains(log, "started again") {
			t.Error(log)
		}
	}
}

// Nor does work stay behind when the daemon ends as if all were well.
func TestDaemonEndsTooEarly(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	d := h.daemon()
	ask[int](d, "Session", h.credentials())
	_, pids := d.work(time.Hour)
	d.last("End", 0)
	if got := h.status(); got != 0 {
		t.Errorf("exit status %d", got)
	}
	d.checkBurial(pids)
}

// A session that can't be closed is left to expire: that is no reason not to go on, and 'release' may try again.
func TestSessionThatCannotBeClosed(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	d := h.daemon()
	c := h.credentials()
	c.ID = unclosable
	ask[int](d, "Session", c)
	syscall.Kill(d.pid, syscall.SIGKILL)
	next := h.daemon()
	if f, err := ReadSessionFile(c.File); err != nil || f.Session.ID != unclosable {
		t.Errorf("%+v, %v", f, err)
	}
	syscall.Kill(next.pid, syscall.SIGKILL) // has no session yet: nothing to close
	h.daemon()
	if all := h.burials(); len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

// The work of a daemon that hangs up does not wait for that to end.
func TestWorkEndsWithTheSocket(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	d := h.daemon()
	_, pids := d.work(time.Hour)
	began := boottime.Now()
	d.last("HangUp", 0)
	if took := h.dead(pids...) - began; took > hangUp {
		t.Errorf("that took %s", took)
	}
}

// Nothing to start is nonsense too, also while there is room for work.
func TestStartOfNothing(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"kind":"start","seq":1}`, `{"kind":"start","seq":1,"spec":{"path":"/bin/true","argv":[],"env":[],"stop_signal":15}}`} {
		h := newHouse(t)
		d := h.daemon()
		ask[time.Duration](d, "Lease", time.Hour)
		d.last("Say", frame(body))
		if next := h.daemon(); next.pid == d.pid {
			t.Errorf("%s: the same daemon", body)
		}
	}
}

// A process that is traced is not gone before its tracer has buried it: so long the session is not closed.
func TestSessionIsClosedAfterTheWork(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread() // which is the tracer
	defer runtime.UnlockOSThread()
	h := newHouse(t)
	d := h.daemon()
	ask[int](d, "Session", h.credentials())
	_, pids := d.work(time.Hour)
	if _, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pids[0]), 0, 0, 0, 0); e != 0 {
		t.Logf("processes can't be traced here: %v", e)
		return
	}
	syscall.Kill(d.pid, syscall.SIGKILL)
	h.dead(append(pids, d.pid)...)
	for end := boottime.Now() + 100*time.Millisecond; boottime.Now() < end; {
		if all := h.burials(); len(all) > 0 {
			t.Errorf("too early: %+v", all)
			break
		}
	}
	eventually(t, "the burial of the work", func() bool {
		var status unix.WaitStatus
		_, err := unix.Wait4(pids[0], &status, unix.WALL|unix.WNOHANG, nil)
		return err != nil || status.Signaled()
	})
	h.daemon()
	d.checkBurial(pids)
}

// What the daemon has handed over last, to release leadership, is there when its session is closed.
func TestTheLastReleaseIsHandedOver(t *testing.T) {
	t.Parallel()
	for name, handed := range map[string][]string{"as leader": {`[1]`, `[2]`}, "no more": {`[1]`, `null`}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			d := h.daemon()
			c := h.credentials()
			ask[int](d, "Leave", json.RawMessage(handed[0])) // without a session there is nothing to release
			ask[int](d, "Session", c)
			f, err := ReadSessionFile(c.File)
			if err != nil || f.Session.Release != nil {
				t.Errorf("%s, %v", f.Session.Release, err)
			}
			for _, tx := range handed {
				if c.Release = json.RawMessage(tx); tx == "null" {
					c.Release = nil
				}
				ask[int](d, "Leave", c.Release)
				if f, err := ReadSessionFile(c.File); err != nil || !reflect.DeepEqual(f.Session, c) {
					t.Errorf("the file says %+v (%v), want %+v", f.Session, err, c)
				}
			}
			syscall.Kill(d.pid, syscall.SIGKILL)
			eventually(t, "the end of the session", func() bool { return len(h.burials()) > 0 })
			if got := h.burials()[0].Session; !reflect.DeepEqual(got, c) {
				t.Errorf("the guard has %+v, want %+v", got, c)
			}
		})
	}
}
