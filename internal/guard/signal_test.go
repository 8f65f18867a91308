package guard

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSignalsReachTheDaemon(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
	_, pids := d.startWork(time.Hour)
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGINT, syscall.SIGTERM} {
		fx.signalGuard(sig)
		if got := call[int](d, "Signal", 0); got != int(sig) {
			t.Errorf("got signal %d, want %d", got, sig)
		}
		fx.checkAliveUntil(0, pids...) // the daemon decides when to stop the work
	}
	call[int](d, "Kill", 0)
	call[ExitInfo](d, "Dead", 0)
	d.callNoWait("Exit", 0)
	if status := fx.guardExitStatus(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// A request to reload that arrives while the daemon starts does not end it: the daemon gets it as soon as it handles
// signals.
func TestReloadWhileTheDaemonStarts(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1} {
		fx := startGuard(t)
		eventually(t, "the start of the daemon", func() bool {
			all, _ := childrenOf(fx.cmd.Process.Pid, portionOpened)
			return slices.ContainsFunc(all, func(pid int) bool {
				return !slices.Contains(commandLine(pid), keeperArgument)
			})
		})
		fx.signalGuard(sig)
		d := fx.nextDaemon()
		if got := call[int](d, "Signal", 0); got != int(sig) {
			t.Errorf("got signal %d, want %d", got, sig)
		}
		if log := read(filepath.Join(fx.dir, "log")); strings.Contains(log, "the daemon has died") {
			t.Errorf("%s has ended the daemon", sig)
		}
	}
}

// A guard that is stopped while it rehearses a kill, before it has started a daemon, exits.
func TestStopDuringTheRehearsal(t *testing.T) {
	t.Parallel()
	for range 3 {
		fx := startGuard(t)
		eventually(t, "a keeper", func() bool { return len(descendants(fx.cmd.Process.Pid)) > 0 })
		fx.signalGuard(syscall.SIGTERM)
		fx.guardExitStatus()
	}
}

// While the daemon cannot be started the guard keeps trying, and it can be stopped.
func TestDaemonThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
	link := filepath.Join(fx.dir, "daemon")
	hide := func() {
		if err := os.Rename(link, link+".hidden"); err != nil {
			t.Fatal(err)
		}
		syscall.Kill(d.pid, syscall.SIGKILL)
	}
	failures := func() int { return strings.Count(read(filepath.Join(fx.dir, "log")), "cannot restart the daemon") }
	hide()
	eventually(t, "two failures", func() bool { return failures() >= 2 })
	if err := os.Rename(link+".hidden", link); err != nil {
		t.Fatal(err)
	}
	d = fx.nextDaemon()
	before := failures()
	hide()
	eventually(t, "another", func() bool { return failures() > before })
	fx.signalGuard(syscall.SIGTERM)
	if status := fx.guardExitStatus(); status != 128+15 {
		t.Errorf("exit status %d", status)
	}
}
