package guard

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/testhelper"
)

// startUntraceableWork starts work with a process that cannot be found by its parents, process group, session or environment, as
// some of PostgreSQL's cannot. It returns the pids of the main process, of one in its process group, and of that one.
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

// Each cell of the table in docs/safety.md: which processes are killed at once, and what survives of the work.
func TestSurvivors(t *testing.T) {
	t.Parallel()
	const guard, daemon, keeper = "guard", "daemon", "keeper"
	for _, by := range allContainments {
		for _, killed := range [][]string{{guard}, {daemon}, {keeper}, {guard, daemon}, {guard, keeper}, {daemon, keeper}, {guard, daemon, keeper}} {
			t.Run(fmt.Sprint(by, " without ", strings.Join(killed, ", ")), func(t *testing.T) {
				t.Parallel()
				fx, d := startDaemon(t, "CONTAINMENT="+string(by))
				_, pids := d.startUntraceableWork(time.Hour)
				var lock *cgroup
				if by == CgroupContainment { // so that the guards of other tests do not clear it
					var err error
					if lock, err = openCgroup(fx.cgroups()[0]); err != nil {
						t.Fatal(err)
					}
					defer lock.Close()
				}
				pid := map[string]int{guard: fx.cmd.Process.Pid, daemon: d.pid, keeper: fx.keeperPid()}
				var toKill []int
				for _, role := range killed {
					toKill = append(toKill, pid[role])
				}
				slices.Reverse(toKill)
				fx.killAtOnce(toKill...)
				switch {
				case len(killed) == 3:
					// No process is left to act: only the main process dies, with its parent.
					fx.waitDead(pids[0])
					for _, p := range pids[1:] {
						if !alive(p) {
							t.Errorf("process %d is dead: update the table", p)
						}
					}
				case by == KeeperContainment && slices.Equal(killed, []string{guard, keeper}):
					// The daemon finds processes by their environment; it may find others among the guard's descendants if it is quick.
					fx.waitDead(pids[:2]...)
				default:
					fx.waitDead(pids...)
				}
			})
		}
	}
}

// Whichever of the three processes are stopped, the others kill the work at the end of the lease, if not earlier; even if another
// one is killed as well.
func TestStoppedProcesses(t *testing.T) {
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
				fx, d := startDaemon(t, "CONTAINMENT="+string(by))
				deadline, pids := d.startUntraceableWork(time.Second)
				pid := map[string]int{guard: fx.cmd.Process.Pid, daemon: d.pid, keeper: fx.keeperPid()}
				var toStop []int
				for _, role := range c.stopped {
					toStop = append(toStop, pid[role])
				}
				fx.stopProcesses(toStop...)
				if c.killed != "" {
					syscall.Kill(pid[c.killed], syscall.SIGKILL)
				}
				dead := fx.waitDead(pids...)
				if checkNotLate(t, dead, deadline); slices.Equal(c.stopped, []string{daemon}) && c.killed == "" && dead < deadline {
					t.Errorf("dead %s too early", deadline-dead)
				}
			})
		}
	}
}

// The same holds for a guard that is process 1, as in a container. The daemon cannot kill it, but it can kill its descendants.
func TestGuardIsProcessOne(t *testing.T) {
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
				fx, d := startDaemon(t, "CONTAINMENT="+string(by), "PID_ONE=yes")
				deadline, pids := d.startUntraceableWork(time.Second)
				fail(fx, fx.keeperPid())
				checkNotLate(t, fx.waitDead(pids...), deadline)
			})
		}
	}
}

// Work that enters the PID namespace of another process leaves a keeper, but no control group, as docs/safety.md says.
func TestWorkInAnotherPIDNamespace(t *testing.T) {
	t.Parallel()
	for _, by := range []Containment{CgroupContainment, KeeperContainment} {
		fx := startGuard(t, "CONTAINMENT="+string(by))
		other := exec.Command("unshare", "--pid", "--fork", "--kill-child", "sh", "-c", "exec sleep 1000")
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { other.Process.Kill(); other.Wait() }) // ends the namespace
		var inside []int
		eventually(t, "the namespace", func() bool {
			inside, _ = childrenOf(other.Process.Pid, portionOpened)
			return len(inside) == 1 && strings.HasPrefix(read(fmt.Sprintf("/proc/%d/cmdline", inside[0])), "sleep")
		})
		d := fx.nextDaemon()
		call[time.Duration](d, "SetLease", time.Hour)
		call[int](d, "Start", fx.shell(fmt.Sprintf(`nsenter --target %d --pid sh -c '(setsid sh -c "exec sleep 1001" &)'; exec sleep 1000`, inside[0])))
		var left []int
		eventually(t, "the process there", func() bool {
			left, _ = childrenOf(inside[0], portionOpened)
			return len(left) == 1 && read(fmt.Sprintf("/proc/%d/cmdline", left[0])) == "sleep\x001001\x00"
		})
		call[int](d, "Kill", 0)
		call[ExitInfo](d, "Dead", 0)
		if survives := by == KeeperContainment; alive(left[0]) != survives {
			t.Errorf("%s: alive: %t: update the table", by, !survives)
		}
	}
}

// A kill and its proof open no files: they succeed in processes that cannot open any more files.
func TestKillWithoutFreeDescriptors(t *testing.T) {
	t.Parallel()
	for _, by := range allContainments {
		for _, kill := range []bool{false, true} {
			fx, d := startDaemon(t, "CONTAINMENT="+string(by))
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

// Work that forks faster than its processes can be listed is killed nevertheless. For control groups see
// TestEndOfOneLeadershipLeavesOthers.
func TestForkingWorkDies(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t, "CONTAINMENT=keeper")
	call[time.Duration](d, "SetLease", time.Hour)
	call[int](d, "Start", fx.shell("ROLE=forker FIXTURE_DIR=$D GOMAXPROCS=1 $D/daemon & exec sleep 1000"))
	eventually(t, "twenty forks", func() bool { return len(read(filepath.Join(fx.dir, "forks"))) >= 20 })
	began := boottime.Now()
	call[int](d, "Kill", 0)
	call[ExitInfo](d, "Dead", 0)
	t.Logf("dead after %s", boottime.Now()-began)
	before := len(read(filepath.Join(fx.dir, "forks")))
	eventually(t, "some time", func() bool { return boottime.Now() > began+200*time.Millisecond })
	if after := len(read(filepath.Join(fx.dir, "forks"))); after != before {
		t.Errorf("%d forks after its death", after-before)
	}
}

// forkForever starts this program again in another session and exits; the new process does the same.
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

// A guard without root cannot kill a process that has become root. The daemon gets a report while the work runs, or when it is
// to be killed. While the process lives, the work is not reported dead and no session is closed.
func TestWorkThatCannotBeKilled(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		fx, d := startDaemon(t, "CONTAINMENT=keeper", "USER_ID=65534")
		call[int](d, "SetSession", fx.credentials())
		root := filepath.Join(fx.dir, "root")
		testhelper.CopyProgram(t, root)
		if err := os.Chmod(root, 0o755|os.ModeSetuid); err != nil {
			t.Fatal(err)
		}
		opt := fx.shell("")
		opt.Argv, opt.Env = []string{root}, append(fx.env(), "ROLE=root")
		if killed { // becomes root after the keeper has checked
			opt.Argv = []string{"sh", "-c", "until [ -e $D/go ]; do sleep 0.01; done; exec $D/root"}
		}
		lease := 5 * time.Second // at its end the keeper looks for a later one, and checks
		call[time.Duration](d, "SetLease", lease)
		pid := call[int](d, "Start", opt)
		defer syscall.Kill(pid, syscall.SIGKILL)
		put(t, filepath.Join(fx.dir, "go"), "")
		eventually(t, "the change of user", func() bool { // of all of its user ids
			return strings.Contains(read(fmt.Sprintf("/proc/%d/status", pid)), "Uid:\t0\t0\t0\t0\n")
		})
		if killed {
			call[int](d, "Kill", 0)
		}
		var reason string
		eventually(t, "the report", func() bool {
			if !killed {
				call[time.Duration](d, "SetLease", lease)
			}
			reason = call[string](d, "Unkillable", 0)
			return reason != ""
		})
		if !strings.Contains(reason, fmt.Sprintf("no permission to signal process %d of the work", pid)) || !strings.Contains(reason, "user 0") {
			t.Errorf("the daemon got %q", reason)
		}
		call[int](d, "Kill", 0)
		syscall.Kill(d.pid, syscall.SIGKILL)
		fx.waitDead(d.pid)
		for end := boottime.Now() + 500*time.Millisecond; boottime.Now() < end; {
			if all := fx.closedSessions(); len(all) > 0 || !alive(pid) {
				t.Fatalf("closed sessions: %+v, work alive: %t", all, alive(pid))
			}
		}
		syscall.Kill(pid, syscall.SIGKILL)
		fx.nextDaemon()
		d.checkSessionClosed([]int{pid})
	}
}
