package guard

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cgroups returns the control groups that the fixture's guard has created.
func (fx *fixture) cgroups() []string {
	all, _ := filepath.Glob(filepath.Join(delegatedCgroup(), fmt.Sprintf("%s%d-*", cgroupPrefix, fx.cmd.Process.Pid)))
	return all
}

// requireCgroups fails the test if control groups cannot be created here.
func requireCgroups(t *testing.T) {
	t.Helper()
	c, err := newCgroup(delegatedCgroup(), 1)
	if err != nil {
		t.Fatalf("run the tests as root, or in a delegated control group: %v", err)
	}
	c.remove()
	c.Close()
}

// The version 2 hierarchy is found beside those of version 1, and no other file system is mistaken for it.
func TestFindCgroup2Hierarchy(t *testing.T) {
	const (
		root = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
		old  = "30 22 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
		two  = "31 22 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
	)
	for mounts, want := range map[string]string{
		"": "", root + old: "", root + two: "/sys/fs/cgroup", root + old + two + "32 22 0:27 / /second rw - cgroup2 none rw\n": "/sys/fs/cgroup",
		"1 - cgroup2 none\n": "", "31 22 0:27 / /sys/fs/cgroup rw cgroup2 cgroup2 rw\n": "",
	} {
		if got := cgroupMount(mounts); got != want {
			t.Errorf("%q: %q, not %q", mounts, got, want)
		}
	}
	for groups, want := range map[string]string{"": "", "3:cpu:/a\n": "", "3:cpu:/a\n0::/b c\n": "/b c", "0::/\n": "/"} {
		if got := cgroupPath(groups); got != want {
			t.Errorf("%q: %q, not %q", groups, got, want)
		}
	}
}

// Control groups are created in the process's own group, if that was delegated or is the root.
func TestDivisibleCgroup(t *testing.T) {
	yes, no := func(dir string) bool { return dir == "/sys/a" }, func(string) bool { return false }
	for _, c := range []struct {
		mount, path string
		delegated   func(string) bool
		want        string
	}{
		{"/sys", "/a", yes, "/sys/a"}, {"/sys", "/a", no, ""}, {"/sys", "/", no, "/sys"}, {"", "/", no, ""}, {"/sys", "", yes, ""}, {"", "/a", yes, ""}, {"", "", no, ""},
	} {
		if got := divisibleCgroup(c.mount, c.path, c.delegated); got != c.want {
			t.Errorf("%q, %q: %q, not %q", c.mount, c.path, got, c.want)
		}
	}
}

// clearCgroups kills and removes groups that were left behind, but neither locked groups nor those with other names.
func TestClearCgroups(t *testing.T) {
	requireCgroups(t)
	parent := filepath.Join(delegatedCgroup(), fmt.Sprintf("clear-test-%d", os.Getpid()))
	dir := func(name string) string { return filepath.Join(parent, cgroupPrefix+name) }
	for _, d := range []string{parent, dir("left"), dir("held"), dir("other-guard"), filepath.Join(parent, "other")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Remove(d); err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
		})
	}
	f, err := os.Open(dir("left"))
	if err != nil {
		t.Fatal(err)
	}
	cmd, p := sleeper(t, func(cmd *exec.Cmd) { cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(f.Fd()) })
	f.Close()
	exists := func(name string) bool { _, err := os.Stat(name); return err == nil }
	held, err := openCgroup(dir("held"))
	if err != nil {
		t.Fatal(err)
	}
	clearing, err := os.Open(dir("other-guard")) // another guard clears it
	if err != nil {
		t.Fatal(err)
	}
	defer clearing.Close()
	if err := unix.Flock(int(clearing.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	if c, err := openCgroup(dir("other-guard")); err == nil {
		c.Close()
		t.Error("a group that another guard clears was opened")
	}
	t.Chdir(parent)
	if clearCgroups(""); !alive(p.Pid) || !exists(dir("left")) {
		t.Error("a group was cleared although there is no parent")
	}
	before := len(descriptors("self"))
	clearCgroups(parent)
	checkStandardFDs(t)
	cmd.Wait()
	eventually(t, "the removal of the group", func() bool { clearCgroups(parent); return !exists(dir("left")) })
	if after := len(descriptors("self")); after > before {
		t.Errorf("open file descriptors grew from %d to %d", before, after)
	}
	if !exists(dir("held")) || !exists(filepath.Join(parent, "other")) {
		t.Error("a group that was not left behind was cleared")
	}
	held.Close()
	if clearCgroups(parent); exists(dir("held")) {
		t.Error("a group whose lock was released was not cleared")
	}
}

// checkStandardFDs checks that the standard file descriptors are still open, as they are if no zero value was closed as one.
func checkStandardFDs(t *testing.T) {
	t.Helper()
	for fd := range uintptr(3) {
		if _, err := unix.FcntlInt(fd, unix.F_GETFD, 0); err != nil {
			t.Errorf("file descriptor %d: %v", fd, err)
		}
	}
}

// Where control groups cannot be created there is an error, and the methods of a nil cgroup do nothing.
func TestNoCgroup(t *testing.T) {
	for _, parent := range []string{"", "/no/such/directory", t.TempDir()} {
		if c, err := newCgroup(parent, 1); err == nil {
			t.Errorf("%q: created a control group in a plain directory: %+v", parent, c)
		}
		if left, _ := filepath.Glob(filepath.Join(parent, cgroupPrefix+"*")); parent != "" && len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		clearCgroups(parent)
	}
	var c *cgroup
	if c.fd() != -1 || c.Empty() != nil || c.Kill() != nil || c.remove() != nil {
		t.Error("a nil cgroup does something")
	}
	c.Close()
}

// A starting guard may remove another guard's new group before it is locked; the other one then creates another group. Guards
// that are process 1 of different containers may create groups in the same place; no name is used twice.
func TestNewCgroupWhileOthersClear(t *testing.T) {
	t.Parallel()
	requireCgroups(t)
	parent := delegatedCgroup()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				clearCgroups(parent)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	names := make(map[string]bool)
	for range 300 {
		c, err := newCgroup(parent, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if names[c.dir] {
			t.Errorf("%s is used again", c.dir)
		}
		names[c.dir] = true
		if _, err := os.Stat(c.dir); err != nil {
			t.Errorf("another guard has removed it: %v", err)
		}
		if c.remove() != nil || c.Empty() != nil {
			t.Errorf("%s: %v", c.dir, c.remove())
		}
		c.Close()
	}
}

// A failure to read does not mean that the group is empty (A3).
func TestUnreadableCgroupIsPopulated(t *testing.T) {
	c := &cgroup{eventsFD: -1, killFD: -1}
	if c.Empty() == nil || c.Kill() == nil {
		t.Error("an unreadable group counts as empty")
	}
}

// The work runs in a separate control group, which is removed when the work is dead.
func TestWorkHasItsOwnCgroup(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
	_, pids := d.startWork(time.Hour)
	if got := fx.cgroups(); len(got) != 1 {
		t.Fatalf("control groups %q", got)
	}
	// Even a process that is not a descendant of the guard is killed with the group.
	unrelated := exec.Command("sleep", "1000")
	if err := unrelated.Start(); err != nil {
		t.Fatal(err)
	}
	defer unrelated.Wait()
	defer unrelated.Process.Kill()
	if err := os.WriteFile(filepath.Join(fx.cgroups()[0], "cgroup.procs"), fmt.Append(nil, unrelated.Process.Pid), 0); err != nil {
		t.Fatal(err)
	}
	pids = append(pids, unrelated.Process.Pid)
	call[int](d, "Kill", 0)
	call[ExitInfo](d, "Dead", 0)
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is still alive", pid)
		}
	}
	eventually(t, "the removal of the control group", func() bool { return len(fx.cgroups()) == 0 })
}

// A starting guard kills the work that a killed guard has left behind, which it recognizes by the released lock. It leaves the
// work of other live guards alone.
func TestNextGuardKillsLeftoverWork(t *testing.T) {
	t.Parallel()
	requireCgroups(t)
	fx, d := startDaemon(t)
	_, pids := d.startWork(time.Hour)
	other := startGuard(t).nextDaemon()
	_, others := other.startWork(time.Hour)
	lock, err := openCgroup(fx.cgroups()[0])
	if err != nil {
		t.Fatal(err)
	}
	fx.killAtOnce(fx.keeperPid(), d.pid, fx.cmd.Process.Pid)
	fx.guardExitStatus()
	if !alive(pids[1]) {
		t.Error("the test proves nothing: no process has survived")
	}
	lock.Close() // the guards of other tests may clear it from now on
	startGuard(t).nextDaemon()
	fx.waitDead(pids...)
	fx.checkAliveUntil(0, others...)
}

// Without control groups, the log or the error says what to do.
func TestMissingCgroupIsExplained(t *testing.T) {
	log := new(strings.Builder)
	g := &guard{log: slog.New(slog.NewTextHandler(log, nil))}
	if err := g.chooseContainment(delegatedCgroup()); err != nil {
		t.Fatal(err)
	}
	if delegatedCgroup() != "" && g.opt.Containment != CgroupContainment {
		t.Errorf("chose %s", g.opt.Containment)
	}
	log.Reset()
	g.opt.Containment = Auto
	g.chooseContainment("")
	if g.opt.Containment != KeeperContainment || !strings.Contains(log.String(), "Delegate=yes") {
		t.Errorf("chose %s, log: %s", g.opt.Containment, log)
	}
	g.opt.Containment = CgroupContainment
	if err := g.chooseContainment(""); err == nil || !strings.Contains(err.Error(), "Delegate=yes") {
		t.Error(err)
	}
}

// Control groups that the work has created in its own are killed and removed with it; also those that a dead guard has
// left behind.
func TestWorkWithGroupsOfItsOwn(t *testing.T) {
	t.Parallel()
	requireCgroups(t)
	fx, d := startDaemon(t, "CONTAINMENT=cgroup")
	mount, _ := ownCgroup()
	call[time.Duration](d, "SetLease", time.Hour)
	opt := fx.shell(`g=$M$(sed -n s/^0:://p /proc/self/cgroup)
		mkdir -p $g/a/b $g/c/d/e $g/f
		sh -c "echo \$\$ >$g/a/b/cgroup.procs; echo \$\$ >$D/inner; exec sleep 1000" & exec sleep 1000`)
	opt.Env = append(opt.Env, "M="+mount)
	call[int](d, "Start", opt)
	inner := d.pidFromFile("inner")
	fx.rememberStart(inner)
	call[int](d, "Kill", 0)
	call[ExitInfo](d, "Dead", 0)
	if fx.alive(inner) {
		t.Error("the process in the inner group is alive")
	}
	eventually(t, "the removal of the control groups", func() bool { return len(fx.cgroups()) == 0 })

	parent := filepath.Join(delegatedCgroup(), fmt.Sprintf("own-groups-test-%d", os.Getpid()))
	if err := os.MkdirAll(filepath.Join(parent, cgroupPrefix+"left", "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	clearCgroups(parent)
	if err := os.Remove(parent); err != nil {
		t.Errorf("something was left behind: %v", err)
	}
}
