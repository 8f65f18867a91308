package guard

import (
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/sys/boottime"
)

// newBareKeeper returns a keeper whose methods a test calls directly, in its own process, and the guard's end of its socket.
func newBareKeeper(t *testing.T) (k *keeper, guard *os.File) {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	near, far, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	k = &keeper{guard: near, out: newOutbox(near, keeperOutbox), works: make(map[int]*task), launcher: &launcher{exits: make(map[int]syscall.WaitStatus)}}
	if k.timer, err = boottime.NewTimer(); err != nil {
		t.Fatal(err)
	}
	if k.children, err = openChildList(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.timer.Close(); k.children.close(); near.Close(); far.Close() })
	return k, far
}

// The keeper wakes up when something is due, and not before.
func TestKeeperNextCheck(t *testing.T) {
	at := boottime.Now() + time.Hour
	for _, c := range []struct {
		work *task
		want time.Duration
	}{
		{nil, 0},
		{&task{until: at}, at + keeperDelay},
		{&task{until: at, nextSweep: 7}, at + keeperDelay},
		{&task{until: at, killAt: at}, at},
		{&task{until: at, killAt: at + time.Hour}, at + keeperDelay},
		{&task{killing: true, killAt: 5}, 1},
		{&task{reaped: true, nextSweep: 7}, 7},
	} {
		k := &keeper{works: make(map[int]*task)}
		if c.work != nil {
			k.works[7], k.works[8] = c.work, &task{until: at + 2*time.Hour}
		}
		if got := k.nextCheck(); got != c.want {
			t.Errorf("%+v: %s, not %s", c.work, got, c.want)
		}
	}
}

// A child may exit before its start was reported: its exit is reported after that.
func TestExitBeforeTheStartIsReported(t *testing.T) {
	k, far := newBareKeeper(t)
	cmd, p := sleeper(t)
	w := &task{seq: 7, pid: p.Pid, launching: true}
	k.works[7], k.launcher.current = w, w
	cmd.Process.Kill()
	eventually(t, "the exit of all children", func() bool { k.reap(); return k.none })
	b := &bareGuard{t: t}
	if got := b.sent(far); len(got) != 0 {
		t.Errorf("sent %q before its start", got)
	}
	k.launched(w)
	if got := b.sent(far); !w.reaped || !slices.Equal(got, []string{"started 7", "exited 7 was killed by signal 9 (killed)"}) {
		t.Errorf("sent %q", got)
	}
}

// Work counts as dead only if the kernel says that there is no child, and nothing in the control group.
func TestKeeperSweep(t *testing.T) {
	k, _ := newBareKeeper(t)
	eventually(t, "the end of the children of earlier tests", func() bool { k.reap(); return k.none })
	unreadable := &cgroup{killFD: -1, eventsFD: -1}
	for name, c := range map[string]struct {
		task task
		dead bool
	}{
		"nothing":                            {task{reaped: true}, true},
		"nothing, killing":                   {task{reaped: true, killing: true}, true},
		"nothing, between two sweeps":        {task{reaped: true, nextSweep: time.Hour}, true},
		"a control group that can't be read": {task{reaped: true, group: unreadable}, false},
	} {
		w := c.task
		if w.nextSweep != 0 {
			w.nextSweep += boottime.Now()
		}
		w.pid = noPid
		if dead := k.sweep(&w); dead != c.dead {
			t.Errorf("%s: dead: %t", name, dead)
		}
	}
	w := task{pid: noPid}
	if k.sweep(&w) || w.sweeps > 0 {
		t.Errorf("work that may run was swept %d times", w.sweeps)
	}
	// What is left is not killed again before the next sweep, but its end counts at once.
	cmd, left := sleeper(t)
	w = task{pid: noPid, reaped: true, nextSweep: boottime.Now() + time.Hour}
	if k.sweep(&w) || w.sweeps > 0 || !alive(left.Pid) {
		t.Errorf("swept %d times before the next sweep", w.sweeps)
	}
	cmd.Process.Kill()
	eventually(t, "the end of what was left", func() bool { return k.sweep(&w) })
	if w.sweeps > 0 {
		t.Errorf("swept %d times", w.sweeps)
	}
	// A main process that was not waited for, as if it were traced, is not dead.
	w = task{pid: noPid, killing: true}
	if k.sweep(&w) || w.sweeps != eagerSweeps || w.nextSweep == 0 {
		t.Errorf("after %d sweeps %+v", w.sweeps, w)
	}
	if w.nextSweep = 0; k.sweep(&w) || w.sweeps != eagerSweeps+1 || w.nextSweep == 0 {
		t.Errorf("after %d sweeps, with pauses, %+v", w.sweeps, w)
	}
}

// Work whose processes exit faster than they can be waited for does not delay its own kill, nor that of other work:
// the keeper kills first, waits for a limited number of exits at a time, and goes on at once.
func TestExitsDelayNoKill(t *testing.T) {
	k, _ := newBareKeeper(t)
	main, p := sleeper(t)
	group := pipeGroup(t)
	k.works[7] = &task{seq: 7, pid: main.Process.Pid, killing: true, until: 1}
	k.works[8] = &task{seq: 8, pid: noPid, until: 1, group: group.cgroup}
	exits := 0
	k.reaper.wait4 = func(*syscall.WaitStatus) (int, error) {
		if exits++; exits == 1 {
			if got := group.written(); got != "1" {
				t.Errorf("before the first wait %q was written to cgroup.kill of the other work", got)
			}
			p.waitDead(t)
		}
		if exits > 1000*portionReaped {
			return -1, syscall.ECHILD
		}
		return noPid + exits, nil
	}
	k.advance()
	p.waitDead(t)
	if exits == 0 || exits > 4*eagerSweeps*portionReaped {
		t.Errorf("waited for %d processes", exits)
	}
	if at := k.nextCheck(); at != 1 {
		t.Errorf("goes on at %s", at)
	}
}

// killedGroup is a control group that only records that it was killed.
type killedGroup struct {
	*cgroup
	r *os.File
}

func pipeGroup(t *testing.T) killedGroup {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "kill")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return killedGroup{&cgroup{killFD: int(f.Fd()), eventsFD: -1}, f}
}

// written returns what was written to cgroup.kill.
func (g killedGroup) written() string { return read(g.r.Name()) }

// Each way of killing works without the others: by the process group of a main process that was not reaped, whose id cannot be
// reused; by children; and by the process groups of children.
func TestKeeperKill(t *testing.T) {
	for name, c := range map[string]struct {
		child       bool // the main process is a child of the keeper
		session     bool // its child has another session
		reaped      bool
		launching   bool // the launcher may be about to set the pid
		sweeps      int
		main, below bool // the main process and its child are killed
	}{
		"process group":               {main: true, below: true},
		"reaped":                      {reaped: true},
		"child":                       {child: true, session: true, reaped: true, main: true},
		"child's process group":       {child: true, reaped: true, main: true, below: true},
		"child that is being started": {child: true, launching: true, main: true},
		"descendants of the child's process group": {child: true, sweeps: 1, main: true, below: true},
	} {
		t.Run(name, func(t *testing.T) {
			k, _ := newBareKeeper(t)
			fx := &fixture{t: t, dir: t.TempDir()}
			belowScript := `sh -c 'echo $$ >$D/below; exec sleep 1000' &`
			if c.session {
				belowScript = "setsid " + belowScript
			}
			script := `echo $$ >$D/main; ` + belowScript + ` exec sleep 1000`
			cmd := exec.Command("sh", "-c", script)
			if !c.child {
				cmd = exec.Command("sh", "-c", "setsid sh -c \"$0\" &", script)
			}
			cmd.Env, cmd.SysProcAttr = []string{"D=" + fx.dir, "PATH=" + os.Getenv("PATH")}, &syscall.SysProcAttr{Setpgid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			mainPid, belowPid := fx.pidFromFile("main"), fx.pidFromFile("below")
			t.Cleanup(func() {
				syscall.Kill(mainPid, syscall.SIGKILL)
				syscall.Kill(belowPid, syscall.SIGKILL)
				cmd.Wait()
			})
			if !c.child {
				cmd.Wait()
			}
			_, last := sleeper(t) // a child in a separate process group
			w := &task{pid: mainPid, reaped: c.reaped, launching: c.launching, sweeps: c.sweeps}
			k.works[7] = w
			k.kill(w)
			last.waitDead(t)
			for pid, killed := range map[int]bool{mainPid: c.main, belowPid: c.below} {
				if killed {
					eventually(t, "a death", func() bool { return !alive(pid) })
				}
			}
			if alive(mainPid) == c.main || alive(belowPid) == c.below {
				t.Errorf("main process killed: %t, its child: %t", !alive(mainPid), !alive(belowPid))
			}
		})
	}
}

// A kill is that of one work. When the guard is gone, all works are killed, and nothing is sent to it any more.
func TestKeeperWithoutGuard(t *testing.T) {
	k, far := newBareKeeper(t)
	b := &bareGuard{t: t}
	w, other := &task{seq: 7, pid: noPid, spec: new(Spec)}, &task{seq: 9, pid: noPid, spec: new(Spec)}
	k.works = map[int]*task{7: w, 9: other}
	k.receive(incoming{msg: message{Kind: kindKill, Seq: 7}})
	if got := b.sent(far); !w.killing || other.killing || !slices.Equal(got, []string{"killing 7"}) {
		t.Errorf("killed: %t, %t, sent %q", w.killing, other.killing, got)
	}
	k.receive(incoming{err: io.EOF})
	k.send(message{Kind: kindDead})
	if got := b.sent(far); !other.killing || !k.orphaned || len(got) != 0 {
		t.Errorf("%+v, sent %q", k, got)
	}
}

// The keeper reports once that the work does not die although it was killed, and when that is over.
func TestKeeperReportsUnkillableWork(t *testing.T) {
	k, far := newBareKeeper(t)
	b := &bareGuard{t: t}
	w := &task{pid: noPid, seq: 7, sweeps: eagerSweeps + 1, killStarted: boottime.Now() - unkillableAfter/2}
	k.kill(w)
	if got := b.sent(far); len(got) != 0 {
		t.Errorf("within %s it sent %q", unkillableAfter, got)
	}
	w.killStarted = boottime.Now() - 2*unkillableAfter
	w.sweeps = eagerSweeps // as on a busy machine
	if k.kill(w); len(b.sent(far)) != 0 {
		t.Error("reported before the delays between sweeps")
	}
	w.sweeps++
	for range 2 {
		k.kill(w)
	}
	if got := b.sent(far); len(got) != 1 || !strings.HasPrefix(got[0], "unkillable 7 some of the work still runs") {
		t.Errorf("sent %q", got)
	}
	w.sweeps = 0
	before := boottime.Now()
	if k.kill(w); w.killStarted < before {
		t.Error("the time of the first sweep was not recorded")
	}
	k.works[7], w.reaped = w, true
	eventually(t, "the end of all children", func() bool { k.reap(); return k.none })
	k.conclude(w)
	if got := b.sent(far); !slices.Equal(got, []string{"unkillable 7", "dead 7"}) {
		t.Errorf("when nothing is left it sent %q", got)
	}
}
