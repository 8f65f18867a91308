package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/testhelper"
)

// use makes the daemon use the leadership with a name from now on.
func (d *remoteDaemon) use(name string) { call[int](d, "Use", name) }

// startIn starts work in the leadership with a name under a long lease. Its script gets $W, and it writes its pid to $D/$W first.
// It returns the pid of the main process.
func (d *remoteDaemon) startIn(name, script string) int {
	d.t.Helper()
	d.use(name)
	os.Remove(filepath.Join(d.dir, name))
	call[time.Duration](d, "SetLease", time.Hour)
	opt := d.shell("echo $$ >$D/$W; " + script)
	opt.Env = append(opt.Env, "W="+name)
	call[int](d, "Start", opt)
	pid := d.pidFromFile(name)
	d.rememberStart(pid)
	return pid
}

// withSeveralGroups calls f with a guard that can run the works of several groups, and its daemon, in parallel with other tests.
func withSeveralGroups(t *testing.T, f func(t *testing.T, fx *fixture, d *remoteDaemon)) {
	t.Parallel()
	fx := startGuard(t, "CONTAINMENT=cgroup")
	f(t, fx, fx.nextDaemon())
}

// Leaderships with a fork bomb, with work that ignores TERM, and with work that does not die end without any effect on another.
func TestEndOfOneLeadershipLeavesOthers(t *testing.T) {
	withSeveralGroups(t, func(t *testing.T, fx *fixture, d *remoteDaemon) {
		untouched := d.startIn("untouched", `(setsid sh -c 'sh -c "echo \$\$ >$D/orphan; exec sleep 1000" &' &); exec sleep 1000`)
		bystanders := []int{untouched, fx.pidFromFile("orphan")}
		fx.rememberStart(bystanders...)
		d.startIn("bomb", "ROLE=forker FIXTURE_DIR=$D GOMAXPROCS=1 $D/daemon & exec sleep 1000")
		stubborn := d.startIn("stubborn", "trap '' TERM; while :; do sleep 0.01; done")
		hung := d.startIn("hung", "exec sleep 1000")
		release := testhelper.HangOnDeath(t, hung)
		eventually(t, "twenty forks", func() bool { return len(read(filepath.Join(fx.dir, "forks"))) >= 20 })

		d.use("hung")
		call[int](d, "Kill", 0)
		d.use("bomb")
		call[int](d, "Kill", 0)
		call[ExitInfo](d, "Dead", 0)
		before := len(read(filepath.Join(fx.dir, "forks")))
		d.use("stubborn")
		call[int](d, "Stop", 50*time.Millisecond)
		call[ExitInfo](d, "Dead", 0)
		fx.waitDead(stubborn)
		d.use("hung")
		eventually(t, "the report", func() bool { return call[string](d, "Unkillable", 0) != "" })
		release()
		call[ExitInfo](d, "Dead", 0)
		if after := len(read(filepath.Join(fx.dir, "forks"))); after != before {
			t.Errorf("%d forks after the death of the bomb", after-before)
		}
		fx.checkAliveUntil(boottime.Now(), bystanders...)
		d.startIn("stubborn", "exec sleep 1000") // the keeper still works
		d.use("untouched")
		call[int](d, "Kill", 0)
		call[ExitInfo](d, "Dead", 0)
		fx.waitDead(bystanders...)
	})
}

// A lease that ends, or is withdrawn, kills the work of its leadership only.
func TestLeaseEndsOneLeadership(t *testing.T) {
	withSeveralGroups(t, func(t *testing.T, fx *fixture, d *remoteDaemon) {
		a, b, c := d.startIn("a", "exec sleep 1000"), d.startIn("b", "exec sleep 1000"), d.startIn("c", "exec sleep 1000")
		d.use("b")
		deadline := d.setConfirmedLease(300 * time.Millisecond)
		d.use("a")
		d.setConfirmedLease(time.Hour) // extends a, and nothing else
		checkNotLate(t, fx.waitDead(b), deadline)
		d.use("c")
		call[time.Duration](d, "SetLease", 0)
		fx.waitDead(c)
		fx.checkAliveUntil(deadline+500*time.Millisecond, a)
	})
}

// Nothing that is sent for an abandoned leadership has an effect: no lease revives it, and it gets no more work. Its hooks run
// before it counts as gone. A new instance of its group starts work only when the old work is dead.
func TestAbandonedLeadership(t *testing.T) {
	withSeveralGroups(t, func(t *testing.T, fx *fixture, d *remoteDaemon) {
		other := d.startIn("other", "exec sleep 1000")
		old := d.startIn("g", "exec sleep 1000")
		hook := Spec{Path: "/bin/sh", Argv: []string{"sh", "-c", "kill -0 " + fmt.Sprint(old) + " 2>/dev/null; echo $? >$D/hook"}, Env: fx.env(), Timeout: time.Minute}
		call[int](d, "SetPendingHooks", []Spec{hook})
		release := testhelper.HangOnDeath(t, old)
		call[int](d, "Abandon", 0)
		call[time.Duration](d, "Extend", time.Hour)
		if _, err := tryCall[int](d, "Start", fx.shell("echo $$ >$D/ran")); err == nil || !strings.Contains(err.Error(), ErrAbandoned.Error()) {
			t.Errorf("the client starts work: %v", err)
		}
		call[int](d, "PrepareUnchecked", fx.shell("echo $$ >$D/ran"))
		call[int](d, "Replace", "g")
		call[time.Duration](d, "SetLease", time.Hour)
		if _, err := tryCall[int](d, "Start", fx.shell("echo $$ >$D/ran")); err == nil || !strings.Contains(err.Error(), errStillRuns.Error()) {
			t.Errorf("a new instance starts work: %v", err)
		}
		release()
		fx.waitDead(old)
		eventually(t, "the hook", func() bool { return read(filepath.Join(fx.dir, "hook")) != "" })
		if text := strings.TrimSpace(read(filepath.Join(fx.dir, "hook"))); text == "0" {
			t.Error("the hook ran before the work was dead")
		}
		eventually(t, "a start of the new instance", func() bool {
			_, err := tryCall[int](d, "Start", fx.shell("exec sleep 1000"))
			return err == nil
		})
		if read(fx.dir+"/ran") != "" {
			t.Error("it ran")
		}
		fx.checkAliveUntil(boottime.Now(), other)
	})
}

// Dead is closed once nothing is left, and the guard forgets what was closed.
func TestAbandonedLeadershipIsGone(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
	call[int](d, "SetSession", fx.credentials())
	pid := d.startIn("g", "exec sleep 1000")
	hook := Spec{Path: "/bin/sh", Argv: []string{"sh", "-c", "sleep 0.2; echo >$D/hook"}, Env: fx.env(), Timeout: time.Minute}
	call[int](d, "SetPendingHooks", []Spec{hook})
	call[int](d, "Abandon", 0)
	call[int](d, "Gone", 0)
	if fx.alive(pid) {
		t.Error("it is alive")
	}
	if _, err := os.Stat(filepath.Join(fx.dir, "hook")); err != nil {
		t.Errorf("its hook has not run: %v", err)
	}
	call[int](d, "Replace", "g") // without work
	call[int](d, "Abandon", 0)
	call[int](d, "Gone", 0)
	call[int](d, "Close", 0)
	for range 3 * maxLeaderships / 2 {
		call[int](d, "Replace", "g")
		call[int](d, "Close", 0)
		call[int](d, "Gone", 0)
	}
	call[int](d, "Replace", "g")
	d.startIn("g", "exec sleep 1000")
	eventually(t, "the removal of the files", func() bool {
		records, _, err := leadershipFiles(fx.credentials().File)
		return err == nil && len(records) == 2 // that of the first one, which was not closed, and of the last one
	})
}

// When a daemon with forty works is killed, all of them die at once, their hooks run, each release is sent with the session's end,
// and only then the next daemon starts.
func TestKilledDaemonWithFortyWorks(t *testing.T) {
	t.Parallel()
	const works = 40
	fx, d := startDaemon(t, "CONTAINMENT=cgroup")
	c := fx.credentials()
	call[int](d, "SetSession", c)
	call[int](d, "SetRelease", json.RawMessage("[-1]"))
	call[int](d, "SetRelease", json.RawMessage(nil)) // it leads no longer
	var pids []int
	var releases []string
	for i := range works {
		pids = append(pids, d.startIn(fmt.Sprintf("g%d", i), "trap '' TERM; while :; do sleep 1; done"))
		hook := Spec{Path: "/bin/sh", Argv: []string{"sh", "-c", "echo >$D/hook$W"}, Env: append(fx.env(), fmt.Sprint("W=", i)), Timeout: time.Minute}
		call[int](d, "SetPendingHooks", []Spec{hook})
		call[int](d, "SetRelease", json.RawMessage("[-1]")) // the last one counts
		call[int](d, "SetRelease", json.RawMessage(fmt.Sprintf("[%d]", i)))
		releases = append(releases, fmt.Sprintf("[%d]", i))
	}
	f, err := ReadSessionFile(c.File)
	if err != nil || len(f.Leaderships) != works+1 || len(f.PendingHooks()) != works || len(f.Session.Releases) != works {
		t.Errorf("the session file lists %d leaderships, %d hooks and %d releases: %v", len(f.Leaderships), len(f.PendingHooks()), len(f.Session.Releases), err)
	}
	began := boottime.Now()
	syscall.Kill(d.pid, syscall.SIGKILL)
	t.Logf("%d works were dead %s after the kill -9 of their daemon", works, fx.waitDead(pids...)-began)
	fx.nextDaemon()
	t.Logf("the next daemon ran %s after it", boottime.Now()-began)
	all := fx.closedSessions()
	if len(all) != 1 || len(all[0].StillAlive) > 0 {
		t.Fatalf("%+v", all)
	}
	var sent []string
	for _, tx := range all[0].Session.Releases {
		sent = append(sent, string(tx))
	}
	if !slices.Equal(sent, releases) {
		t.Errorf("sent the releases %q", sent)
	}
	for i := range works {
		if _, err := os.Stat(filepath.Join(fx.dir, fmt.Sprint("hook", i))); err != nil {
			t.Error(err)
		}
	}
	records, states, err := leadershipFiles(c.File)
	if len(records)+len(states) > 0 || err != nil {
		t.Errorf("left behind: %q, %q, %v", records, states, err)
	}
}

// Work that does not die does not keep the other groups from going on: its session is left to expire, the next daemon starts, learns
// which group it is, and cannot start work of that group until the old work is dead. Its hook runs then.
func TestSurvivor(t *testing.T) {
	withSeveralGroups(t, func(t *testing.T, fx *fixture, d *remoteDaemon) {
		c := fx.credentials()
		call[int](d, "SetSession", c)
		other := d.startIn("other", "exec sleep 1000")
		hung := d.startIn("hung", "exec sleep 1000")
		hook := Spec{Path: "/bin/sh", Argv: []string{"sh", "-c", "echo >$D/hook"}, Env: fx.env(), Timeout: time.Minute}
		call[int](d, "SetPendingHooks", []Spec{hook})
		release := testhelper.HangOnDeath(t, hung)
		began := boottime.Now()
		syscall.Kill(d.pid, syscall.SIGKILL)
		next := fx.nextDaemon()
		if took := boottime.Now() - began; took < minSurvival {
			t.Errorf("the next daemon has started after %s", took)
		}
		fx.waitDead(other)
		if all := fx.closedSessions(); len(all) > 0 {
			t.Errorf("the session was closed: %+v", all)
		}
		if names := call[[]string](next, "Survivors", 0); !slices.Equal(names, []string{"hung"}) {
			t.Errorf("the next daemon knows of %q", names)
		}
		c.ID++
		call[int](next, "SetSession", c)
		f, err := ReadSessionFile(c.File)
		if err != nil || len(f.Survivors) != 1 || f.Survivors[0].Name != "hung" || f.Survivors[0].Containment == nil || len(f.PendingHooks()) != 1 {
			t.Errorf("%+v, %v", f, err)
		}
		next.startIn("other", "exec sleep 1000")
		for range 3 { // also those with the ids that the dead daemon has used
			call[int](next, "Replace", "another")
			call[time.Duration](next, "SetLease", time.Hour)
			call[int](next, "Start", fx.shell("exit 0"))
			call[ExitInfo](next, "Dead", 0)
			call[int](next, "Close", 0)
		}
		if state := f.Survivors[0].Containment.StateFile; read(state) != stateRunning {
			t.Errorf("the state file of the survivor, %s, says %q", state, read(state))
		}
		next.use("hung")
		call[time.Duration](next, "SetLease", time.Hour)
		if _, err := tryCall[int](next, "Start", fx.shell("echo >$D/ran")); err == nil || !strings.Contains(err.Error(), errStillRuns.Error()) {
			t.Errorf("start: %v", err)
		}
		if _, err := os.Stat(filepath.Join(fx.dir, "hook")); err == nil {
			t.Error("the hook ran while the work runs")
		}
		release()
		eventually(t, "the report of its death", func() bool { return len(call[[]string](next, "Survivors", 0)) == 0 })
		eventually(t, "the session file without it", func() bool {
			f, err := ReadSessionFile(c.File)
			return err == nil && len(f.Survivors) == 0
		})
		if _, err := os.Stat(filepath.Join(fx.dir, "hook")); err != nil {
			t.Error(err)
		}
		next.startIn("hung", "exec sleep 1000")
	})
}

// When the guard is killed, the works of all leaderships die, and the daemon has yet to close its session; also if a keeper
// is.
func TestKilledGuardWithSeveralLeaderships(t *testing.T) {
	t.Parallel()
	for _, victim := range []string{"guard", "keeper"} {
		t.Run("without "+victim, func(t *testing.T) {
			t.Parallel()
			fx, d := startDaemon(t, "CONTAINMENT=cgroup")
			call[int](d, "SetSession", fx.credentials())
			pids := []int{d.startIn("a", "exec sleep 1000"), d.startIn("b", "exec sleep 1000")}
			if victim == "guard" {
				fx.signalGuard(syscall.SIGKILL)
				fx.waitDead(pids...)
				for _, name := range []string{"a", "b"} {
					d.use(name)
					if e := call[ExitInfo](d, "Dead", 0); len(e.StillAlive) > 0 || e.Status != "was killed with the guard" {
						t.Errorf("%+v", e)
					}
				}
				d.checkGuardLost("")
				if all := fx.closedSessions(); len(all) > 0 {
					t.Errorf("sessions were closed without a guard: %+v", all)
				}
				if _, err := ReadSessionFile(fx.credentials().File); err != nil {
					t.Error(err)
				}
				return
			}
			s, err := readParent(pids[0])
			if err != nil {
				t.Fatal(err)
			}
			syscall.Kill(s, syscall.SIGKILL)
			fx.waitDead(pids[0])
			d.use("a")
			if e := call[ExitInfo](d, "Dead", 0); e.Status != "was killed with its keeper" {
				t.Errorf("%+v", e)
			}
			d.startIn("a", "exec sleep 1000") // the same daemon goes on with another keeper
		})
	}
}

// readParent returns the parent of a process.
func readParent(pid int) (parent int, err error) {
	_, after, ok := strings.Cut(read(fmt.Sprintf("/proc/%d/status", pid)), "PPid:\t")
	if !ok {
		return 0, errors.New("no such process")
	}
	_, err = fmt.Sscan(after, &parent)
	return parent, err
}

// Without control groups, there can be one group only.
func TestSeveralGroupsAreRefused(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t, "CONTAINMENT=keeper")
	d.startIn("g", "exec sleep 1000")
	d.use("other")
	call[time.Duration](d, "SetLease", time.Hour)
	if _, err := tryCall[int](d, "Start", fx.shell("echo >$D/ran")); err == nil || err.Error() != errSeveralGroups.Error() {
		t.Errorf("start: %v", err)
	}
}

// A program whose disk hangs keeps the thread that starts it, and the Go runtime cannot take the processor from that: another one must be
// left for the kill, even on a host with a single one. A frozen control group has the same effect.
func TestHangingExecDelaysNoKill(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{"as many processors as there are": nil, "one processor": {"GOMAXPROCS=1"}} {
		t.Run(name, func(t *testing.T) { hangingExecDelaysNoKill(t, env...) })
	}
}

func hangingExecDelaysNoKill(t *testing.T, env ...string) {
	k := startTestKeeper(t, CgroupContainment, env...)
	pids := k.startSpreadWork(boottime.Now() + time.Hour)
	first := k.seq
	other, err := newCgroup(delegatedCgroup(), 78)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.remove(); other.Close() })
	freeze := func(state string) {
		if err := os.WriteFile(filepath.Join(other.dir, "cgroup.freeze"), []byte(state), 0); err != nil {
			t.Error(err)
		}
	}
	freeze("1")
	defer freeze("0")
	bound := time.AfterFunc(testTimeout/2, func() { // a thread that waits for the program can be killed only once that is thawed
		t.Error("the kill of other work waits for a program that hangs while it is started")
		freeze("0")
		k.cmd.Process.Kill()
	})
	defer bound.Stop()
	k.send(message{Kind: kindStart, Seq: 78, At: boottime.Now() + time.Hour, Dir: other.dir, Spec: &Spec{
		Path: "/bin/true", Argv: []string{"true"}, Env: k.env(), StateFile: filepath.Join(k.dir, "state-78"),
	}})
	eventually(t, "the start", func() bool {
		procs, err := os.ReadFile(filepath.Join(other.dir, "cgroup.procs"))
		return err == nil && len(procs) > 0
	})
	k.send(message{Kind: kindKill, Seq: first})
	k.seq = first
	k.expect(kindKilling, "")
	k.expectDead("was killed", pids)
	freeze("0")
	k.seq = 78
	k.expect(kindStarted, "")
}
