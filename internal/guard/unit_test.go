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

	"zkelectd/internal/boottime"
)

// unitGroup plays systemd for one unit: its control group, and what runs there. The rest is scripts/systemd-guest-unit.sh.
type unitGroup struct {
	t    *testing.T
	dir  string
	unit Unit
}

// newUnitGroup returns nil where no control groups can be made.
func newUnitGroup(t *testing.T) *unitGroup {
	t.Helper()
	mount, own := ownCgroup()
	if !divisible(t) {
		t.Log("no control groups here")
		return nil
	}
	u := Unit{Name: "app.service", Group: filepath.Join(own, fmt.Sprintf("unit-test-%d-%d", os.Getpid(), boottime.Now())), Permit: filepath.Join(t.TempDir(), "leader.env")}
	g := &unitGroup{t: t, dir: filepath.Join(mount, u.Group), unit: u}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		(&cgroup{dir: g.dir}).kill()
		eventually(t, "the end of the unit", func() bool {
			err := os.Remove(g.dir)
			return err == nil || os.IsNotExist(err)
		})
	})
	return g
}

// run starts a process of the unit's.
func (g *unitGroup) run(script string) int {
	g.t.Helper()
	dir, err := os.Open(g.dir)
	if err != nil {
		g.t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // ends with the process, which the cleanup kills
		cmd.Wait()
		close(done)
	}()
	g.t.Cleanup(func() { <-done })
	return cmd.Process.Pid
}

// start has the guard allow the unit, and runs it.
func (g *unitGroup) start(d *remote, lease time.Duration) (deadline time.Duration, pid int) {
	g.t.Helper()
	ask[time.Duration](d, "Lease", time.Hour)
	ask[int](d, "Start", WorkOptions{Unit: &g.unit, Env: []string{"ZKELECTD_TERM=7", `A=a "b" $c \d` + "`e"}})
	pid = g.run("trap '' TERM; setsid sleep 1000 & while :; do sleep 0.01; done")
	eventually(g.t, "the unit", func() bool { return g.unit.Runs() })
	return ask[time.Duration](d, "Lease", lease), pid
}

func (g *unitGroup) permitted() bool {
	_, err := os.Stat(g.unit.Permit)
	return err == nil
}

// S1, whoever fails: the permit is gone, and the control group is empty.
func TestUnitEndsWithItsLease(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*house, *remote){
		"the daemon is stopped": func(_ *house, d *remote) { syscall.Kill(d.pid, syscall.SIGSTOP) },
		"the guard is stopped":  func(h *house, _ *remote) { h.signal(syscall.SIGSTOP) },
	} {
		g := newUnitGroup(t)
		if g == nil {
			return
		}
		h := newHouse(t)
		d := h.daemon()
		deadline, pid := g.start(d, 400*time.Millisecond)
		eventually(t, "the confirmation", func() bool { return ask[time.Duration](d, "Confirmed", 0) == deadline })
		fail(h, d)
		late(t, h.dead(pid), deadline)
		eventually(t, name+": the end of all", func() bool { return !g.unit.Runs() && !g.permitted() })
	}
}

// A daemon or a guard that dies takes the unit along at once, long before the lease ends.
func TestUnitEndsWithItsGuards(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*house, *remote){
		"the daemon is killed":      func(_ *house, d *remote) { syscall.Kill(d.pid, syscall.SIGKILL) },
		"the guard is killed":       func(h *house, _ *remote) { h.signal(syscall.SIGKILL) },
		"the daemon hangs up":       func(_ *house, d *remote) { d.last("HangUp", 0) },
		"the unit is to die":        func(_ *house, d *remote) { ask[int](d, "Kill", 0) },
		"it may stop, and does not": func(_ *house, d *remote) { ask[int](d, "Stop", 50*time.Millisecond) },
	} {
		g := newUnitGroup(t)
		if g == nil {
			return
		}
		h := newHouse(t)
		d := h.daemon()
		_, pid := g.start(d, time.Hour)
		fail(h, d)
		h.dead(pid)
		eventually(t, name+": the end of all", func() bool { return !g.unit.Runs() && !g.permitted() })
	}
}

// A stop takes the permit away at once and leaves the unit its time; it is dead when its control group is gone.
func TestUnitStops(t *testing.T) {
	t.Parallel()
	g := newUnitGroup(t)
	if g == nil {
		return
	}
	h := newHouse(t)
	d := h.daemon()
	_, pid := g.start(d, time.Hour)
	if text := read(g.unit.Permit); !strings.Contains(text, "ZKELECTD_TERM=\"7\"\n") || !strings.Contains(text, `A="a \"b\" \$c \\d`+"\\`e\"\n") {
		t.Errorf("the permit says\n%s", text)
	}
	if err := g.unit.Entrusted(); err != nil {
		t.Error(err)
	}
	ask[int](d, "Stop", time.Hour)
	eventually(t, "the end of the permit", func() bool { return !g.permitted() })
	if !alive(pid) {
		t.Error("it is killed already")
	}
	(&cgroup{dir: g.dir}).kill() // as systemd would
	if e := ask[Ending](d, "Dead", 0); e.Status != "has stopped" {
		t.Errorf("%+v", e)
	}
	ask[time.Duration](d, "Lease", time.Hour)
	ask[int](d, "Start", h.shell("exit 0")) // the guard goes on
}

// Between two processes of a unit its control group is empty for a moment: it is not dead yet, and what comes is killed.
func TestUnitThatIsAboutToStart(t *testing.T) {
	t.Parallel()
	g := newUnitGroup(t)
	if g == nil {
		return
	}
	e, err := newEnd(g.unit)
	if err != nil {
		t.Fatal(err)
	}
	if e.sweep(true) {
		t.Fatal("it is called dead")
	}
	pid := g.run("exec sleep 1000")
	eventually(t, "its death", func() bool { return !e.sweep(true) && !alive(pid) })
	began := boottime.Now()
	eventually(t, "the lull", func() bool { return e.sweep(true) })
	if took := boottime.Now() - began; took < lull/2 {
		t.Errorf("only %s", took)
	}
}

// What both have left behind is ended from outside, before the session is closed.
func TestUnitOfTheDead(t *testing.T) {
	t.Parallel()
	g := newUnitGroup(t)
	if g == nil {
		return
	}
	h := newHouse(t, "RESPAWN=no")
	d := h.daemon()
	ask[int](d, "Session", h.credentials())
	_, pid := g.start(d, time.Hour)
	eventually(t, "the session file", func() bool {
		f, err := ReadSession(h.credentials().File)
		return err == nil && f.Unit != nil
	})
	syscall.Kill(d.pid, syscall.SIGSTOP)
	h.signal(syscall.SIGKILL)
	syscall.Kill(d.pid, syscall.SIGKILL)
	h.dead(d.pid, h.cmd.Process.Pid)
	f, err := ReadSession(h.credentials().File)
	if err != nil {
		t.Fatal(err)
	}
	if !alive(pid) {
		t.Error("who has killed it?")
	}
	if err := Admit(g.unit.Permit); err == nil || !strings.Contains(err.Error(), "which is dead") {
		t.Errorf("the permit of a dead guard: %v", err)
	}
	if err := f.EndUnit(time.Minute); err != nil {
		t.Fatal(err)
	}
	if alive(pid) || g.permitted() {
		t.Error("it goes on")
	}
}

func TestUnitsThatAreNone(t *testing.T) {
	for _, group := range []string{"", "/", "app.service", "/a/../b", "/a/"} {
		if _, err := (Unit{Group: group}).dir(); err == nil {
			t.Errorf("%q is taken for a control group", group)
		}
	}
	for name, permit := range map[string]string{"none": "", "empty": "\n", "other": "A=b\n", "no guard": permitHead + "4194300 1: x\n",
		"another's number": fmt.Sprintf(permitHead+"%d 1: x\n", os.Getpid())} {
		file := filepath.Join(t.TempDir(), "leader.env")
		if permit != "" {
			if err := os.WriteFile(file, []byte(permit), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := Admit(file); err == nil || !strings.Contains(err.Error(), "this host does not lead") && !strings.Contains(err.Error(), "is no permit") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
