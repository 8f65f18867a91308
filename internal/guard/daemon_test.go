package guard

import (
	"encoding/binary"
	"net/rpc"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/test/testhelper"

	"zkelectd/internal/sys/boottime"
)

// frame returns a message as it is sent over the socket.
func frame(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// daemonFailures are the ways in which a daemon can fail.
var daemonFailures = map[string]func(d *remoteDaemon){
	"killed":       func(d *remoteDaemon) { syscall.Kill(d.pid, syscall.SIGKILL) },
	"panic":        func(d *remoteDaemon) { d.callNoWait("Exit", 2) },
	"no JSON":      func(d *remoteDaemon) { d.callNoWait("SendRaw", frame("nonsense")) },
	"hangs up":     func(d *remoteDaemon) { d.callNoWait("HangUp", 0) },
	"no heartbeat": func(d *remoteDaemon) { call[int](d, "Heartbeat", 50*time.Millisecond) },
	"stopped": func(d *remoteDaemon) {
		call[int](d, "Heartbeat", 50*time.Millisecond)
		syscall.Kill(d.pid, syscall.SIGSTOP)
	},
	"its own exit code": func(d *remoteDaemon) { d.callNoWait("Exit", 3) },
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
	for name, fail := range daemonFailures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx, d := startDaemon(t)
			call[int](d, "SetSession", fx.credentials())
			_, pids := d.startWork(time.Hour)
			fail(d)
			next := fx.nextDaemon()
			if next.pid == d.pid {
				t.Error("the daemon was not replaced")
			}
			d.checkSessionClosed(pids)
			hung := slices.Contains([]string{"hangs up", "no heartbeat", "stopped"}, name)
			if log := read(filepath.Join(fx.dir, "log")); strings.Contains(log, "killing the daemon: it is hung") != hung {
				t.Errorf("log: %s", log)
			}
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

// A session that cannot be closed is left to expire. The daemon is restarted nevertheless, and 'zkelectd release' may try again.
func TestSessionThatCannotBeClosed(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
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
		fx, d := startDaemon(t)
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

// The session of a dead daemon is closed while an optional hook still runs, and although it fails then. The next daemon
// starts after it.
func TestSessionIsClosedBesideAnOptionalHook(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
	call[int](d, "SetSession", fx.credentials())
	hook := func(script string, optional bool) Spec {
		return Spec{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: fx.env()[:2], Timeout: time.Minute, Optional: optional}
	}
	slow := "echo >$D/began; while [ ! -e $D/go-on ]; do sleep 0.01; done; echo >$D/ended; exit 1"
	call[int](d, "SetPendingHooks", []Spec{hook("echo >$D/ran", false), hook(slow, true)})
	_, pids := d.startWork(time.Hour)
	syscall.Kill(d.pid, syscall.SIGKILL)
	eventually(t, "the end of the session", func() bool { return len(fx.closedSessions()) == 1 })
	if read(fx.dir+"/ran") == "" {
		t.Error("the hook before it has not run")
	}
	eventually(t, "the optional hook", func() bool { return read(fx.dir+"/began") != "" })
	put(t, fx.dir+"/go-on", "yes")
	fx.nextDaemon()
	if read(fx.dir+"/ended") == "" {
		t.Error("the next daemon has started before the optional hook had ended")
	}
	d.checkSessionClosed(pids)
}

// A pending hook that cannot be killed does not keep the next daemon from being started. Its session is left to expire, and the
// group is that of a survivor until the hook is dead.
func TestPendingHookSurvives(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
	call[int](d, "SetSession", fx.credentials())
	script := "echo $$ >$D/hook; exec sleep 1000"
	hook := Spec{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: fx.env(), Timeout: 2 * time.Second}
	call[int](d, "SetPendingHooks", []Spec{hook})
	syscall.Kill(d.pid, syscall.SIGKILL)
	release := testhelper.HangOnDeath(t, fx.pidFromFile("hook"))
	next := fx.nextDaemon()
	if names := call[[]string](next, "Survivors", 0); !slices.Equal(names, []string{"g"}) {
		t.Errorf("the next daemon knows of %q", names)
	}
	if all := fx.closedSessions(); len(all) > 0 {
		t.Errorf("the session was closed: %+v", all)
	}
	release()
	eventually(t, "the end of the survivor", func() bool { return len(call[[]string](next, "Survivors", 0)) == 0 })
}

// A traced process exists until its tracer has waited for it; until then the session is not closed.
func TestSessionIsClosedAfterTheWork(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread() // this thread is the tracer
	defer runtime.UnlockOSThread()
	fx, d := startDaemon(t)
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
