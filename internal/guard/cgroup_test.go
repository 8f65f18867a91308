package guard

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// groups are the control groups that a guard has made.
func (h *fixture) cgroups() []string {
	all, _ := filepath.Glob(filepath.Join(delegatedCgroup(), fmt.Sprintf("%s%d-*", cgroupPrefix, h.cmd.Process.Pid)))
	return all
}

// divisible makes sure that control groups can be made here.
func requireCgroups(t *testing.T) {
	t.Helper()
	c, err := newCgroup(delegatedCgroup(), 1)
	if err != nil {
		t.Fatalf("run the tests as root, or in a delegated control group: %v", err)
	}
	c.remove()
	c.close()
}

// The hierarchy of version 2 is found beside those of version 1, and nothing else is taken for it.
func TestWhereControlGroupsAre(t *testing.T) {
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

// Control groups are made in one's own, where that was delegated, or is all there is.
func TestWhereControlGroupsAreMade(t *testing.T) {
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

// What is left behind is cleared away, with what runs there; not what somebody holds, nor what is elsewhere.
func TestWhatIsClearedAway(t *testing.T) {
	requireCgroups(t)
	parent := filepath.Join(delegatedCgroup(), fmt.Sprintf("clear-test-%d", os.Getpid()))
	dir := func(name string) string { return filepath.Join(parent, cgroupPrefix+name) }
	for _, d := range []string{parent, dir("left"), dir("held"), filepath.Join(parent, "other")} {
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
	there := func(name string) bool { _, err := os.Stat(name); return err == nil }
	held, err := openCgroup(dir("held"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(parent)
	if clearCgroups(""); !alive(p.Pid) || !there(dir("left")) {
		t.Error("cleared without a parent")
	}
	before := len(descriptors("self"))
	clearCgroups(parent)
	cmd.Wait()
	eventually(t, "the end of what was left", func() bool { clearCgroups(parent); return !there(dir("left")) })
	if after := len(descriptors("self")); after > before {
		t.Errorf("%d descriptors were open, now %d", before, after)
	}
	if !there(dir("held")) || !there(filepath.Join(parent, "other")) {
		t.Error("what is not left behind was cleared away")
	}
	held.close()
	if clearCgroups(parent); there(dir("held")) {
		t.Error("what nobody holds any more is left")
	}
}

// A group that can't be opened whole closes what it has opened, and nothing else.
func TestAGroupThatIsNoneClosesOnlyItsOwn(t *testing.T) {
	before := len(descriptors("self"))
	if c, err := openCgroup(t.TempDir()); err == nil {
		t.Fatalf("%+v", c)
	}
	checkStandardFDs(t)
	if after := len(descriptors("self")); after > before {
		t.Errorf("%d descriptors were open, now %d", before, after)
	}
	taken, err := os.Open(t.TempDir()) // by a guard that clears it away
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := unix.Flock(int(taken.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if c, err := openCgroup(taken.Name()); err == nil {
		t.Errorf("%+v", c)
	}
	checkStandardFDs(t)
}

// standardsOpen checks that the standard descriptors are still open: 0 is no mark of a file that is not.
func checkStandardFDs(t *testing.T) {
	t.Helper()
	for fd := range uintptr(3) {
		if _, err := unix.FcntlInt(fd, unix.F_GETFD, 0); err != nil {
			t.Errorf("descriptor %d: %v", fd, err)
		}
	}
}

// Where there can be none, everything works without.
func TestNoCgroup(t *testing.T) {
	for _, parent := range []string{"", "/no/such/directory", t.TempDir()} {
		if c, err := newCgroup(parent, 1); err == nil {
			t.Errorf("%q: a control group in a plain directory: %+v", parent, c)
		}
		if left, _ := filepath.Glob(filepath.Join(parent, cgroupPrefix+"*")); parent != "" && len(left) > 0 {
			t.Errorf("%q is left", left)
		}
		clearCgroups(parent)
	}
	var none *cgroup
	if none.fd() != -1 || none.populated() || none.kill() != nil || none.remove() != nil {
		t.Error("a group that is none does something")
	}
	none.close()
}

// A guard that starts meanwhile, and takes a group for one that was left behind until it is locked, keeps none from being made.
func TestGroupsAreMadeWhileOthersClear(t *testing.T) {
	t.Parallel()
	requireCgroups(t)
	parent := delegatedCgroup()
	over, cleared := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(cleared)
		for {
			select {
			case <-over:
				return
			default:
				clearCgroups(parent)
			}
		}
	}()
	defer func() { close(over); <-cleared }()
	for i := range 300 {
		c, err := newCgroup(parent, 1000+i)
		if err != nil {
			t.Fatal(err)
		}
		if c.remove() != nil || c.populated() {
			t.Errorf("%s: %v", c.dir, c.remove())
		}
		c.close()
	}
}

// "I could not look" is not "it is empty" (A3).
func TestUnreadableCgroupIsPopulated(t *testing.T) {
	c := &cgroup{eventsFD: -1, killFD: -1}
	if !c.populated() || c.kill() == nil {
		t.Error("a group that can't be read is taken for an empty one")
	}
}

func TestCgroupKillsAll(t *testing.T) {
	c, err := newCgroup(delegatedCgroup(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	cmd := exec.Command("sh", "-c", "setsid sleep 1000 & exec sleep 1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: c.fd()}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two processes", func() bool {
		return strings.Count(read(filepath.Join(c.dir, "cgroup.procs")), "\n") == 2 && c.populated()
	})
	c.kill()
	cmd.Wait()
	eventually(t, "their end", func() bool { return !c.populated() })
	if err := c.remove(); err != nil {
		t.Error(err)
	}
	if c.populated() {
		t.Error("a group that was removed is not empty")
	}
}

// The work is in a group of its own where there can be one; with the work the group goes.
func TestCgroupOfTheWork(t *testing.T) {
	t.Parallel()
	h := startGuard(t)
	d := h.nextDaemon()
	_, pids := d.startWork(time.Hour)
	if got := h.cgroups(); len(got) != 1 {
		t.Fatalf("control groups %q", got)
	}
	// Not even what is no descendant of the guard escapes.
	stranger := exec.Command("sleep", "1000")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer stranger.Wait()
	defer stranger.Process.Kill()
	if err := os.WriteFile(filepath.Join(h.cgroups()[0], "cgroup.procs"), fmt.Append(nil, stranger.Process.Pid), 0); err != nil {
		t.Fatal(err)
	}
	pids = append(pids, stranger.Process.Pid)
	call[int](d, "Kill", 0)
	call[ExitInfo](d, "Dead", 0)
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("%d survives", pid)
		}
	}
	if got := h.cgroups(); len(got) > 0 {
		t.Errorf("%q is left", got)
	}
	os.Remove(filepath.Join(h.dir, "hidden"))
	_, pids = d.startWork(time.Hour)
	d.callNoWait("Exit", 0)
	h.guardExitStatus()
	h.waitDead(pids...)
	if got := h.cgroups(); len(got) > 0 {
		t.Errorf("%q is left", got)
	}
}

// What a guard that was killed has left behind is ended by the next, which knows from the lock that nobody owns it; what a
// living guard owns is left alone.
func TestNextGuardClears(t *testing.T) {
	t.Parallel()
	requireCgroups(t)
	h := startGuard(t)
	d := h.nextDaemon()
	_, pids := d.startWork(time.Hour)
	other := startGuard(t).nextDaemon()
	_, others := other.startWork(time.Hour)
	lock, err := openCgroup(h.cgroups()[0])
	if err != nil {
		t.Fatal(err)
	}
	h.killAtOnce(h.keeperPid(), d.pid, h.cmd.Process.Pid)
	h.guardExitStatus()
	if !alive(pids[1]) {
		t.Error("the test proves nothing: nobody has survived")
	}
	lock.close() // until now the guards of other tests had to leave it alone, too
	startGuard(t).nextDaemon()
	h.waitDead(pids...)
	h.checkAliveUntil(0, others...)
}

// Without control groups the log says so, once, and what to do.
func TestNoGroupsAreMentioned(t *testing.T) {
	log := new(strings.Builder)
	g := &guard{log: slog.New(slog.NewTextHandler(log, nil))}
	if err := g.setUpContainment(); err != nil {
		t.Fatal(err)
	}
	if delegatedCgroup() != "" && g.opt.Containment != CgroupContainment {
		t.Errorf("chose %s", g.opt.Containment)
	}
	log.Reset()
	g.opt.Containment = Auto
	g.chooseContainment("")
	if g.opt.Containment != KeeperContainment || !strings.Contains(log.String(), "Delegate=yes") {
		t.Errorf("chose %s and says %s", g.opt.Containment, log)
	}
	g.opt.Containment = CgroupContainment
	if err := g.chooseContainment(""); err == nil || !strings.Contains(err.Error(), "Delegate=yes") {
		t.Error(err)
	}
}

// Guards that are each process 1 of a container may make their groups in one place: none gets another's.
func TestNoTwoControlGroupsHaveOneName(t *testing.T) {
	requireCgroups(t)
	names := make(map[string]bool)
	for range 2 {
		c, err := newCgroup(delegatedCgroup(), 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.remove(); err != nil {
				t.Error(err)
			}
			c.close()
		})
		names[c.dir] = true
	}
	if len(names) != 2 {
		t.Errorf("only %v", names)
	}
}
