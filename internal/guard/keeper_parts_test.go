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
func loneKeeper(t *testing.T) (k *keeper, guard *os.File) {
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
	if k.children, err = newOffspring(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.timer.close(); k.children.close(); near.Close(); far.Close() })
	return k, far
}

// After a pause an extension may wait to be read: the guard has another moment before the keeper acts, with each lease.
func TestTheKeeperGivesALastMoment(t *testing.T) {
	k, _ := loneKeeper(t)
	for range 2 {
		k.receive(letter{msg: message{Kind: kindLease, At: boottime.Now() + time.Hour}})
		if k.over() || k.doubted {
			t.Error("over under its lease")
		}
		if at := k.due(); at != k.lease+keeperLag {
			t.Errorf("due %s after the lease", at-k.lease)
		}
		k.receive(letter{msg: message{Kind: kindLease, At: boottime.Now() - keeperLag}})
		if k.over() || !k.doubted {
			t.Error("no last moment")
		}
		if wait := k.due() - boottime.Now(); wait <= 0 || wait > settle {
			t.Errorf("the last moment is %s", wait)
		}
		if !k.over() || !k.doubted {
			t.Error("never over")
		}
	}
	for tested := false; !tested; { // as long as this process has to wait for its turn
		before := boottime.Now()
		k.lease, k.doubted = before+keeperLag-1, false // the guard's own time is not over yet
		over := k.over()
		if tested = boottime.Now() < before+keeperLag; tested && (over || k.doubted) {
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
		{new(task), at + keeperLag},
		{&task{next: 7}, at + keeperLag},
		{&task{killAt: at}, at},
		{&task{killAt: at + time.Hour}, at + keeperLag},
		{&task{doomed: true, killAt: 5}, 1},
		{&task{reaped: true, next: 7}, 7},
	} {
		k := &keeper{work: c.work, lease: at}
		if got := k.next(); got != c.want {
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
		"nothing is left to alarm": {work: task{reaped: true, alarm: "hurt"}, lease: time.Hour, told: []string{"alarm 7", "dead 7"}},
	} {
		k, far := loneKeeper(t)
		k.lease, k.doubted = boottime.Now()+c.lease, true
		w := c.work
		w.seq, w.pid, w.next = 7, noPid, 1<<62
		if c.told != nil {
			w.next = 0
		}
		k.work = &w
		k.tend(&w)
		if got := (&lone{t: t}).told(far); w.doomed != c.doomed || !slices.Equal(got, c.told) || (k.work == nil) != (c.told != nil) {
			t.Errorf("%s: doomed: %t, it says %q, work %+v", name, w.doomed, got, k.work)
		}
	}
}

// Whoever ends is waited for; only the end of the main process is told.
func TestWhomTheKeeperReaps(t *testing.T) {
	k, far := loneKeeper(t)
	ends := func() *task {
		cmd, p := sleeper(t)
		work := &task{seq: 7, pid: p.Pid, next: 5}
		if k.reap() {
			t.Error("it has a child")
		}
		cmd.Process.Kill()
		return work
	}
	reaped := func(what string, told ...string) {
		t.Helper()
		eventually(t, "the end of all", k.reap)
		if got := (&lone{t: t}).told(far); !slices.Equal(got, told) {
			t.Errorf("%s: it says %q", what, got)
		}
	}
	ends()
	reaped("without work")
	k.work = &task{seq: 7, pid: noPid, next: 5}
	ends()
	if reaped("a member of it"); k.work.reaped || k.work.next != 5 {
		t.Errorf("%+v", k.work)
	}
	k.work = ends()
	if reaped("its main process", "exited 7 was killed by signal 9 (killed)"); !k.work.reaped || k.work.next != 0 {
		t.Errorf("%+v", k.work)
	}
}

// Only the kernel's word counts: no child, and nothing in the control group.
func TestTheKeepersProof(t *testing.T) {
	k, _ := loneKeeper(t)
	unreadable := &cgroup{kills: -1, events: -1}
	for name, c := range map[string]struct {
		task task
		dead bool
	}{
		"nothing":                            {task{reaped: true}, true},
		"nothing, doomed":                    {task{reaped: true, doomed: true}, true},
		"not yet":                            {task{reaped: true, next: time.Hour}, false},
		"a control group that can't be read": {task{reaped: true, group: unreadable}, false},
	} {
		w := c.task
		if w.next != 0 {
			w.next += boottime.Now()
		}
		w.pid = noPid
		if dead := k.sweep(&w); dead != c.dead {
			t.Errorf("%s: dead: %t", name, dead)
		}
	}
	w := task{pid: noPid}
	if k.sweep(&w) || w.tries > 0 {
		t.Errorf("work that may go on is swept %d times", w.tries)
	}
	// A main process that is reaped by nobody else, as it is traced, has not ended.
	w = task{pid: noPid, doomed: true}
	if k.sweep(&w) || w.tries != eagerTries || w.next == 0 {
		t.Errorf("after %d sweeps %+v", w.tries, w)
	}
	if w.next = 0; k.sweep(&w) || w.tries != eagerTries+1 || w.next == 0 {
		t.Errorf("after %d sweeps, with pauses, %+v", w.tries, w)
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
			k, _ := loneKeeper(t)
			h := &house{t: t, dir: t.TempDir()}
			below := `sh -c 'echo $$ >$D/below; exec sleep 1000' &`
			if c.session {
				below = "setsid " + below
			}
			script := `echo $$ >$D/main; ` + below + ` exec sleep 1000`
			cmd := exec.Command("sh", "-c", script)
			if !c.child {
				cmd = exec.Command("sh", "-c", "setsid sh -c \"$0\" &", script)
			}
			cmd.Env, cmd.SysProcAttr = []string{"D=" + h.dir, "PATH=" + os.Getenv("PATH")}, &syscall.SysProcAttr{Setpgid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			main, other := h.wrote("main"), h.wrote("below")
			t.Cleanup(func() {
				syscall.Kill(main, syscall.SIGKILL)
				syscall.Kill(other, syscall.SIGKILL)
				cmd.Wait()
			})
			if !c.child {
				cmd.Wait()
			}
			_, last := sleeper(t) // a child in a group of its own
			k.kill(&task{pid: main, reaped: c.reaped, tries: c.tries})
			last.dies(t)
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
	k, far := loneKeeper(t)
	l := &lone{t: t}
	k.work = &task{pid: noPid, seq: 7, tries: eagerTries + 1, killing: boottime.Now() - undying/2}
	k.kill(k.work)
	if got := l.told(far); len(got) != 0 {
		t.Errorf("within %s it says %q", undying, got)
	}
	k.work.killing = boottime.Now() - 2*undying
	k.work.tries = eagerTries // as on a busy machine
	if k.kill(k.work); len(l.told(far)) != 0 {
		t.Error("it gives up before it pauses")
	}
	k.work.tries++
	for range 2 {
		k.kill(k.work)
	}
	if got := l.told(far); len(got) != 1 || !strings.HasPrefix(got[0], "alarm 7 some of the work has not ended") {
		t.Errorf("it says %q", got)
	}
	k.work.tries = 0
	before := boottime.Now()
	if k.kill(k.work); k.work.killing < before {
		t.Error("it does not know when it began")
	}
}

// Messages are for the work that they name; without work they do nothing. Without a guard nothing goes on.
func TestWhatTheKeeperIsTold(t *testing.T) {
	k, far := loneKeeper(t)
	l := &lone{t: t}
	for _, m := range []message{{Kind: kindStop, Seq: 7}, {Kind: kindKill, Seq: 7}, {Kind: kindStop}, {Kind: kindKill}} {
		k.receive(letter{msg: m})
	}
	k.work = &task{seq: 7, pid: noPid, spec: new(Spec)}
	k.receive(letter{msg: message{Kind: kindStop, Seq: 8}})
	k.receive(letter{msg: message{Kind: kindKill, Seq: 8}})
	if k.work.doomed || k.orphaned {
		t.Error("it takes what is for other work")
	}
	k.receive(letter{msg: message{Kind: kindStop, Seq: 7}})
	if !k.work.doomed {
		t.Error("a stop without a grace does nothing")
	}
	k.work.doomed = false
	k.receive(letter{msg: message{Kind: kindKill, Seq: 7}})
	if got := l.told(far); !k.work.doomed || !slices.Equal(got, []string{"heard 7"}) {
		t.Errorf("killed: %t, it says %q", k.work.doomed, got)
	}
	k.work.doomed = false
	k.receive(letter{err: io.EOF})
	if !k.work.doomed || !k.orphaned {
		t.Errorf("%+v", k)
	}
	k.work = nil
	k.receive(letter{err: io.EOF})
	k.tell(message{Kind: kindDead})
	if got := l.told(far); len(got) != 0 {
		t.Errorf("it tells a guard that is gone %q", got)
	}
}
