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
var daemonFailures = map[string]struct {
	end    func(d *remoteDaemon)
	status int
}{
	"killed":           {func(d *remoteDaemon) { syscall.Kill(d.pid, syscall.SIGKILL) }, 128 + 9},
	"aborted":          {func(d *remoteDaemon) { syscall.Kill(d.pid, syscall.SIGQUIT) }, 2},
	"panic":            {func(d *remoteDaemon) { d.callNoWait("Exit", 2) }, 2},
	"no JSON":          {func(d *remoteDaemon) { d.callNoWait("SendRaw", frame("nonsense")) }, 128 + 9},
	"not an object":    {func(d *remoteDaemon) { d.callNoWait("SendRaw", frame("[]")) }, 128 + 9},
	"empty frame":      {func(d *remoteDaemon) { d.callNoWait("SendRaw", frame("")) }, 128 + 9},
	"unknown kind":     {func(d *remoteDaemon) { d.callNoWait("SendRaw", frame(`{"kind":"sing"}`)) }, 128 + 9},
	"unknown field":    {func(d *remoteDaemon) { d.callNoWait("SendRaw", frame(`{"kind":"heartbeat","tune":"any"}`)) }, 128 + 9},
	"start without":    {func(d *remoteDaemon) { d.callNoWait("SendRaw", frame(`{"kind":"start","seq":9}`)) }, 128 + 9},
	"too long a frame": {func(d *remoteDaemon) { d.callNoWait("SendRaw", []byte{1, 0, 0, 0}) }, 128 + 9},
	"start while busy": {func(d *remoteDaemon) { d.callNoWait("StartUnchecked", d.shell("true")) }, 128 + 9},
	"hangs up":         {func(d *remoteDaemon) { d.callNoWait("HangUp", 0) }, 128 + 9},
	"stops to speak":   {func(d *remoteDaemon) { call[int](d, "Heartbeat", 50*time.Millisecond) }, 128 + 9},
	"stopped": {func(d *remoteDaemon) {
		call[int](d, "Heartbeat", 50*time.Millisecond)
		syscall.Kill(d.pid, syscall.SIGSTOP)
	}, 128 + 9},
	"its own exit code": {func(d *remoteDaemon) { d.callNoWait("Exit", 3) }, 3},
}

// last has the daemon do what may be the last thing it does.
func (d *remoteDaemon) callNoWait(method string, arg any) {
	d.conn.Go("Daemon."+method, arg, new(int), make(chan *rpc.Call, 1))
}

// checkBurial wants one session closed: that of the dead daemon, with nothing at work any more.
func (d *remoteDaemon) checkSessionClosed(pids []int) {
	d.t.Helper()
	all := d.closedSessions()
	if len(all) != 1 {
		d.t.Fatalf("%d sessions were closed", len(all))
	}
	if b := all[0]; !reflect.DeepEqual(b.Session, d.credentials()) || len(b.StillAlive) > 0 || b.DaemonAlive {
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
	for name, c := range daemonFailures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startGuard(t)
			d := h.nextDaemon()
			call[int](d, "SetSession", h.credentials())
			_, pids := d.startWork(time.Hour)
			c.end(d)
			next := h.nextDaemon()
			if next.pid == d.pid {
				t.Error("the same daemon")
			}
			d.checkSessionClosed(pids)
			if _, err := tryCall[int](next, "Start", h.shell("true")); err == nil || err.Error() != "there is no lease" {
				t.Errorf("the new daemon has inherited the lease: %v", err)
			}
			call[time.Duration](next, "SetLease", time.Hour)
			call[int](next, "Start", h.shell("exit 0"))
			if e := call[ExitInfo](next, "Dead", 0); e.Status != StatusSuccess {
				t.Error(e.Status)
			}
		})
	}
}

func TestFailedDaemonIsNotReplaced(t *testing.T) {
	t.Parallel()
	for name, c := range daemonFailures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startGuard(t, "RESPAWN=no")
			d := h.nextDaemon()
			call[int](d, "SetSession", h.credentials())
			_, pids := d.startWork(time.Hour)
			c.end(d)
			if status := h.guardExitStatus(); status != c.status {
				t.Errorf("exit status %d", status)
			}
			d.checkSessionClosed(pids)
		})
	}
}

// A daemon's own verdict is final. It has closed its session itself.
func TestDaemonEnds(t *testing.T) {
	t.Parallel()
	for status := range 2 {
		h := startGuard(t)
		d := h.nextDaemon()
		call[int](d, "SetSession", h.credentials())
		call[int](d, "ClearSession", 0)
		d.callNoWait("Exit", status)
		if got := h.guardExitStatus(); got != status {
			t.Errorf("exit status %d instead of %d", got, status)
		}
		if all := h.closedSessions(); len(all) > 0 {
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
	h := startGuard(t)
	d := h.nextDaemon()
	call[int](d, "SetSession", h.credentials())
	_, pids := d.startWork(time.Hour)
	d.callNoWait("Exit", 0)
	if got := h.guardExitStatus(); got != 0 {
		t.Errorf("exit status %d", got)
	}
	d.checkSessionClosed(pids)
}

// A session that can't be closed is left to expire: that is no reason not to go on, and 'release' may try again.
func TestSessionThatCannotBeClosed(t *testing.T) {
	t.Parallel()
	h := startGuard(t)
	d := h.nextDaemon()
	c := h.credentials()
	c.ID = unclosableID
	call[int](d, "SetSession", c)
	syscall.Kill(d.pid, syscall.SIGKILL)
	next := h.nextDaemon()
	if f, err := ReadSessionFile(c.File); err != nil || f.Session.ID != unclosableID {
		t.Errorf("%+v, %v", f, err)
	}
	syscall.Kill(next.pid, syscall.SIGKILL) // has no session yet: nothing to close
	h.nextDaemon()
	if all := h.closedSessions(); len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

// The work of a daemon that hangs up does not wait for that to end.
func TestWorkEndsWithTheSocket(t *testing.T) {
	t.Parallel()
	h := startGuard(t)
	d := h.nextDaemon()
	_, pids := d.startWork(time.Hour)
	began := boottime.Now()
	d.callNoWait("HangUp", 0)
	if took := h.waitDead(pids...) - began; took > exitTimeout {
		t.Errorf("that took %s", took)
	}
}

// Nothing to start is nonsense too, also while there is room for work.
func TestStartOfNothing(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"kind":"start","seq":1}`, `{"kind":"start","seq":1,"spec":{"path":"/bin/true","argv":[],"env":[],"stop_signal":15}}`} {
		h := startGuard(t)
		d := h.nextDaemon()
		call[time.Duration](d, "SetLease", time.Hour)
		d.callNoWait("SendRaw", frame(body))
		if next := h.nextDaemon(); next.pid == d.pid {
			t.Errorf("%s: the same daemon", body)
		}
	}
}

// A process that is traced is not gone before its tracer has buried it: so long the session is not closed.
func TestSessionIsClosedAfterTheWork(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread() // which is the tracer
	defer runtime.UnlockOSThread()
	h := startGuard(t)
	d := h.nextDaemon()
	call[int](d, "SetSession", h.credentials())
	_, pids := d.startWork(time.Hour)
	if _, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pids[0]), 0, 0, 0, 0); e != 0 {
		t.Logf("processes can't be traced here: %v", e)
		return
	}
	syscall.Kill(d.pid, syscall.SIGKILL)
	h.waitDead(append(pids, d.pid)...)
	for end := boottime.Now() + 100*time.Millisecond; boottime.Now() < end; {
		if all := h.closedSessions(); len(all) > 0 {
			t.Errorf("too early: %+v", all)
			break
		}
	}
	eventually(t, "the burial of the work", func() bool {
		var status unix.WaitStatus
		_, err := unix.Wait4(pids[0], &status, unix.WALL|unix.WNOHANG, nil)
		return err != nil || status.Signaled()
	})
	h.nextDaemon()
	d.checkSessionClosed(pids)
}

// What the daemon has handed over last, to release leadership, is there when its session is closed.
func TestTheLastReleaseIsHandedOver(t *testing.T) {
	t.Parallel()
	for name, handed := range map[string][]string{"as leader": {`[1]`, `[2]`}, "no more": {`[1]`, `null`}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startGuard(t)
			d := h.nextDaemon()
			c := h.credentials()
			call[int](d, "SetRelease", json.RawMessage(handed[0])) // without a session there is nothing to release
			call[int](d, "SetSession", c)
			f, err := ReadSessionFile(c.File)
			if err != nil || f.Session.Release != nil {
				t.Errorf("%s, %v", f.Session.Release, err)
			}
			for _, tx := range handed {
				if c.Release = json.RawMessage(tx); tx == "null" {
					c.Release = nil
				}
				call[int](d, "SetRelease", c.Release)
				if f, err := ReadSessionFile(c.File); err != nil || !reflect.DeepEqual(f.Session, c) {
					t.Errorf("the file says %+v (%v), want %+v", f.Session, err, c)
				}
			}
			syscall.Kill(d.pid, syscall.SIGKILL)
			eventually(t, "the end of the session", func() bool { return len(h.closedSessions()) > 0 })
			if got := h.closedSessions()[0].Session; !reflect.DeepEqual(got, c) {
				t.Errorf("the guard has %+v, want %+v", got, c)
			}
		})
	}
}
