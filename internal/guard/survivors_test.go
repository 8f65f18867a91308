package guard

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/boottime"
)

// bare is work whose processes can't be known by their parents, groups, sessions or environments, as PostgreSQL's: beside
// its main process there is one in its group, and one that has left everything behind.
func (d *remoteDaemon) startUntraceableWork(lease time.Duration) (deadline time.Duration, pids []int) {
	d.t.Helper()
	call[time.Duration](d, "SetLease", time.Hour)
	call[int](d, "Start", d.shell(`
		echo $$ >$D/main
		sh -c 'echo $$ >$D/member; exec sleep 1000' &
		(env -i setsid sh -c 'sh -c "echo \$\$ >'$D'/hidden; exec sleep 1000" &' &)
		exec sleep 1000`))
	for _, name := range []string{"main", "member", "hidden"} {
		own := d.pidFromFile(name)
		eventually(d.t, name, func() bool {
			all := descendants(d.keeperPid())
			i := slices.IndexFunc(all, func(p int) bool { return innermostPid(p) == own })
			if i >= 0 {
				pids = append(pids, all[i])
			}
			return i >= 0
		})
	}
	d.rememberStart(pids...)
	d.t.Cleanup(func() {
		for _, pid := range pids {
			if d.alive(pid) {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	return d.setConfirmedLease(lease), pids
}

// The table of docs/safety.md: who is killed, and what of the work survives at once. Each cell is tried.
func TestSurvivors(t *testing.T) {
	t.Parallel()
	const guard, daemon, keeper = "guard", "daemon", "keeper"
	for _, by := range allContainments {
		for _, killed := range [][]string{{guard}, {daemon}, {keeper}, {guard, daemon}, {guard, keeper}, {daemon, keeper}, {guard, daemon, keeper}} {
			t.Run(fmt.Sprint(by, " without ", strings.Join(killed, ", ")), func(t *testing.T) {
				t.Parallel()
				fx := startGuard(t, "CONTAINMENT="+string(by))
				d := fx.nextDaemon()
				_, pids := d.startUntraceableWork(time.Hour)
				var lock *cgroup
				if by == CgroupContainment { // lest the guards of other tests clear it away
					var err error
					if lock, err = openCgroup(fx.cgroups()[0]); err != nil {
						t.Fatal(err)
					}
					defer lock.close()
				}
				pid := map[string]int{guard: fx.cmd.Process.Pid, daemon: d.pid, keeper: fx.keeperPid()}
				var doomed []int
				for _, who := range killed {
					doomed = append(doomed, pid[who])
				}
				slices.Reverse(doomed)
				fx.killAtOnce(doomed...)
				switch {
				case by != PidnsContainment && len(killed) == 3:
					// Nobody is left to act: only the main process dies, with its parent.
					fx.waitDead(pids[0])
					for _, p := range pids[1:] {
						if !alive(p) {
							t.Errorf("%d is dead: the table can say so", p)
						}
					}
				case by == KeeperContainment && slices.Equal(killed, []string{guard, keeper}):
					// The daemon finds what has kept its environment, and may find the rest below the guard if it is quick.
					fx.waitDead(pids[:2]...)
				default:
					fx.waitDead(pids...)
				}
			})
		}
	}
}

// Whoever of the three stands still, the others end the work with its lease; and if one of them dies as well, at once or
// then.
func TestStandingStill(t *testing.T) {
	t.Parallel()
	const guard, daemon, keeper = "guard", "daemon", "keeper"
	for _, by := range allContainments {
		for _, c := range []struct {
			stopped []string
			killed  string
		}{
			{stopped: []string{guard}}, {stopped: []string{daemon}}, {stopped: []string{keeper}},
			{stopped: []string{guard, daemon}}, {stopped: []string{guard, keeper}}, {stopped: []string{daemon, keeper}},
			{stopped: []string{guard}, killed: daemon}, {stopped: []string{guard}, killed: keeper},
			{stopped: []string{daemon}, killed: guard}, {stopped: []string{daemon}, killed: keeper},
			{stopped: []string{keeper}, killed: daemon}, {stopped: []string{keeper}, killed: guard},
		} {
			t.Run(fmt.Sprint(by, ", stopped: ", c.stopped, ", killed: ", c.killed), func(t *testing.T) {
				t.Parallel()
				fx := startGuard(t, "CONTAINMENT="+string(by))
				d := fx.nextDaemon()
				deadline, pids := d.startUntraceableWork(time.Second)
				pid := map[string]int{guard: fx.cmd.Process.Pid, daemon: d.pid, keeper: fx.keeperPid()}
				var still []int
				for _, who := range c.stopped {
					still = append(still, pid[who])
				}
				fx.stopProcesses(still...)
				if c.killed != "" {
					syscall.Kill(pid[c.killed], syscall.SIGKILL)
				}
				checkNotLate(t, fx.waitDead(pids...), deadline)
			})
		}
	}
}

// A guard that is process 1, as in a container, is no exception: the daemon can't kill it, but what is below it.
func TestTheGuardIsProcessOne(t *testing.T) {
	t.Parallel()
	for _, by := range allContainments {
		for name, fail := range map[string]func(fx *fixture, keeper int){
			"guard stopped":            func(fx *fixture, _ int) { fx.stopProcesses(fx.cmd.Process.Pid) },
			"guard and keeper stopped": func(fx *fixture, keeper int) { fx.stopProcesses(fx.cmd.Process.Pid, keeper) },
			"keeper killed":            func(_ *fixture, keeper int) { syscall.Kill(keeper, syscall.SIGKILL) },
			"guard killed":             func(fx *fixture, _ int) { syscall.Kill(fx.cmd.Process.Pid, syscall.SIGKILL) },
		} {
			t.Run(fmt.Sprint(by, ", ", name), func(t *testing.T) {
				t.Parallel()
				fx := startGuard(t, "CONTAINMENT="+string(by), "FIRST=yes")
				d := fx.nextDaemon()
				deadline, pids := d.startUntraceableWork(time.Second)
				fail(fx, fx.keeperPid())
				checkNotLate(t, fx.waitDead(pids...), deadline)
			})
		}
	}
}

// A user who is not root may have a PID namespace too, in a user namespace; the work has no rights there.
func TestAPIDNamespaceOfAnotherUser(t *testing.T) {
	t.Parallel()
	fx := startGuard(t, "CONTAINMENT=pidns", "USER_ID=65534")
	d := fx.nextDaemon()
	_, pids := d.startUntraceableWork(time.Hour)
	for _, set := range []string{"CapEff:\t0000000000000000\n", "CapAmb:\t0000000000000000\n"} {
		if text := read(fmt.Sprintf("/proc/%d/status", pids[0])); !strings.Contains(text, set) {
			t.Errorf("not %q in\n%s", set, text)
		}
	}
	fx.killAtOnce(d.pid, fx.keeperPid(), fx.cmd.Process.Pid)
	fx.waitDead(pids...)
}

// Nothing that the end of the work needs is opened only then: a process that may open nothing any more kills, and proves it.
func TestNoDescriptorsLeft(t *testing.T) {
	t.Parallel()
	for _, by := range allContainments {
		for _, kill := range []bool{false, true} {
			fx := startGuard(t, "CONTAINMENT="+string(by))
			d := fx.nextDaemon()
			call[int](d, "SetSession", fx.credentials())
			deadline, pids := d.startUntraceableWork(500 * time.Millisecond)
			for _, pid := range []int{fx.cmd.Process.Pid, d.pid, fx.keeperPid()} {
				if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{}, nil); err != nil {
					t.Fatal(err)
				}
			}
			if kill {
				fx.signalGuard(syscall.SIGKILL)
			} else {
				syscall.Kill(d.pid, syscall.SIGSTOP)
			}
			checkNotLate(t, fx.waitDead(pids...), deadline)
			syscall.Kill(d.pid, syscall.SIGCONT)
			if e := call[ExitInfo](d, "Dead", 0); !strings.Contains(e.Status, "killed") {
				t.Errorf("%s: %+v", by, e)
			}
		}
	}
}

// What forks faster than it can be looked for dies all the same.
func TestForkingWorkDies(t *testing.T) {
	t.Parallel()
	for _, by := range allContainments {
		fx := startGuard(t, "CONTAINMENT="+string(by))
		d := fx.nextDaemon()
		call[time.Duration](d, "SetLease", time.Hour)
		call[int](d, "Start", fx.shell("ROLE=forker FIXTURE_DIR=$D GOMAXPROCS=1 $D/daemon & exec sleep 1000"))
		eventually(t, "a hundred forks", func() bool { return len(read(filepath.Join(fx.dir, "forks"))) >= 100 })
		began := boottime.Now()
		call[int](d, "Kill", 0)
		call[ExitInfo](d, "Dead", 0)
		t.Logf("%s: dead after %s", by, boottime.Now()-began)
		before := len(read(filepath.Join(fx.dir, "forks")))
		eventually(t, "some time", func() bool { return boottime.Now() > began+200*time.Millisecond })
		if after := len(read(filepath.Join(fx.dir, "forks"))); after != before {
			t.Errorf("%s: it has forked %d times after its death", by, after-before)
		}
	}
}

// fork starts itself anew in another session and ends, for ever.
func forkForever(dir string) int {
	f, err := os.OpenFile(filepath.Join(dir, "forks"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 1
	}
	io.WriteString(f, ".")
	_, err = syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{Env: os.Environ(), Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return 1
	}
	return 0
}

// A guard that is not root can't kill what has become root. The daemon learns of it while the work runs, or when it is to be
// killed; nothing is called dead, and no session is closed, while it lives.
func TestWorkThatCannotBeKilled(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		fx := startGuard(t, "CONTAINMENT=keeper", "USER_ID=65534")
		d := fx.nextDaemon()
		call[int](d, "SetSession", fx.credentials())
		call[time.Duration](d, "SetLease", time.Hour)
		root := filepath.Join(fx.dir, "root")
		copyProgram(t, root)
		if err := os.Chmod(root, 0o755|os.ModeSetuid); err != nil {
			t.Fatal(err)
		}
		opt := fx.shell("")
		opt.Command, opt.Env = []string{root}, append(fx.env(), "ROLE=root")
		if killed { // after its start, when the keeper has looked
			opt.Command = []string{"sh", "-c", "until [ -e $D/go ]; do sleep 0.01; done; exec $D/root"}
		}
		pid := call[int](d, "Start", opt)
		defer syscall.Kill(pid, syscall.SIGKILL)
		if err := os.WriteFile(filepath.Join(fx.dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the change of user", func() bool { // of all of its user ids
			return strings.Contains(read(fmt.Sprintf("/proc/%d/status", pid)), "Uid:\t0\t0\t0\t0\n")
		})
		if killed {
			call[int](d, "Kill", 0)
		}
		var why string
		eventually(t, "the alarm", func() bool {
			if !killed {
				call[time.Duration](d, "SetLease", time.Hour) // with each the keeper looks
			}
			why = call[string](d, "Unkillable", 0)
			return why != ""
		})
		if !strings.Contains(why, fmt.Sprintf("no permission to signal process %d of the work", pid)) || !strings.Contains(why, "user 0") {
			t.Errorf("the daemon is told: %s", why)
		}
		call[int](d, "Kill", 0)
		syscall.Kill(d.pid, syscall.SIGKILL)
		fx.waitDead(d.pid)
		for end := boottime.Now() + 500*time.Millisecond; boottime.Now() < end; {
			if all := fx.closedSessions(); len(all) > 0 || !alive(pid) {
				t.Fatalf("closed %+v while the work lives (%t)", all, alive(pid))
			}
		}
		syscall.Kill(pid, syscall.SIGKILL)
		fx.nextDaemon()
		d.checkSessionClosed([]int{pid})
	}
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(f, from)
	if closed := f.Close(); err != nil || closed != nil {
		t.Fatal(err, closed)
	}
}
