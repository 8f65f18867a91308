package guard

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// groups are the control groups that a guard has made.
func (h *house) groups() []string {
	all, _ := filepath.Glob(filepath.Join(cgroupParent(), fmt.Sprintf("%s%d-*", cgroupPrefix, h.cmd.Process.Pid)))
	return all
}

// divisible tells whether control groups can be made here.
func divisible(t *testing.T) bool {
	t.Helper()
	c := newCgroup(cgroupParent(), 1)
	defer c.close()
	return c != nil
}

// Where there can be none, everything works without.
func TestNoCgroup(t *testing.T) {
	for _, parent := range []string{"", "/no/such/directory", t.TempDir()} {
		c := newCgroup(parent, 1)
		if c != nil {
			t.Errorf("%q: a control group in a plain directory", parent)
		}
		c.kill()
		if c.fd() != -1 || c.populated() {
			t.Errorf("%q: %d", parent, c.fd())
		}
		c.close()
		if left, _ := filepath.Glob(filepath.Join(parent, cgroupPrefix+"*")); parent != "" && len(left) > 0 {
			t.Errorf("%q is left", left)
		}
		clearCgroups(parent)
	}
}

func TestCgroupKillsAll(t *testing.T) {
	c := newCgroup(cgroupParent(), 2)
	if c == nil {
		t.Log("no control groups here")
		return
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
	c.close()
	if _, err := os.Stat(c.dir); !os.IsNotExist(err) {
		t.Errorf("the group is left: %v", err)
	}
}

// The work is in a group of its own where there can be one; with the work the group goes.
func TestCgroupOfTheWork(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	d := h.daemon()
	_, pids := d.work(time.Hour)
	want := 0
	if divisible(t) {
		want = 1
	}
	if got := h.groups(); len(got) != want {
		t.Errorf("control groups %q", got)
	}
	if divisible(t) { // not even what is no descendant of the guard escapes
		stranger := exec.Command("sleep", "1000")
		if err := stranger.Start(); err != nil {
			t.Fatal(err)
		}
		defer stranger.Wait()
		defer stranger.Process.Kill()
		if err := os.WriteFile(filepath.Join(h.groups()[0], "cgroup.procs"), fmt.Append(nil, stranger.Process.Pid), 0); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, stranger.Process.Pid)
	}
	ask[int](d, "Kill", 0)
	ask[Ending](d, "Dead", 0)
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("%d survives", pid)
		}
	}
	if got := h.groups(); len(got) > 0 {
		t.Errorf("%q is left", got)
	}
	os.Remove(filepath.Join(h.dir, "hidden"))
	_, pids = d.work(time.Hour)
	d.last("End", 0)
	h.status()
	h.dead(pids...)
	if got := h.groups(); len(got) > 0 {
		t.Errorf("%q is left", got)
	}
}

// What a guard that was killed has left behind is ended by the next.
func TestNextGuardClears(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	d := h.daemon()
	_, pids := d.work(time.Hour)
	h.signal(syscall.SIGSTOP)
	syscall.Kill(d.pid, syscall.SIGKILL)
	h.signal(syscall.SIGKILL)
	h.status()
	newHouse(t).daemon()
	h.dead(pids[0])
	if divisible(t) {
		h.dead(pids...)
	}
}

// Without control groups the log says so, once, and what to do.
func TestNoGroupsAreMentioned(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "GROUPS=no")
	d := h.daemon()
	ask[time.Duration](d, "Lease", time.Hour)
	for range 2 {
		ask[int](d, "Start", h.shell("exit 0"))
		ask[Ending](d, "Dead", 0)
	}
	said := func() int { return strings.Count(read(filepath.Join(h.dir, "log")), "Delegate=yes") }
	if len(h.groups()) == 0 && cgroupParent() == "" || strings.Contains(read(filepath.Join(h.dir, "log")), "control groups hidden: <nil>") {
		eventually(t, "the advice", func() bool { return said() == 1 })
	}
}
