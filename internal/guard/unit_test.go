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
type fakeUnit struct {
	t    *testing.T
	dir  string
	unit Unit
}

func newFakeUnit(t *testing.T) *fakeUnit {
	t.Helper()
	mount, own := ownCgroup()
	requireCgroups(t)
	name := fmt.Sprintf("unit-test-%d-%d", os.Getpid(), boottime.Now())
	u := Unit{Name: "app.service", Group: filepath.Join(own, name), Permit: PermitDir() + "-" + name}
	g := &fakeUnit{t: t, dir: filepath.Join(mount, u.Group), unit: u}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		os.Remove(u.Permit)
		g.kill()
		eventually(t, "the end of the unit", func() bool {
			err := os.Remove(g.dir)
			return err == nil || os.IsNotExist(err)
		})
	})
	return g
}

// run starts a process of the unit's.
func (g *fakeUnit) run(script string) int {
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
	g.t.Cleanup(func() {
		g.kill()
		<-done
	})
	return cmd.Process.Pid
}

// start has the guard allow the unit, and runs it.
func (g *fakeUnit) start(d *remoteDaemon, lease time.Duration) (deadline time.Duration, pid int) {
	g.t.Helper()
	call[time.Duration](d, "SetLease", time.Hour)
	call[int](d, "Start", WorkOptions{Unit: &g.unit})
	pid = g.run("trap '' TERM; setsid sleep 1000 & while :; do sleep 0.01; done")
	eventually(g.t, "the unit", func() bool { return g.unit.MayRun() })
	return call[time.Duration](d, "SetLease", lease), pid
}

// kill kills all of the unit.
func (g *fakeUnit) kill() {
	os.WriteFile(filepath.Join(g.dir, killFile), []byte("1"), 0)
}

func (g *fakeUnit) permitted() bool {
	_, err := os.Stat(g.unit.Permit)
	return err == nil
}

// S1, whoever fails: the permit is gone, and the control group is empty.
func TestUnitEndsWithItsLease(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*fixture, *remoteDaemon){
		"the daemon is stopped": func(_ *fixture, d *remoteDaemon) { syscall.Kill(d.pid, syscall.SIGSTOP) },
		"the guard is stopped":  func(fx *fixture, _ *remoteDaemon) { fx.signalGuard(syscall.SIGSTOP) },
	} {
		g := newFakeUnit(t)
		fx := startGuard(t)
		d := fx.nextDaemon()
		deadline, pid := g.start(d, 400*time.Millisecond)
		eventually(t, "the confirmation", func() bool { return call[time.Duration](d, "Confirmed", 0) == deadline })
		fail(fx, d)
		checkNotLate(t, fx.waitDead(pid), deadline)
		eventually(t, name+": the end of all", func() bool { return !g.unit.MayRun() && !g.permitted() })
	}
}

// A daemon or a guard that dies takes the unit along at once, long before the lease ends.
func TestUnitEndsWithItsGuards(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*fixture, *remoteDaemon){
		"the daemon is killed":      func(_ *fixture, d *remoteDaemon) { syscall.Kill(d.pid, syscall.SIGKILL) },
		"the guard is killed":       func(fx *fixture, _ *remoteDaemon) { fx.signalGuard(syscall.SIGKILL) },
		"the daemon hangs up":       func(_ *fixture, d *remoteDaemon) { d.callNoWait("HangUp", 0) },
		"the unit is to die":        func(_ *fixture, d *remoteDaemon) { call[int](d, "Kill", 0) },
		"it may stop, and does not": func(_ *fixture, d *remoteDaemon) { call[int](d, "Stop", 50*time.Millisecond) },
	} {
		g := newFakeUnit(t)
		fx := startGuard(t)
		d := fx.nextDaemon()
		_, pid := g.start(d, time.Hour)
		fail(fx, d)
		fx.waitDead(pid)
		eventually(t, name+": the end of all", func() bool { return !g.unit.MayRun() && !g.permitted() })
	}
}

// A stop takes the permit away at once and leaves the unit its time; it is dead when its control group is gone.
func TestUnitStops(t *testing.T) {
	t.Parallel()
	g := newFakeUnit(t)
	fx := startGuard(t)
	d := fx.nextDaemon()
	_, pid := g.start(d, time.Hour)
	if text := read(filepath.Join(g.unit.Permit, PermitFile)); text == "" || strings.Contains(text, "=") {
		t.Errorf("the permit, an EnvironmentFile=, has the text %q", text)
	}
	if err := g.unit.CheckKillGranted(); err != nil {
		t.Error(err)
	}
	call[int](d, "Stop", time.Hour)
	eventually(t, "the end of the permit", func() bool { return !g.permitted() })
	if !alive(pid) {
		t.Error("it is killed already")
	}
	g.kill() // as systemd would
	if e := call[ExitInfo](d, "Dead", 0); e.Status != "has stopped" {
		t.Errorf("%+v", e)
	}
	call[time.Duration](d, "SetLease", time.Hour)
	call[int](d, "Start", fx.shell("exit 0")) // the guard goes on
}

// Between two processes of a unit its control group is empty for a moment: it is not dead yet, and what comes is killed.
func TestUnitThatIsAboutToStart(t *testing.T) {
	t.Parallel()
	g := newFakeUnit(t)
	e, err := newUnitKiller(g.unit)
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
	if took := boottime.Now() - began; took < quietTime/2 {
		t.Errorf("only %s", took)
	}
}

// What both have left behind is ended from outside, before the session is closed.
func TestUnitOfTheDead(t *testing.T) {
	t.Parallel()
	g := newFakeUnit(t)
	fx := startGuard(t, "RESPAWN=no")
	d := fx.nextDaemon()
	call[int](d, "SetSession", fx.credentials())
	_, pid := g.start(d, time.Hour)
	eventually(t, "the session file", func() bool {
		f, err := ReadSessionFile(fx.credentials().File)
		return err == nil && f.Unit != nil
	})
	syscall.Kill(d.pid, syscall.SIGSTOP)
	fx.signalGuard(syscall.SIGKILL)
	syscall.Kill(d.pid, syscall.SIGKILL)
	f, err := ReadSessionFile(fx.credentials().File)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Processes {
		eventually(t, "the end of the "+p.Role, func() bool { return p.checkEnded() == nil })
	}
	if !alive(pid) {
		t.Error("who has killed it?")
	}
	if err := f.EnsureDead(time.Minute); err != nil {
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
}

// The permit is where the daemon's user can make it, and nothing else than the kernel's files.
func TestPermitHoldsNothingOfItsUser(t *testing.T) {
	t.Parallel()
	g := newFakeUnit(t)
	if err := g.unit.grantPermit(); err != nil {
		t.Fatal(err)
	}
	if err := g.unit.grantPermit(); err != nil {
		t.Errorf("a permit that a dead guard has left: %v", err)
	}
	if !g.permitted() {
		t.Error("there is no permit")
	}
	for what, err := range map[string]error{
		"a FIFO": syscall.Mkfifo(filepath.Join(g.unit.Permit, "x"), 0o600), "a link": os.Symlink("/etc/passwd", filepath.Join(g.unit.Permit, "x")),
		"a file": os.WriteFile(filepath.Join(g.unit.Permit, "x"), []byte("LD_PRELOAD=x\n"), 0o600), "another name": os.Rename(filepath.Join(g.unit.Permit, "cgroup.procs"), filepath.Join(g.unit.Permit, PermitFile)),
	} {
		if err == nil {
			t.Errorf("%s can be put there", what)
		}
	}
}

// The guard opens the unit's control group as soon as it is there, which may be before the unit has entrusted it (Admit).
// What could not be killed then must be killed later.
func TestUnitIsEntrustedLate(t *testing.T) {
	t.Parallel()
	g := newFakeUnit(t)
	pid := g.run("exec sleep 1000")
	e, err := newUnitKiller(g.unit)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	e.open()
	syscall.Close(e.group.killFD) // as openUnitGroup leaves it where cgroup.kill may not be written
	e.group.killFD = -1
	eventually(t, "the end of the unit", func() bool { return e.sweep(true) })
	if alive(pid) {
		t.Errorf("process %d is still alive", pid)
	}
}

// A unit gives its control group to the user of the guard, also where systemd keeps what comes before the service beside it.
func TestAUnitEntrustsItsGroup(t *testing.T) {
	const user = 65534
	for _, below := range []string{"", ".control"} {
		g := newFakeUnit(t)
		dir := filepath.Join(g.dir, below)
		if below != "" {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			defer func() { eventually(t, "the end of the control group", func() bool { return os.Remove(dir) == nil }) }()
		}
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "ROLE=unit", fmt.Sprint("USER_ID=", user))
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
		out, err := cmd.CombinedOutput()
		f.Close()
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		info, err := os.Stat(filepath.Join(g.dir, killFile))
		if err != nil {
			t.Fatal(err)
		}
		if s := info.Sys().(*syscall.Stat_t); s.Uid != user || s.Gid != user {
			t.Errorf("%q: it is user %d's, group %d's", below, s.Uid, s.Gid)
		}
	}
}

// A unit whose permit can't be taken away may be started at any moment: it is not dead.
func TestUnitWithAPermitIsNotDead(t *testing.T) {
	g := newFakeUnit(t)
	if err := g.unit.grantPermit(); err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(g.unit.Permit, "group") // what has one can't be removed
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(inside)
	e, err := newUnitKiller(g.unit)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	began := boottime.Now()
	eventually(t, "some time", func() bool {
		if e.sweep(true) {
			t.Fatal("it is called dead")
		}
		return boottime.Now() > began+quietTime+quietTime/2
	})
	if err := os.Remove(inside); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its end", func() bool { return e.sweep(true) })
	if g.permitted() {
		t.Error("the permit is there")
	}
}

func TestServiceOfAControlGroup(t *testing.T) {
	for group, want := range map[string]string{"": "", "/": "", "/system.slice": "", "/system.slice/zkelectd.service": "zkelectd.service", "/a.slice/b.service/c": "b.service"} {
		if got := serviceInPath(group); got != want {
			t.Errorf("%s: %q, not %q", group, got, want)
		}
	}
}
