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

	"zkelectd/internal/sys/boottime"
)

// frame returns a message as it is sent over the socket.
func frame(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// daemonFailures are the ways in which a daemon can fail, with the guard's exit status if the daemon is not restarted.
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
	"incomplete start": {func(d *remoteDaemon) { d.callNoWait("SendRaw", frame(`{"kind":"prepare","leadership":1,"seq":9}`)) }, 128 + 9},
	"frame too long":   {func(d *remoteDaemon) { d.callNoWait("SendRaw", []byte{1, 0, 0, 0}) }, 128 + 9},
	"start while busy": {func(d *remoteDaemon) { d.callNoWait("StartUnchecked", d.shell("true")) }, 128 + 9},
	"hangs up":         {func(d *remoteDaemon) { d.callNoWait("HangUp", 0) }, 128 + 9},
	"no heartbeat":     {func(d *remoteDaemon) { call[int](d, "Heartbeat", 50*time.Millisecond) }, 128 + 9},
	"stopped": {func(d *remoteDaemon) {
		call[int](d, "Heartbeat", 50*time.Millisecond)
		syscall.Kill(d.pid, syscall.SIGSTOP)
	}, 128 + 9},
	"its own exit code": {func(d *remoteDaemon) { d.callNoWait("Exit", 3) }, 3},
}

// callNoWait calls a method that may be the last thing the daemon does.
func (d *remoteDaemon) callNoWait(method string, arg any) {
	d.conn.Go("Daemon."+method, arg, new(int), make(chan *rpc.Call, 1))
}

// checkSessionClosed checks that only the dead daemon's session was closed, when no work was running any more.
func (d *remoteDaemon) checkSessionClosed(pids []int) {
	d.t.Helper()
	all := d.closedSessions()
	if len(all) != 1 {
		d.t.Fatalf("%d sessions were closed", len(all))
	}
	if s := all[0]; !reflect.DeepEqual(s.Session, d.credentials()) || len(s.StillAlive) > 0 || s.DaemonAlive {
		d.t.Errorf("%+v", s)
	}
	for _, pid := range append(pids, d.pid) {
		if alive(pid) {
			d.t.Errorf("process %d is still alive", pid)
		}
	}
	eventually(d.t, "the removal of the session file", func() bool {
		_, err := os.Stat(d.credentials().File)
		return os.IsNotExist(err)
	})
}

// First the work is killed, then the session is closed, then a new daemon is started.
func TestFailedDaemonIsReplaced(t *testing.T) {
	t.Parallel()
	for name, c := range daemonFailures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := startGuard(t)
			d := fx.nextDaemon()
			call[int](d, "SetSession", fx.credentials())
			_, pids := d.startWork(time.Hour)
			c.end(d)
			next := fx.nextDaemon()
			if next.pid == d.pid {
				t.Error("the daemon was not replaced")
			}
			d.checkSessionClosed(pids)
			if _, err := tryCall[int](next, "Start", fx.shell("true")); err == nil || err.Error() != "there is no lease" {
				t.Errorf("the new daemon has the old one's lease: %v", err)
			}
			call[time.Duration](next, "SetLease", time.Hour)
			call[int](next, "Start", fx.shell("exit 0"))
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
			fx := startGuard(t, "RESPAWN=no")
			d := fx.nextDaemon()
			call[int](d, "SetSession", fx.credentials())
			_, pids := d.startWork(time.Hour)
			c.end(d)
			if status := fx.guardExitStatus(); status != c.status {
				t.Errorf("exit status %d", status)
			}
			d.checkSessionClosed(pids)
		})
	}
}

// Exit statuses 0 and 1 are final. The daemon has closed its session itself.
func TestDaemonExits(t *testing.T) {
	t.Parallel()
	for status := range 2 {
		fx := startGuard(t)
		d := fx.nextDaemon()
		call[int](d, "SetSession", fx.credentials())
		call[int](d, "ClearSession", 0)
		d.callNoWait("Exit", status)
		if got := fx.guardExitStatus(); got != status {
			t.Errorf("exit status %d instead of %d", got, status)
		}
		if all := fx.closedSessions(); len(all) > 0 {
			t.Errorf("%+v", all)
		}
		if log := read(filepath.Join(fx.dir, "log")); strings.Contains(log, "started again") {
			t.Error(log)
		}
	}
}

// Work does not survive a daemon that exits with status 0 while the work runs.
func TestDaemonExitsWithRunningWork(t *testing.T) {
	t.Parallel()
	fx := startGuard(t)
	d := fx.nextDaemon()
	call[int](d, "SetSession", fx.credentials())
	_, pids := d.startWork(time.Hour)
	d.callNoWait("Exit", 0)
	if got := fx.guardExitStatus(); got != 0 {
		t.Errorf("exit status %d", got)
	}
	d.checkSessionClosed(pids)
}

// A session that cannot be closed is left to expire. The daemon is restarted nevertheless, and 'zkelectd release' may try again.
func TestSessionThatCannotBeClosed(t *testing.T) {
	t.Parallel()
	fx := startGuard(t)
	d := fx.nextDaemon()
	c := fx.credentials()
	c.ID = unclosableID
	call[int](d, "SetSession", c)
	syscall.Kill(d.pid, syscall.SIGKILL)
	next := fx.nextDaemon()
	if f, err := ReadSessionFile(c.File); err != nil || f.Session.ID != unclosableID {
		t.Errorf("%+v, %v", f, err)
	}
	syscall.Kill(next.pid, syscall.SIGKILL) // it has no session yet
	fx.nextDaemon()
	if all := fx.closedSessions(); len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

// What a hook or a probe of a dead daemon has started is dead before a pending hook runs and before the session is
// closed, even if it has left its process group and its parent.
func TestGuardEndsWhatItInherits(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"same group":      "sh -c 'echo $$ >$D/left; exec sleep 1000' & wait",
		"another session": `setsid sh -c 'sh -c "echo \$\$ >$D/left; exec sleep 1000" &'; exec sleep 1000`,
	} {
		fx := startGuard(t)
		d := fx.nextDaemon()
		call[int](d, "SetSession", fx.credentials())
		check := "kill -0 $(cat $D/left) && echo >$D/beside; echo >$D/ran"
		hook := Spec{Path: "/bin/sh", Argv: []string{"sh", "-c", check}, Env: fx.env(), Timeout: time.Minute}
		call[int](d, "SetPendingHooks", []Spec{hook})
		call[int](d, "Hook", fx.shell(script))
		left := fx.pidFromFile("left")
		syscall.Kill(d.pid, syscall.SIGKILL)
		fx.nextDaemon()
		d.checkSessionClosed([]int{left})
		if ran, beside := read(fx.dir+"/ran") != "", read(fx.dir+"/beside") != ""; !ran || beside {
			t.Errorf("%s: the pending hook ran: %t; beside what was left: %t", name, ran, beside)
		}
	}
}

// The work of a daemon that closes its socket is killed at once, not only when the daemon exits.
func TestWorkIsKilledWhenSocketCloses(t *testing.T) {
	t.Parallel()
	fx := startGuard(t)
	d := fx.nextDaemon()
	_, pids := d.startWork(time.Hour)
	began := boottime.Now()
	d.callNoWait("HangUp", 0)
	if took := fx.waitDead(pids...) - began; took > exitTimeout {
		t.Errorf("it took %s", took)
	}
}

// A start message without a program violates the protocol, even while no work runs.
func TestStartWithoutProgram(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"kind":"prepare","leadership":1,"seq":1}`, `{"kind":"prepare","leadership":1,"seq":1,"spec":{"path":"/bin/true","argv":[],"env":[],"stop_signal":15}}`} {
		fx := startGuard(t)
		d := fx.nextDaemon()
		call[time.Duration](d, "SetLease", time.Hour)
		d.callNoWait("SendRaw", frame(body))
		if next := fx.nextDaemon(); next.pid == d.pid {
			t.Errorf("%s: the daemon was not replaced", body)
		}
	}
}

// A traced process exists until its tracer has waited for it; until then the session is not closed.
func TestSessionIsClosedAfterTheWork(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread() // this thread is the tracer
	defer runtime.UnlockOSThread()
	fx := startGuard(t)
	d := fx.nextDaemon()
	call[int](d, "SetSession", fx.credentials())
	_, pids := d.startWork(time.Hour)
	if _, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pids[0]), 0, 0, 0, 0); e != 0 {
		t.Logf("cannot trace processes here: %v", e)
		return
	}
	syscall.Kill(d.pid, syscall.SIGKILL)
	fx.waitDead(append(pids, d.pid)...)
	for end := boottime.Now() + 100*time.Millisecond; boottime.Now() < end; {
		if all := fx.closedSessions(); len(all) > 0 {
			t.Errorf("too early: %+v", all)
			break
		}
	}
	eventually(t, "wait4 for the work", func() bool {
		var status unix.WaitStatus
		_, err := unix.Wait4(pids[0], &status, unix.WALL|unix.WNOHANG, nil)
		return err != nil || status.Signaled()
	})
	fx.nextDaemon()
	d.checkSessionClosed(pids)
}

// When the session is closed, the guard has the last release transaction that the daemon has set.
func TestLastReleaseIsPassedToClose(t *testing.T) {
	t.Parallel()
	for name, releases := range map[string][]string{"leader": {`[1]`, `[2]`}, "no longer leader": {`[1]`, `null`}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := startGuard(t)
			d := fx.nextDaemon()
			c := fx.credentials()
			call[int](d, "SetSession", c)
			for _, tx := range releases {
				var release json.RawMessage
				if c.Releases = nil; tx != "null" {
					release = json.RawMessage(tx)
					c.Releases = []json.RawMessage{release}
				}
				call[int](d, "SetRelease", release)
				if f, err := ReadSessionFile(c.File); err != nil || !reflect.DeepEqual(f.Session, c) {
					t.Errorf("the file says %+v (%v), want %+v", f.Session, err, c)
				}
			}
			syscall.Kill(d.pid, syscall.SIGKILL)
			eventually(t, "the closing of the session", func() bool { return len(fx.closedSessions()) > 0 })
			if got := fx.closedSessions()[0].Session; !reflect.DeepEqual(got, c) {
				t.Errorf("the guard has %+v, want %+v", got, c)
			}
		})
	}
}
