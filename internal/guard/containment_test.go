package guard

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/sys/boottime"
)

// checkError checks that an error contains all of these texts; without any texts, that there is no error.
func checkError(t *testing.T, what string, err error, texts ...string) {
	t.Helper()
	if (err == nil) != (len(texts) == 0) {
		t.Errorf("%s: %v", what, err)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: got error %v, want %q", what, err, text)
		}
	}
}

// sleeper starts a process that only sleeps, in a new process group. It is killed after the test.
func sleeper(t *testing.T, change ...func(*exec.Cmd)) (*exec.Cmd, Process) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	for _, c := range change {
		c(cmd)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	p, ok := Identify("keeper", cmd.Process.Pid)
	if !ok {
		t.Fatal("cannot identify the process")
	}
	return cmd, p
}

// deadKeeper returns a process that has ended and was waited for.
func deadKeeper(t *testing.T) Process {
	t.Helper()
	cmd, p := sleeper(t)
	cmd.Process.Kill()
	cmd.Wait()
	return p
}

// With KeeperContainment only the keeper's own record proves the death of the work (A3).
func TestOnlyStateFileProvesDeath(t *testing.T) {
	stateFile := filepath.Join(t.TempDir(), "work")
	r := ContainmentRecord{Mode: KeeperContainment, StateFile: stateFile}
	checkError(t, "no file", r.killAndCheck(), "the keeper was killed before it recorded")
	for text, dead := range map[string]bool{stateDead: true, stateRunning: false, "": false, "dead": false, stateDead + "x": false} {
		put(t, stateFile, text)
		if dead {
			checkError(t, text, r.killAndCheck())
		} else {
			checkError(t, text, r.killAndCheck(), "nothing else can prove it")
		}
	}
	checkError(t, "unreadable file", ContainmentRecord{Mode: KeeperContainment, StateFile: t.TempDir()}.killAndCheck(), "is not a regular file", "nothing else can prove it")
}

// A recorded control group is identified by path and inode: one with another inode is left alone, and one that was removed was
// empty.
func TestKillRecordedCgroup(t *testing.T) {
	c, err := newCgroup(delegatedCgroup(), 3)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	inside := func(cmd *exec.Cmd) { cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, c.fd() }
	cmd, p := sleeper(t, inside)
	r := ContainmentRecord{Mode: CgroupContainment, Group: c.dir, Inode: c.inode + 1}
	checkError(t, "another inode", r.killAndCheck())
	if !alive(p.Pid) {
		t.Fatal("work in another group was killed")
	}
	r.Inode = c.inode
	before := len(descriptors("self"))
	checkError(t, "with a process", r.killAndCheck(), c.dir+": processes still run in the control group")
	cmd.Wait()
	eventually(t, "its death", func() bool { return r.killAndCheck() == nil })
	if after := len(descriptors("self")); after > before {
		t.Errorf("open file descriptors grew from %d to %d", before, after)
	}
	if err := c.remove(); err != nil {
		t.Fatal(err)
	}
	checkError(t, "removed", r.killAndCheck())
	if _, err := openCgroup(r.Group); err == nil {
		t.Error("opened a removed group")
	}
}

func (p Process) waitDead(t *testing.T) {
	t.Helper()
	eventually(t, "the death of a process", func() bool { return !alive(p.Pid) })
}

// A missing directory proves nothing where the cgroup hierarchy is not mounted.
func TestMissingCgroupWithoutHierarchyProvesNothing(t *testing.T) {
	dir := t.TempDir()
	checkError(t, "elsewhere", ContainmentRecord{Mode: CgroupContainment, Group: filepath.Join(dir, "a", "b")}.killAndCheck(), "no such file", "no control groups are mounted at "+dir)
	file := filepath.Join(dir, "file")
	put(t, file, "")
	checkError(t, "below a file", ContainmentRecord{Mode: CgroupContainment, Group: filepath.Join(file, "b")}.killAndCheck(), "not a directory")
	checkError(t, "not mounted at all", ContainmentRecord{Mode: CgroupContainment, Group: "/no/such/hierarchy"}.killAndCheck(), "no control groups are mounted at /")
	checkError(t, "a plain directory", ContainmentRecord{Mode: CgroupContainment, Group: dir}.killAndCheck(), "cannot use the control group")
	c := &cgroup{dir: "x", eventsFD: -1, killFD: -1}
	checkError(t, "cannot be killed", killAndCheck(c), "cannot kill the work")
}

// Where the hierarchy is mounted, a missing group was empty, even if its parents are missing, too: only empty groups can be
// removed.
func TestRemovedCgroupWasEmpty(t *testing.T) {
	requireCgroups(t)
	group := filepath.Join(delegatedCgroup(), "zkelectd-none", "none", "none")
	checkError(t, group, ContainmentRecord{Mode: CgroupContainment, Group: group}.killAndCheck())
}

// Without a boot ID it is unknown whether the host was restarted, so running work must not count as dead (S1).
func TestUnknownBootIDProvesNothing(t *testing.T) {
	original := bootID
	t.Cleanup(func() { bootID = original })
	for id, failure := range map[string]error{"": nil, "none": errors.New("no boot id")} {
		bootID = func() (string, error) { return id, failure }
		for _, f := range []SessionFile{{Boot: "b"}, {}} {
			checkError(t, "boot ID "+id, f.EnsureDead(0), "cannot determine whether the host was restarted")
		}
	}
}

// With KeeperContainment, the death of the keeper does not prove that all of the work is dead.
func TestDeathOfKeeperProvesNothing(t *testing.T) {
	r := &ContainmentRecord{Mode: KeeperContainment, Keeper: deadKeeper(t)}
	c := &unguardedWork{w: &Work{c: new(Client), containment: r}}
	checkError(t, "dead keeper", killAndCheck(c), "the keeper has not reported")
	c.Close()
	checkStandardFDs(t)
}

// emptyCgroup returns a control group without processes.
func emptyCgroup(t *testing.T) *cgroup {
	t.Helper()
	c, err := newCgroup(delegatedCgroup(), 5)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.remove(); c.Close() })
	return c
}

// An empty control group does not prove the death of work whose keeper lives: it may still start the work, or find
// processes that were moved to another group, for which it gets some time.
func TestLiveKeeperMayHaveWork(t *testing.T) {
	cmd, keeper := sleeper(t)
	w := &Work{c: new(Client), containment: &ContainmentRecord{Keeper: keeper}}
	c := &unguardedWork{w: w, group: emptyCgroup(t)}
	w.guardLostAt = boottime.Now() - exitTime
	checkError(t, "not started yet", c.Empty(), "the keeper has not yet reported")
	w.pid = noPid
	checkError(t, "after the time", c.Empty())
	w.guardLostAt = boottime.Now()
	checkError(t, "within the time", c.Empty(), "the keeper has not yet reported")
	cmd.Process.Kill()
	cmd.Wait()
	checkError(t, "a dead keeper", c.Empty())
}

// Work in a control group does not count as dead while its keeper has a child outside of all groups: nobody knows whose
// that is. It is killed with the work.
func TestStrayMayBelongToTheWork(t *testing.T) {
	k, _ := newBareKeeper(t)
	k.mount, _ = ownCgroup()
	eventually(t, "the end of the children of earlier tests", func() bool { k.reap(); return k.none })
	_, stray := sleeper(t)
	w := &task{pid: noPid, reaped: true, group: emptyCgroup(t), nextSweep: boottime.Now() + time.Hour}
	k.works[7] = w
	if k.sweep(w) || !alive(stray.Pid) {
		t.Error("the work counts as dead, or the stray was killed before the next sweep")
	}
	w.nextSweep = 0
	eventually(t, "the end of both", func() bool { return k.sweep(w) })
	if alive(stray.Pid) {
		t.Error("the stray is alive")
	}
}

// EnsureDead kills what it finds of the work, and returns an error while something of it may still run (S1).
func TestEnsureDead(t *testing.T) {
	dir := t.TempDir()
	stateFile := filepath.Join(dir, "work")
	put(t, stateFile, stateDead)
	marker := "ZKELECTD_ROOT=" + dir
	main, work := sleeper(t)
	hidden, other := sleeper(t, func(cmd *exec.Cmd) { cmd.Env = []string{marker} })
	keeper, keeperProcess := sleeper(t)
	owners := []Process{deadKeeper(t)}
	f := SessionFile{Boot: currentBootID(), Namespace: pidNamespace(), Processes: owners, Leaderships: []LeadershipRecord{
		{Name: "idle"},
		{Work: &work, Containment: &ContainmentRecord{Mode: KeeperContainment, Keeper: keeperProcess, StateFile: stateFile}, Env: []string{marker}},
	}}
	r := &f.Leaderships[1]
	checkError(t, "while the keeper is killing", f.EnsureDead(0), "the keeper still runs as process")
	if !alive(work.Pid) || !alive(other.Pid) {
		t.Error("killed the work although the keeper is alive")
	}
	keeper.Process.Kill()
	keeper.Wait()

	reused := work
	reused.Started++
	r.Work, r.Env = &reused, nil
	checkError(t, "a reused pid", f.EnsureDead(0))
	if !alive(work.Pid) {
		t.Error("killed a process that reuses the pid")
	}
	f.Boot = "an earlier boot"
	r.Work, r.Env = &work, []string{marker}
	checkError(t, "after a restart of the host", f.EnsureDead(0))
	if !alive(work.Pid) || !alive(other.Pid) {
		t.Error("killed a process that was started after the restart")
	}
	f.Boot = currentBootID()
	f.Processes = []Process{other}
	checkError(t, "while its owner runs", f.EnsureDead(0), "still runs as process")
	if !alive(work.Pid) {
		t.Error("killed the work while its owner runs")
	}
	f.Processes = owners
	checkError(t, "all owners dead", f.EnsureDead(testTimeout))
	main.Wait()
	hidden.Wait()

	put(t, stateFile, stateRunning)
	began := time.Now()
	checkError(t, "without the keeper's record", f.EnsureDead(300*time.Millisecond), "nothing else can prove it")
	if took := time.Since(began); took < 250*time.Millisecond || took > testTimeout/2 {
		t.Errorf("gave up after %s", took)
	}
	r.Containment = nil
	checkError(t, "no work has ever run", f.EnsureDead(0))

	marker = "ZKELECTD_ROOT=" + dir + "/hook"
	hook, left := sleeper(t, func(cmd *exec.Cmd) { cmd.Env = []string{marker} })
	r.PendingHooks = []Spec{{Env: []string{"PATH=/bin", marker}}}
	checkError(t, "a hook that the daemon was running", f.EnsureDead(0), fmt.Sprintf("process %d, which a hook", left.Pid))
	hook.Wait()
	checkError(t, "after its end", f.EnsureDead(0))
}

// EnsureDead gives the owners of a session exitTime to exit, or the timeout if that is shorter.
func TestEnsureDeadWaitsBrieflyForOwners(t *testing.T) {
	_, owner := sleeper(t)
	f := SessionFile{Boot: currentBootID(), Namespace: pidNamespace(), Processes: []Process{deadKeeper(t), owner}}
	for limit, most := range map[time.Duration]time.Duration{0: exitTime / 2, time.Hour: testTimeout / 2} {
		began := time.Now()
		checkError(t, "a running owner", f.EnsureDead(limit), "the keeper still runs as process", "stop that first")
		if took := time.Since(began); took > most || took < min(limit, exitTime) {
			t.Errorf("with timeout %s it took %s", limit, took)
		}
	}
	cmd, dies := sleeper(t)
	f.Processes = []Process{dies}
	time.AfterFunc(100*time.Millisecond, func() { cmd.Process.Kill() })
	checkError(t, "a dying owner", f.EnsureDead(time.Hour))
}
