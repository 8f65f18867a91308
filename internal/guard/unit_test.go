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

	"zkelectd/internal/sys/boottime"
)

// fakeUnit plays systemd for one unit: it creates the unit's control group and starts processes in it. A real systemd is tested
// by scripts/systemd-guest-unit.sh.
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
	unit := Unit{Name: "app.service", Group: filepath.Join(own, name), Permit: PermitDir(name)}
	u := &fakeUnit{t: t, dir: filepath.Join(mount, unit.Group), unit: unit}
	if err := os.Mkdir(u.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		os.Remove(unit.Permit)
		u.kill()
		eventually(t, "the removal of the control group", func() bool {
			err := os.Remove(u.dir)
			return err == nil || os.IsNotExist(err)
		})
	})
	return u
}

// run starts a process of the unit.
func (u *fakeUnit) run(script string) int {
	u.t.Helper()
	dir, err := os.Open(u.dir)
	if err != nil {
		u.t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // ends with the process, which the cleanup kills
		cmd.Wait()
		close(done)
	}()
	u.t.Cleanup(func() {
		u.kill()
		<-done
	})
	return cmd.Process.Pid
}

// start lets the guard permit the unit, and then runs it.
func (u *fakeUnit) start(d *remoteDaemon, lease time.Duration) (deadline time.Duration, pid int) {
	u.t.Helper()
	call[time.Duration](d, "SetLease", time.Hour)
	call[int](d, "Start", Spec{Unit: &u.unit})
	pid = u.run("trap '' TERM; setsid sleep 1000 & while :; do sleep 0.01; done")
	eventually(u.t, "the unit", func() bool { return u.unit.MayRun() })
	return call[time.Duration](d, "SetLease", lease), pid
}

// kill kills all processes of the unit.
func (u *fakeUnit) kill() {
	os.WriteFile(filepath.Join(u.dir, killFile), []byte("1"), 0)
}

// permitted reports whether the permit exists.
func (u *fakeUnit) permitted() bool {
	_, err := os.Stat(u.unit.Permit)
	return err == nil
}

// S1 holds whichever process fails: the permit is removed, and the control group is empty.
func TestUnitEndsWithItsLease(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*fixture, *remoteDaemon){
		"the daemon is stopped": func(_ *fixture, d *remoteDaemon) { syscall.Kill(d.pid, syscall.SIGSTOP) },
		"the guard is stopped":  func(fx *fixture, _ *remoteDaemon) { fx.signalGuard(syscall.SIGSTOP) },
	} {
		u := newFakeUnit(t)
		fx, d := startDaemon(t)
		deadline, pid := u.start(d, 400*time.Millisecond)
		eventually(t, "the confirmation", func() bool { return call[time.Duration](d, "Confirmed", 0) == deadline })
		fail(fx, d)
		checkNotLate(t, fx.waitDead(pid), deadline)
		eventually(t, name+": the end of the unit", func() bool { return !u.unit.MayRun() && !u.permitted() })
	}
}

// When the daemon or the guard dies the unit is killed at once, long before the lease ends.
func TestUnitIsKilledWithDaemonOrGuard(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*fixture, *remoteDaemon){
		"the daemon is killed":     func(_ *fixture, d *remoteDaemon) { syscall.Kill(d.pid, syscall.SIGKILL) },
		"the guard is killed":      func(fx *fixture, _ *remoteDaemon) { fx.signalGuard(syscall.SIGKILL) },
		"the daemon hangs up":      func(_ *fixture, d *remoteDaemon) { d.callNoWait("HangUp", 0) },
		"the daemon kills it":      func(_ *fixture, d *remoteDaemon) { call[int](d, "Kill", 0) },
		"it does not stop in time": func(_ *fixture, d *remoteDaemon) { call[int](d, "Stop", 50*time.Millisecond) },
	} {
		u := newFakeUnit(t)
		fx, d := startDaemon(t)
		_, pid := u.start(d, time.Hour)
		fail(fx, d)
		fx.waitDead(pid)
		eventually(t, name+": the end of the unit", func() bool { return !u.unit.MayRun() && !u.permitted() })
	}
}

// A unit that is asked to stop keeps its permit, which systemd needs to run ExecStop= and ExecStopPost=, until its control group
// is empty. Then the permit is removed, and the unit is dead.
func TestUnitStops(t *testing.T) {
	t.Parallel()
	u := newFakeUnit(t)
	fx, d := startDaemon(t)
	_, pid := u.start(d, time.Hour)
	if text := read(filepath.Join(u.unit.Permit, PermitFile)); text == "" || strings.Contains(text, "=") {
		t.Errorf("the permit, an EnvironmentFile=, contains %q", text)
	}
	if err := u.unit.CheckKillGranted(); err != nil {
		t.Error(err)
	}
	call[int](d, "Stop", time.Hour)
	asked := boottime.Now()
	eventually(t, "some of the grace period", func() bool {
		if !alive(pid) || !u.permitted() {
			t.Fatal("it was killed, or lost its permit, within its grace period")
		}
		return boottime.Now() > asked+2*quietTime
	})
	u.kill() // as systemd would
	if e := call[ExitInfo](d, "Dead", 0); e.Status != "has stopped" {
		t.Errorf("%+v", e)
	}
	if u.permitted() {
		t.Error("it counts as dead while it has a permit")
	}
	call[time.Duration](d, "SetLease", time.Hour)
	call[int](d, "Start", fx.shell("exit 0")) // the guard still works
}

// permittedUnit returns a unit with a permit, and its container.
func permittedUnit(t *testing.T) (*fakeUnit, *unitContainer) {
	t.Helper()
	u := newFakeUnit(t)
	if err := u.unit.grantPermit(); err != nil {
		t.Fatal(err)
	}
	k, err := newUnitContainer(u.unit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return u, k
}

// Between the end of its main process and ExecStopPost= the control group of a unit that stops is empty for a moment.
func TestPermitBetweenProcesses(t *testing.T) {
	t.Parallel()
	u, k := permittedUnit(t)
	if k.Empty() == nil || !u.permitted() {
		t.Error("it counts as dead, or has lost its permit, while systemd may start its next process")
	}
	u.run("exec sleep 1000")
	if k.Empty() == nil || !u.permitted() {
		t.Error("it counts as dead, or has lost its permit, while a process runs")
	}
	u.kill()
	killed := boottime.Now()
	eventually(t, "its death", func() bool { return k.Empty() == nil })
	if took := boottime.Now() - killed; took < 2*quietTime || u.permitted() {
		t.Errorf("dead after %s, permitted %v", took, u.permitted())
	}
}

// The quiet time of a unit that stops does not count if its permit is removed only now, by a kill.
func TestKillOfAQuietUnit(t *testing.T) {
	t.Parallel()
	u, k := permittedUnit(t)
	k.Empty()
	k.quietSince = max(1, boottime.Now()-quietTime) // it was asked to stop, and has been quiet since then
	if err := k.Kill(); err != nil || u.permitted() {
		t.Fatal("the permit was not removed", err)
	}
	killed := boottime.Now()
	eventually(t, "its death", func() bool { return k.Empty() == nil })
	if took := boottime.Now() - killed; took < quietTime {
		t.Errorf("dead %s after the permit was removed", took)
	}
}

// Between two processes of a unit its control group is empty for a moment. The unit does not count as dead then, and the next
// process is killed.
func TestUnitBetweenProcesses(t *testing.T) {
	t.Parallel()
	u := newFakeUnit(t)
	k, err := newUnitContainer(u.unit)
	if err != nil {
		t.Fatal(err)
	}
	if killAndCheck(k) == nil {
		t.Fatal("it counts as dead")
	}
	pid := u.run("exec sleep 1000")
	eventually(t, "its death", func() bool { return killAndCheck(k) != nil && !alive(pid) })
	began := boottime.Now()
	eventually(t, "the quiet time", func() bool { return killAndCheck(k) == nil })
	if took := boottime.Now() - began; took < quietTime/2 {
		t.Errorf("only %s", took)
	}
}

// EnsureDead kills a unit that guard and daemon have left behind.
func TestEnsureDeadKillsUnit(t *testing.T) {
	t.Parallel()
	u := newFakeUnit(t)
	fx, d := startDaemon(t, "RESPAWN=no")
	call[int](d, "SetSession", fx.credentials())
	_, pid := u.start(d, time.Hour)
	eventually(t, "the session file", func() bool {
		f, err := ReadSessionFile(fx.credentials().File)
		return err == nil && len(f.Leaderships) == 1 && f.Leaderships[0].Unit != nil
	})
	fx.killAtOnce(d.pid, fx.cmd.Process.Pid) // otherwise one of them may still notice the end of the other, and kill the unit
	f, err := ReadSessionFile(fx.credentials().File)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Processes {
		eventually(t, "the end of the "+p.Role, func() bool { return p.checkEnded() == nil })
	}
	if !alive(pid) {
		t.Error("the unit is already dead")
	}
	if err := f.EnsureDead(time.Minute); err != nil {
		t.Fatal(err)
	}
	if alive(pid) || u.permitted() {
		t.Error("the unit still runs")
	}
}

func TestInvalidUnitGroup(t *testing.T) {
	for _, group := range []string{"", "/", "app.service", "/a/../b", "/a/"} {
		if _, err := (Unit{Group: group}).dir(); err == nil {
			t.Errorf("%q is accepted as a control group", group)
		}
	}
}

// The daemon's user can create the permit, but cannot put files into it.
func TestPermitHasOnlyKernelFiles(t *testing.T) {
	t.Parallel()
	u := newFakeUnit(t)
	if err := u.unit.grantPermit(); err != nil {
		t.Fatal(err)
	}
	if err := u.unit.grantPermit(); err != nil {
		t.Errorf("with the permit of a dead guard: %v", err)
	}
	if !u.permitted() {
		t.Error("there is no permit")
	}
	for what, err := range map[string]error{
		"a FIFO": syscall.Mkfifo(filepath.Join(u.unit.Permit, "x"), 0o600), "a link": os.Symlink("/etc/passwd", filepath.Join(u.unit.Permit, "x")),
		"a file": os.WriteFile(filepath.Join(u.unit.Permit, "x"), []byte("LD_PRELOAD=x\n"), 0o600), "another name": os.Rename(filepath.Join(u.unit.Permit, "cgroup.procs"), filepath.Join(u.unit.Permit, PermitFile)),
	} {
		if err == nil {
			t.Errorf("%s can be created there", what)
		}
	}
}

// The guard may open the unit's control group before the unit has granted the right to kill it (see package admission). It must
// be able to kill the unit later.
func TestKillIsGrantedLate(t *testing.T) {
	t.Parallel()
	u := newFakeUnit(t)
	pid := u.run("exec sleep 1000")
	k, err := newUnitContainer(u.unit)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	k.open()
	syscall.Close(k.group.killFD) // as openCgroupFiles leaves it without permission to write cgroup.kill
	k.group.killFD = -1
	eventually(t, "the death of the unit", func() bool { return killAndCheck(k) == nil })
	if alive(pid) {
		t.Errorf("process %d is still alive", pid)
	}
}

// A unit grants the guard's user the right to kill it, even if systemd runs its ExecCondition= in a separate control group.
func TestGrantKill(t *testing.T) {
	const user = 65534
	for _, below := range []string{"", ".control"} {
		u := newFakeUnit(t)
		dir := filepath.Join(u.dir, below)
		if below != "" {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			defer func() {
				eventually(t, "the removal of the control group", func() bool { return os.Remove(dir) == nil })
			}()
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
		info, err := os.Stat(filepath.Join(u.dir, killFile))
		if err != nil {
			t.Fatal(err)
		}
		if s := info.Sys().(*syscall.Stat_t); s.Uid != user || s.Gid != user {
			t.Errorf("%q: cgroup.kill belongs to user %d, group %d", below, s.Uid, s.Gid)
		}
	}
}

// A unit whose permit cannot be removed may be started at any moment, so it does not count as dead.
func TestUnitWithAPermitIsNotDead(t *testing.T) {
	u := newFakeUnit(t)
	if err := u.unit.grantPermit(); err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(u.unit.Permit, "group") // prevents the removal
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(inside)
	k, err := newUnitContainer(u.unit)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	began := boottime.Now()
	eventually(t, "some time", func() bool {
		if killAndCheck(k) == nil {
			t.Fatal("it counts as dead")
		}
		return boottime.Now() > began+quietTime+quietTime/2
	})
	if err := os.Remove(inside); err != nil {
		t.Fatal(err)
	}
	removed := boottime.Now()
	eventually(t, "its death", func() bool { return killAndCheck(k) == nil })
	if took := boottime.Now() - removed; took < quietTime { // systemd may have seen the permit until then
		t.Errorf("dead %s after the permit could be removed", took)
	}
	if u.permitted() {
		t.Error("the permit still exists")
	}
}
