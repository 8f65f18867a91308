package guard

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// says checks that an error says all of these, or that there is none where there is nothing to say.
func checkError(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if (err == nil) != (len(words) == 0) {
		t.Errorf("%s: %v", what, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v does not say %q", what, err, w)
		}
	}
}

// sleeper is a process that is gone after the test, with a group of its own.
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
		t.Fatal("it can't be identified")
	}
	return cmd, p
}

// deadKeeper is a process that has ended and was waited for.
func deadKeeper(t *testing.T) Process {
	t.Helper()
	cmd, p := sleeper(t)
	cmd.Process.Kill()
	cmd.Wait()
	return p
}

// Only the keeper's own word shows the end of work that nothing but a keeper held (A3).
func TestOnlyTheKeepersMarkProvesTheEnd(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "work")
	h := ContainmentRecord{Mode: KeeperContainment, StateFile: mark}
	checkError(t, "none", h.killAndCheck(), "only the keeper could have recorded")
	for text, dead := range map[string]bool{stateDead: true, stateRunning: false, "": false, "dead": false, stateDead + "x": false} {
		if err := os.WriteFile(mark, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if dead {
			checkError(t, text, h.killAndCheck())
		} else {
			checkError(t, text, h.killAndCheck(), "it was killed before it did")
		}
	}
	checkError(t, "a mark that can't be read", ContainmentRecord{Mode: KeeperContainment, StateFile: t.TempDir()}.killAndCheck(), "is a directory", "it was killed before it did")
}

// A control group is known by path and inode: another one at the same path is not ours, and one that was removed was empty.
func TestAControlGroupIsEndedFromOutside(t *testing.T) {
	c, err := newCgroup(delegatedCgroup(), 3)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	inside := func(cmd *exec.Cmd) { cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, c.fd() }
	cmd, p := sleeper(t, inside)
	h := ContainmentRecord{Mode: CgroupContainment, Group: c.dir, Inode: c.inode + 1}
	checkError(t, "another's", h.killAndCheck())
	if !alive(p.Pid) {
		t.Fatal("another's work was killed")
	}
	h.Inode = c.inode
	before := len(descriptors("self"))
	checkError(t, "with a process", h.killAndCheck(), "processes still run in the control group "+c.dir)
	cmd.Wait()
	eventually(t, "its end", func() bool { return h.killAndCheck() == nil })
	if after := len(descriptors("self")); after > before {
		t.Errorf("%d descriptors were open, now %d", before, after)
	}
	if err := c.remove(); err != nil {
		t.Fatal(err)
	}
	checkError(t, "removed", h.killAndCheck())
	if _, err := openContainment(h); err == nil {
		t.Error("a proof of a group that is gone")
	}
}

// A proof does the same with what it holds open.
func TestAControlGroupIsEndedByItsProof(t *testing.T) {
	c, err := newCgroup(delegatedCgroup(), 4)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	_, p := sleeper(t, func(cmd *exec.Cmd) { cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, c.fd() })
	proof, err := openContainment(ContainmentRecord{Mode: CgroupContainment, Group: c.dir, Inode: c.inode})
	if err != nil {
		t.Fatal(err)
	}
	defer proof.close()
	checkError(t, "with a process", proof.killAndCheck(), "processes still run in the control group "+c.dir)
	p.waitDead(t)
	eventually(t, "its end", func() bool { return proof.killAndCheck() == nil })
	if err := c.remove(); err != nil {
		t.Fatal(err)
	}
	checkError(t, "removed", proof.killAndCheck())
}

func (p Process) waitDead(t *testing.T) {
	t.Helper()
	eventually(t, "the death of a process", func() bool { return !alive(p.Pid) })
}

// Where no control groups are mounted, that there is no such directory proves nothing.
func TestAMissingGroupProvesNothingWithoutItsHierarchy(t *testing.T) {
	dir := t.TempDir()
	checkError(t, "elsewhere", ContainmentRecord{Mode: CgroupContainment, Group: filepath.Join(dir, "a", "b")}.killAndCheck(), "no such file", "no control groups are mounted at "+dir)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	checkError(t, "below a file", ContainmentRecord{Mode: CgroupContainment, Group: filepath.Join(file, "b")}.killAndCheck(), "not a directory")
	checkError(t, "not mounted at all", ContainmentRecord{Mode: CgroupContainment, Group: "/no/such/hierarchy"}.killAndCheck(), "no control groups are mounted at /")
	checkError(t, "a plain directory", ContainmentRecord{Mode: CgroupContainment, Group: dir}.killAndCheck(), "cannot use the control group")
	c := &cgroup{dir: "x", eventsFD: -1, killFD: -1}
	checkError(t, "it can't be killed", (&containmentHandle{record: ContainmentRecord{Mode: CgroupContainment}, group: c, pidfd: -1}).killAndCheck(), "cannot kill the control group x")
}

// Where they are mounted it does, however much of the path was removed: only what is empty can be.
func TestAGroupThatWasRemovedWithThoseAboveItWasEmpty(t *testing.T) {
	requireCgroups(t)
	group := filepath.Join(delegatedCgroup(), "zkelectd-none", "none", "none")
	checkError(t, group, ContainmentRecord{Mode: CgroupContainment, Group: group}.killAndCheck())
}

// Whether the host was restarted must be known: else what runs would pass for what was before (S1).
func TestWithoutABootIDNothingIsCalledDead(t *testing.T) {
	original := bootID
	t.Cleanup(func() { bootID = original })
	for id, failure := range map[string]error{"": nil, "none": errors.New("no boot id")} {
		bootID = func() (string, error) { return id, failure }
		for _, f := range []SessionFile{{Boot: "b"}, {}} {
			checkError(t, "boot ID "+id, f.EnsureDead(0), "cannot determine whether the host was restarted")
		}
	}
}

// All of a PID namespace is dead once its first process is.
func TestANamespaceEndsWithItsFirstProcess(t *testing.T) {
	cmd, p := sleeper(t)
	h := ContainmentRecord{Mode: PidnsContainment, Keeper: p}
	checkError(t, "from a file, alive", h.killAndCheck(), "the keeper still runs as process")
	before := len(descriptors("self"))
	proof, err := openContainment(h)
	if err != nil {
		t.Fatal(err)
	}
	if proof.close(); len(descriptors("self")) > before {
		t.Error("a proof that is closed holds something open")
	}
	if proof, err = openContainment(h); err != nil {
		t.Fatal(err)
	}
	defer proof.close()
	checkError(t, "alive", proof.killAndCheck(), "processes still run in the PID namespace of process")
	p.waitDead(t)
	checkError(t, "dead", proof.killAndCheck())
	cmd.Wait()
	checkError(t, "reaped", proof.killAndCheck())
	checkError(t, "from a file, dead", h.killAndCheck())
	if _, err := openContainment(h); err == nil || !strings.Contains(err.Error(), "cannot watch the keeper") {
		t.Errorf("a proof by a process that is gone: %v", err)
	}
}

// A namespace whose first process can't be signaled is not taken for dead (A3).
func TestANamespaceThatCannotBeKilledIsNotDead(t *testing.T) {
	r, w, err := os.Pipe() // nothing to read, and no process
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	p := &containmentHandle{record: ContainmentRecord{Mode: PidnsContainment, Keeper: Process{Pid: 77}}, pidfd: int(r.Fd())}
	checkError(t, "no process", p.killAndCheck(), "cannot kill the first process of the PID namespace, 77")
}

// From outside nobody but the keeper can tell that all of the work is dead.
func TestTheKeeperAloneProvesNothingFromOutside(t *testing.T) {
	proof, err := openContainment(ContainmentRecord{Mode: KeeperContainment, Keeper: deadKeeper(t)})
	if err != nil {
		t.Fatal(err)
	}
	checkError(t, "a keeper that is dead", proof.killAndCheck(), "only the keeper can report")
	proof.close()
	checkStandardFDs(t)
}

// An undertaker from outside kills what it can find, and says what still runs instead of closing the session (S1).
func TestTheUndertakerKillsWhatIsLeft(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Join(dir, "work")
	if err := os.WriteFile(mark, []byte(stateDead), 0o600); err != nil {
		t.Fatal(err)
	}
	stamped := "ZKELECTD_ROOT=" + dir
	main, work := sleeper(t)
	hidden, other := sleeper(t, func(cmd *exec.Cmd) { cmd.Env = []string{stamped} })
	keeper, lives := sleeper(t)
	gone := []Process{deadKeeper(t)}
	f := SessionFile{Boot: currentBootID(), Namespace: pidNamespace(), Processes: gone, Work: &work, Containment: &ContainmentRecord{Mode: KeeperContainment, Keeper: lives, StateFile: mark}, Env: []string{stamped}}
	checkError(t, "while the keeper is at it", f.EnsureDead(0), "the keeper still runs as process")
	if !alive(work.Pid) || !alive(other.Pid) {
		t.Error("killed in the keeper's stead")
	}
	keeper.Process.Kill()
	keeper.Wait()

	reused := work
	reused.Started++
	f.Work, f.Env = &reused, nil
	checkError(t, "a pid that is another's by now", f.EnsureDead(0))
	if !alive(work.Pid) {
		t.Error("another's process was killed")
	}
	f.Boot = "of yesterday"
	f.Work, f.Env = &work, []string{stamped}
	checkError(t, "after a restart of the host", f.EnsureDead(0))
	if !alive(work.Pid) || !alive(other.Pid) {
		t.Error("killed what was started after the restart")
	}
	f.Boot = currentBootID()
	f.Processes = []Process{other}
	checkError(t, "while its owner runs", f.EnsureDead(0), "still runs as process")
	if !alive(work.Pid) {
		t.Error("killed while its owner may be at work")
	}
	f.Processes = gone
	checkError(t, "at last", f.EnsureDead(testTimeout))
	main.Wait()
	hidden.Wait()

	if err := os.WriteFile(mark, []byte(stateRunning), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	checkError(t, "without the keeper's word", f.EnsureDead(300*time.Millisecond), "it was killed before it did")
	if took := time.Since(began); took < 250*time.Millisecond || took > testTimeout/2 {
		t.Errorf("gave up after %s", took)
	}
	f.Containment = nil
	checkError(t, "none has ever run", f.EnsureDead(0))
}

// The owners of a session have a moment to die, however long the work may take, and no longer than was asked for.
func TestTheUndertakerDoesNotWaitForOwners(t *testing.T) {
	_, owner := sleeper(t)
	f := SessionFile{Boot: currentBootID(), Namespace: pidNamespace(), Processes: []Process{deadKeeper(t), owner}}
	for limit, most := range map[time.Duration]time.Duration{0: exitTime / 2, time.Hour: testTimeout / 2} {
		began := time.Now()
		checkError(t, "an owner that runs", f.EnsureDead(limit), "the keeper still runs as process", "stop that first")
		if took := time.Since(began); took > most || took < min(limit, exitTime) {
			t.Errorf("given %s it took %s", limit, took)
		}
	}
	cmd, dies := sleeper(t)
	f.Processes = []Process{dies}
	time.AfterFunc(100*time.Millisecond, func() { cmd.Process.Kill() })
	checkError(t, "an owner that is dying", f.EnsureDead(time.Hour))
}

// Under a PID namespace the keeper is what has to be dead.
func TestTheUndertakerWaitsForTheNamespace(t *testing.T) {
	keeper, p := sleeper(t)
	f := SessionFile{Boot: currentBootID(), Namespace: pidNamespace(), Processes: []Process{deadKeeper(t)}, Containment: &ContainmentRecord{Mode: PidnsContainment, Keeper: p}}
	checkError(t, "it runs", f.EnsureDead(0), "the keeper still runs as process")
	keeper.Process.Kill()
	keeper.Wait()
	checkError(t, "it is dead", f.EnsureDead(0))
}
