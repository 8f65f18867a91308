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

	"zkelectd/internal/boottime"
)

// loneKeeper is a keeper whose parts a test calls one by one, with the test for its process.
func newBareKeeper(t *testing.T) (k *keeper, guard *os.File) {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	near, far, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	k = &keeper{guard: near}
	if k.timer, err = newTimer(); err != nil {
		t.Fatal(err)
	}
	if k.children, err = openChildList(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.timer.close(); k.children.close(); near.Close(); far.Close() })
	return k, far
}

// After a pause an extension may wait to be read: the guard has another moment before the keeper acts, with each lease.
func TestTheKeeperGivesALastMoment(t *testing.T) {
	k, _ := newBareKeeper(t)
	for range 2 {
		k.receive(incoming{msg: message{Kind: kindLease, At: boottime.Now() + time.Hour}})
		if k.leaseExpired() || k.lastChance {
			t.Error("over under its lease")
		}
		if at := k.enforceAt(); at != k.lease+keeperDelay {
			t.Errorf("due %s after the lease", at-k.lease)
		}
		k.receive(incoming{msg: message{Kind: kindLease, At: boottime.Now() - keeperDelay}})
		if k.leaseExpired() || !k.lastChance {
			t.Error("no last moment")
		}
		if wait := k.enforceAt() - boottime.Now(); wait <= 0 || wait > drainTime {
			t.Errorf("the last moment is %s", wait)
		}
		if !k.leaseExpired() || !k.lastChance {
			t.Error("never over")
		}
	}
	for tested := false; !tested; { // as long as this process has to wait for its turn
		before := boottime.Now()
		k.lease, k.lastChance = before+keeperDelay-1, false // the guard's own time is not over yet
		over := k.leaseExpired()
		if tested = boottime.Now() < before+keeperDelay; tested && (over || k.lastChance) {
			t.Error("over while the guard may act")
		}
	}
}

// The keeper looks again when something is due, and not before.
func TestWhenTheKeeperLooksAgain(t *testing.T) {
	at := boottime.Now() + time.Hour
	for _, c := range []struct {
		work *task
		want time.Duration
	}{
		{nil, 0},
		{new(task), at + keeperDelay},
		{&task{nextSweep: 7}, at + keeperDelay},
		{&task{killAt: at}, at},
		{&task{killAt: at + time.Hour}, at + keeperDelay},
		{&task{killing: true, killAt: 5}, 1},
		{&task{reaped: true, nextSweep: 7}, 7},
	} {
		k := &keeper{work: c.work, lease: at}
		if got := k.nextCheck(); got != c.want {
			t.Errorf("%+v: %s, not %s", c.work, got, c.want)
		}
	}
}

// What may not go on is ended, and its death told, with the end of an alarm before it.
func TestTheKeeperTendsTheWork(t *testing.T) {
	for name, c := range map[string]struct {
		work   task
		lease  time.Duration // from now
		doomed bool
		told   []string
	}{
		"under its lease":          {lease: time.Hour},
		"after it":                 {lease: -time.Hour, doomed: true},
		"after its grace":          {work: task{killAt: 1}, lease: time.Hour, doomed: true},
		"within its grace":         {work: task{killAt: 1 << 62}, lease: time.Hour},
		"nothing is left":          {work: task{reaped: true}, lease: -time.Hour, told: []string{"dead 7"}},
		"nothing is left to alarm": {work: task{reaped: true, unkillable: "hurt"}, lease: time.Hour, told: []string{"unkillable 7", "dead 7"}},
	} {
		k, far := newBareKeeper(t)
		k.lease, k.lastChance = boottime.Now()+c.lease, true
		w := c.work
		w.seq, w.pid, w.nextSweep = 7, noPid, 1<<62
		if c.told != nil {
			w.nextSweep = 0
		}
		k.work = &w
		k.enforce(&w)
		if got := (&bareGuard{t: t}).sent(far); w.killing != c.doomed || !slices.Equal(got, c.told) || (k.work == nil) != (c.told != nil) {
			t.Errorf("%s: doomed: %t, it says %q, work %+v", name, w.killing, got, k.work)
		}
	}
}

// Whoever ends is waited for; only the end of the main process is told.
func TestWhomTheKeeperReaps(t *testing.T) {
	k, far := newBareKeeper(t)
	ends := func() *task {
		cmd, p := sleeper(t)
		work := &task{seq: 7, pid: p.Pid, nextSweep: 5}
		if k.reap() {
			t.Error("it has a child")
		}
		cmd.Process.Kill()
		return work
	}
	reaped := func(what string, told ...string) {
		t.Helper()
		eventually(t, "the end of all", k.reap)
		if got := (&bareGuard{t: t}).sent(far); !slices.Equal(got, told) {
			t.Errorf("%s: it says %q", what, got)
		}
	}
	ends()
	reaped("without work")
	k.work = &task{seq: 7, pid: noPid, nextSweep: 5}
	ends()
	if reaped("a member of it"); k.work.reaped || k.work.nextSweep != 5 {
		t.Errorf("%+v", k.work)
	}
	k.work = ends()
	if reaped("its main process", "exited 7 was killed by signal 9 (killed)"); !k.work.reaped || k.work.nextSweep != 0 {
		t.Errorf("%+v", k.work)
	}
}

// Only the kernel's word counts: no child, and nothing in the control group.
func TestTheKeepersProof(t *testing.T) {
	k, _ := newBareKeeper(t)
	unreadable := &cgroup{killFD: -1, eventsFD: -1}
	for name, c := range map[string]struct {
		task task
		dead bool
	}{
		"nothing":                            {task{reaped: true}, true},
		"nothing, doomed":                    {task{reaped: true, killing: true}, true},
		"not yet":                            {task{reaped: true, nextSweep: time.Hour}, false},
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
		t.Errorf("work that may go on is swept %d times", w.sweeps)
	}
	// A main process that is reaped by nobody else, as it is traced, has not ended.
	w = task{pid: noPid, killing: true}
	if k.sweep(&w) || w.sweeps != eagerSweeps || w.nextSweep == 0 {
		t.Errorf("after %d sweeps %+v", w.sweeps, w)
	}
	if w.nextSweep = 0; k.sweep(&w) || w.sweeps != eagerSweeps+1 || w.nextSweep == 0 {
		t.Errorf("after %d sweeps, with pauses, %+v", w.sweeps, w)
	}
}

// Each means of killing works without the others: the group of a main process that was not reaped, whose number is nobody
// else's, and the groups of children.
func TestHowTheKeeperKills(t *testing.T) {
	for name, c := range map[string]struct {
		child          bool // the main process is one; else it is a stranger
		session        bool // what is below it has its own
		reaped         bool
		tries          int
		killed, passes bool // the main process, and what is below it
	}{
		"the group":                     {killed: true, passes: true},
		"another's by now":              {reaped: true},
		"a child":                       {child: true, session: true, reaped: true, killed: true},
		"a child's group":               {child: true, reaped: true, killed: true, passes: true},
		"what is below a child's group": {child: true, tries: 1, killed: true, passes: true},
	} {
		t.Run(name, func(t *testing.T) {
			k, _ := newBareKeeper(t)
			fx := &fixture{t: t, dir: t.TempDir()}
			below := `sh -c 'echo $$ >$D/below; exec sleep 1000' &`
			if c.session {
				below = "setsid " + below
			}
			script := `echo $$ >$D/main; ` + below + ` exec sleep 1000`
			cmd := exec.Command("sh", "-c", script)
			if !c.child {
				cmd = exec.Command("sh", "-c", "setsid sh -c \"$0\" &", script)
			}
			cmd.Env, cmd.SysProcAttr = []string{"D=" + fx.dir, "PATH=" + os.Getenv("PATH")}, &syscall.SysProcAttr{Setpgid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			main, other := fx.pidFromFile("main"), fx.pidFromFile("below")
			t.Cleanup(func() {
				syscall.Kill(main, syscall.SIGKILL)
				syscall.Kill(other, syscall.SIGKILL)
				cmd.Wait()
			})
			if !c.child {
				cmd.Wait()
			}
			_, last := sleeper(t) // a child in a group of its own
			k.kill(&task{pid: main, reaped: c.reaped, sweeps: c.tries})
			last.waitDead(t)
			for pid, killed := range map[int]bool{main: c.killed, other: c.passes} {
				if killed {
					eventually(t, "a death", func() bool { return !alive(pid) })
				}
			}
			if alive(main) == c.killed || alive(other) == c.passes {
				t.Errorf("killed: %t, below it: %t", !alive(main), !alive(other))
			}
		})
	}
}

// The guard is told once of what can't be killed; and of what takes too long to die.
func TestTheKeepersAlarm(t *testing.T) {
	k, far := newBareKeeper(t)
	b := &bareGuard{t: t}
	k.work = &task{pid: noPid, seq: 7, sweeps: eagerSweeps + 1, killStarted: boottime.Now() - unkillableAfter/2}
	k.kill(k.work)
	if got := b.sent(far); len(got) != 0 {
		t.Errorf("within %s it says %q", unkillableAfter, got)
	}
	k.work.killStarted = boottime.Now() - 2*unkillableAfter
	k.work.sweeps = eagerSweeps // as on a busy machine
	if k.kill(k.work); len(b.sent(far)) != 0 {
		t.Error("it gives up before it pauses")
	}
	k.work.sweeps++
	for range 2 {
		k.kill(k.work)
	}
	if got := b.sent(far); len(got) != 1 || !strings.HasPrefix(got[0], "unkillable 7 some of the work still runs") {
		t.Errorf("it says %q", got)
	}
	k.work.sweeps = 0
	before := boottime.Now()
	if k.kill(k.work); k.work.killStarted < before {
		t.Error("it does not know when it began")
	}
}

// Messages are for the work that they name; without work they do nothing. Without a guard nothing goes on.
func TestWhatTheKeeperIsTold(t *testing.T) {
	k, far := newBareKeeper(t)
	b := &bareGuard{t: t}
	for _, m := range []message{{Kind: kindStop, Seq: 7}, {Kind: kindKill, Seq: 7}, {Kind: kindStop}, {Kind: kindKill}} {
		k.receive(incoming{msg: m})
	}
	k.work = &task{seq: 7, pid: noPid, spec: new(Spec)}
	k.receive(incoming{msg: message{Kind: kindStop, Seq: 8}})
	k.receive(incoming{msg: message{Kind: kindKill, Seq: 8}})
	if k.work.killing || k.orphaned {
		t.Error("it takes what is for other work")
	}
	k.receive(incoming{msg: message{Kind: kindStop, Seq: 7}})
	if !k.work.killing {
		t.Error("a stop without a grace does nothing")
	}
	k.work.killing = false
	k.receive(incoming{msg: message{Kind: kindKill, Seq: 7}})
	if got := b.sent(far); !k.work.killing || !slices.Equal(got, []string{"killing 7"}) {
		t.Errorf("killed: %t, it says %q", k.work.killing, got)
	}
	k.work.killing = false
	k.receive(incoming{err: io.EOF})
	if !k.work.killing || !k.orphaned {
		t.Errorf("%+v", k)
	}
	k.work = nil
	k.receive(incoming{err: io.EOF})
	k.send(message{Kind: kindDead})
	if got := b.sent(far); len(got) != 0 {
		t.Errorf("it tells a guard that is gone %q", got)
	}
}
