package guard

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/boottime"
)

// lone is a guard whose parts a test calls one by one. What it tells its daemon and its keeper can be read; both are processes
// that only sleep. The test is the parent of all, so it must not run beside others.
type bareGuard struct {
	*guard
	t                    *testing.T
	daemonEnd, keeperEnd *os.File
	logText              *strings.Builder // the log
}

func newBareGuard(t *testing.T) *bareGuard {
	t.Helper()
	runtime.LockOSThread() // see newOffspring
	t.Cleanup(runtime.UnlockOSThread)
	b := &bareGuard{t: t, logText: new(strings.Builder)}
	pair := func() (near, far *os.File) {
		near, far, err := socketpair()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { near.Close(); far.Close() })
		return near, far
	}
	toDaemon, daemonEnd := pair()
	toKeeper, keeperEnd := pair()
	_, d := sleeper(t)
	_, k := sleeper(t)
	b.guard = &guard{
		log:        slog.New(slog.NewTextHandler(b.logText, nil)),
		daemon:     &daemon{pid: d.Pid, socket: toDaemon},
		keeper:     &keeperProcess{Process: k, pid: k.Pid, socket: toKeeper, report: toKeeper},
		fromDaemon: make(chan incoming),
		lease:      boottime.Now() + time.Hour,
	}
	b.daemonEnd, b.keeperEnd = daemonEnd, keeperEnd
	var err error
	if b.children, err = openChildList(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.children.close)
	return b
}

// told reads what was sent, as "kind seq text".
func (b *bareGuard) sent(f *os.File) []string {
	b.t.Helper()
	var all []string
	for {
		f.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) // what was sent is there
		m, err := readFrame(f)
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				b.t.Fatal(err)
			}
			return all
		}
		all = append(all, strings.TrimSpace(fmt.Sprint(m.Kind, " ", m.Seq, " ", m.Status, m.Error, m.Output)))
	}
}

// expect checks what the daemon and the keeper were told since.
func (b *bareGuard) expect(what string, daemon, keeper []string) {
	b.t.Helper()
	if got := b.sent(b.daemonEnd); !slices.Equal(got, daemon) {
		b.t.Errorf("%s: the daemon is told %q, not %q", what, got, daemon)
	}
	if got := b.sent(b.keeperEnd); !slices.Equal(got, keeper) {
		b.t.Errorf("%s: the keeper is told %q, not %q", what, got, keeper)
	}
}

// Work that may not go on is doomed and killed at once, and the log says why; once.
func TestJudge(t *testing.T) {
	const ahead, behind = time.Hour, -time.Millisecond // of now
	for name, c := range map[string]struct {
		work          work // its times from now
		alone, silent bool // without a daemon, with one that says nothing any more
		lease         time.Duration
		log           string
		lives         bool
	}{
		"under its lease":               {lease: ahead, lives: true},
		"without one":                   {log: "the lease has ended"},
		"after its end":                 {lease: behind, log: "the lease has ended"},
		"without a daemon":              {lease: ahead, alone: true},
		"after the daemon's last word":  {lease: ahead, silent: true},
		"asked to stop":                 {lease: ahead, work: work{killAt: ahead}, lives: true},
		"after its grace":               {lease: ahead, work: work{killAt: behind}, log: "did not stop in time"},
		"stopped within its grace":      {lease: ahead, work: work{killAt: behind, status: StatusSuccess}, lives: true},
		"an undo":                       {alone: true, work: work{hookDeadline: ahead}, lives: true},
		"an undo after its limit":       {alone: true, work: work{hookDeadline: behind}, log: "it has timed out"},
		"the limit of an undo, a lease": {lease: ahead, work: work{hookDeadline: behind}, log: "it has timed out"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBareGuard(t)
			now := boottime.Now()
			w := c.work
			w.seq, w.spec = 7, new(Spec)
			for _, at := range []*time.Duration{&w.killAt, &w.hookDeadline, &c.lease} {
				if *at != 0 {
					*at += now
				}
			}
			b.lease, b.work, b.daemon.abandoned = c.lease, &w, c.silent
			if c.alone {
				b.daemon = nil
			}
			b.enforce(&w)
			b.enforce(&w) // nothing more comes of that
			var killed []string
			if !c.lives {
				killed = []string{"kill 7"}
			}
			b.expect("", nil, killed)
			if w.killing == c.lives || strings.Count(b.logText.String(), "level=ERROR") != min(1, len(c.log)) || !strings.Contains(b.logText.String(), c.log) {
				t.Errorf("doomed: %t; log: %q", w.killing, b.logText)
			}
		})
	}
}

// The keeper is asked to kill; if it does nothing, woken, and what is below it killed; if it hangs, killed itself.
func TestKillHelpsTheKeeper(t *testing.T) {
	for name, c := range map[string]struct {
		waited              time.Duration
		heard               bool
		asked, below, woken bool
		killed              bool // the keeper
	}{
		"first":                      {asked: true},
		"at once":                    {waited: time.Nanosecond},
		"not at once":                {waited: 2 * assistAfter, below: true, woken: true},
		"long after, and it is busy": {waited: 2 * keeperHungAfter, heard: true, below: true, woken: true},
		"long after, and it hangs":   {waited: 2 * keeperHungAfter, killed: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBareGuard(t)
			dir := t.TempDir()
			cmd := exec.Command("sh", "-c", `setsid sh -c 'echo $$ >$D/below; exec sleep 1000' & kill -STOP $$; : >$D/woken; exec sleep 1000`)
			cmd.Env = []string{"D=" + dir, "PATH=" + os.Getenv("PATH")}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			fx := &fixture{t: t, dir: dir}
			below := fx.pidFromFile("below")
			t.Cleanup(func() {
				unix.Kill(below, unix.SIGKILL)
				cmd.Process.Kill()
				cmd.Wait()
			})
			eventually(t, "the stop", func() bool { return !isRunning(cmd.Process.Pid) })
			b.keeper.pid, b.keeper.killing = cmd.Process.Pid, c.heard
			w := &work{seq: 7}
			switch {
			case c.waited == time.Nanosecond:
				w.killStarted = boottime.Now() + time.Hour // however long this process waits for its turn
			case c.waited != 0:
				w.killStarted = boottime.Now() - c.waited
			}
			before := boottime.Now()
			b.kill(w)
			if c.asked {
				b.expect("", nil, []string{"kill 7"})
				if w.killStarted < before || w.killStarted > boottime.Now() {
					t.Errorf("it has begun %s ago", boottime.Now()-w.killStarted)
				}
				return // the next one may come late
			}
			b.expect("", nil, nil)
			switch {
			case c.below:
				eventually(t, "the death of what is below", func() bool { return !alive(below) })
			case !alive(below):
				t.Error("what is below the keeper is dead")
			}
			switch {
			case c.killed:
				eventually(t, "the death of the keeper", func() bool { return !alive(cmd.Process.Pid) })
			case !alive(cmd.Process.Pid):
				t.Error("the keeper is dead")
			case c.woken:
				eventually(t, "its waking", func() bool { _, err := os.Stat(dir + "/woken"); return err == nil })
			}
		})
	}
}

// What a dead keeper has left behind is killed, even where nothing can be opened any more; the daemon is not.
func TestOrphansAreKilled(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil { // as a guard
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) })
	for _, descriptors := range []bool{true, false} {
		b := newBareGuard(t)
		b.keeper = nil
		dir := t.TempDir()
		family := func(name string) (top, below int) {
			cmd := exec.Command("sh", "-c", `setsid sh -c 'echo $$ >$D/`+name+`; exec sleep 1000' & exec sleep 1000`)
			cmd.Env = []string{"D=" + dir, "PATH=" + os.Getenv("PATH")}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			below = (&fixture{t: t, dir: dir}).pidFromFile(name)
			t.Cleanup(func() {
				unix.Kill(below, unix.SIGKILL)
				cmd.Process.Kill()
				cmd.Wait()
			})
			return cmd.Process.Pid, below
		}
		own, ownBelow := family("own")
		orphan, orphanBelow := family("orphan")
		b.daemon.pid = own
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if !descriptors {
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil {
				t.Fatal(err)
			}
		}
		b.kill(&work{seq: 7})
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the death of an orphan", func() bool { return !alive(orphan) })
		eventually(t, "the death of what is below", func() bool { // which is an orphan then
			b.kill(&work{seq: 7})
			return !alive(orphanBelow)
		})
		for _, pid := range []int{own, ownBelow} {
			if !alive(pid) {
				t.Errorf("%d of the daemon is dead", pid)
			}
		}
	}
}

// What is doomed is killed again after a pause until the keeper says that it is dead; or the kernel, where that is dead itself.
func TestSweep(t *testing.T) {
	unreadable := &cgroup{killFD: -1, eventsFD: -1}
	for name, c := range map[string]struct {
		work      work
		childless bool
		by        Containment
		dead      bool
		killed    bool
		daemon    []string
	}{
		"not doomed":                             {work: work{status: StatusSuccess, nextSweep: -1}, childless: true},
		"not yet again":                          {work: work{killing: true, nextSweep: time.Hour}},
		"again":                                  {work: work{killing: true, nextSweep: -1}, killed: true},
		"its keeper lives":                       {work: work{killing: true, nextSweep: -1}, childless: true, killed: true},
		"nothing left":                           {work: work{killing: true, keeperDead: true}, childless: true, dead: true, daemon: []string{"exited 7 was killed with its keeper", "dead 7"}},
		"nothing left, its end was known":        {work: work{killing: true, keeperDead: true, status: StatusSuccess}, childless: true, dead: true, daemon: []string{"dead 7"}},
		"a child left":                           {work: work{killing: true, keeperDead: true}, killed: true},
		"a control group that can't be read":     {work: work{killing: true, keeperDead: true, group: unreadable}, childless: true, killed: true},
		"a namespace":                            {work: work{killing: true, keeperDead: true}, by: PidnsContainment, dead: true, daemon: []string{"exited 7 was killed with its keeper", "dead 7"}},
		"an undo, of which no daemon is to know": {work: work{killing: true, keeperDead: true, status: StatusSuccess, hookDeadline: time.Hour}, childless: true, dead: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBareGuard(t)
			w := c.work
			w.seq, w.spec = 7, new(Spec)
			if w.nextSweep > 0 {
				w.nextSweep += boottime.Now()
			}
			next := w.nextSweep
			b.work, b.noChildren, b.opt.Containment = &w, c.childless, c.by
			before := boottime.Now()
			b.sweep(&w)
			var killed []string
			if c.killed {
				killed = []string{"kill 7"}
			}
			b.expect("", c.daemon, killed)
			if (b.work == nil) != c.dead {
				t.Errorf("dead: %t", b.work == nil)
			}
			if swept := c.dead || c.killed; swept != (w.nextSweep != next) || swept && (w.nextSweep < before+minSweepDelay || w.nextSweep > boottime.Now()+maxSweepDelay) {
				t.Errorf("swept: %t, again after %s", swept, w.nextSweep-before)
			}
		})
	}
}

// A unit is swept until nothing has run in it for a while: then it is dead, and the daemon is told how it ended.
func TestSweepOfAUnit(t *testing.T) {
	for _, doomed := range []bool{true, false} {
		g := newFakeUnit(t)
		b := newBareGuard(t)
		pid := g.run("exec sleep 1000")
		w := &work{seq: 7, spec: &Spec{Unit: &g.unit}, killing: doomed}
		var err error
		if w.unit, err = newUnitKiller(g.unit); err != nil {
			t.Fatal(err)
		}
		b.work = w
		if b.sweep(w); !doomed && w.nextSweep != 0 {
			t.Error("a unit that may run is swept")
		}
		w.killAt, w.nextSweep = boottime.Now()+time.Hour, 0 // asked to stop
		b.sweep(w)
		if b.work == nil {
			t.Fatal("dead while it runs")
		}
		how := "was killed"
		if !doomed {
			how = "has stopped"
			if !alive(pid) {
				t.Error("killed although it may stop")
			}
			g.kill()
		}
		eventually(t, "the end of the unit", func() bool { b.sweep(w); return b.work == nil })
		b.expect(how, []string{"exited 7 " + how, "dead 7"}, nil)
		if alive(pid) || w.unit.group != nil {
			t.Errorf("alive: %t, %+v", alive(pid), w.unit)
		}
	}
}

// What the kernel can kill in one step is killed at once, whatever the keeper does.
func TestKillEndsAControlGroup(t *testing.T) {
	b := newBareGuard(t)
	c, err := newCgroup(delegatedCgroup(), 6)
	if err != nil {
		t.Fatal(err)
	}
	cmd, p := sleeper(t, func(cmd *exec.Cmd) { cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, c.fd() })
	b.work = &work{seq: 7, group: c}
	b.kill(b.work)
	p.waitDead(t)
	b.expect("a control group", nil, []string{"kill 7"})
	cmd.Wait()
	eventually(t, "the end of all", func() bool { return !c.populated() })
	b.workDied(b.work, "words")
	b.expect("its end", []string{"dead 7 words"}, nil)
	if _, err := os.Stat(c.dir); !os.IsNotExist(err) || b.work != nil || b.logText.Len() != 0 {
		t.Errorf("its control group is left: %v; log: %s", err, b.logText)
	}
	if _, err := unix.FcntlInt(uintptr(c.eventsFD), unix.F_GETFD, 0); err == nil {
		t.Error("its files are left open")
	}
	left, err := newCgroup(delegatedCgroup(), 7)
	if err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(left.dir, "inside") // what has one can't be removed
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	b.releaseWork(&work{group: left})
	if !strings.Contains(b.logText.String(), "cannot remove a control group") || !strings.Contains(b.logText.String(), left.dir) {
		t.Errorf("log: %s", b.logText)
	}
	if err := errors.Join(os.Remove(inside), os.Remove(left.dir)); err != nil {
		t.Error(err)
	}

	g := newFakeUnit(t)
	pid := g.run("exec sleep 1000")
	unit := &work{seq: 8}
	if unit.unit, err = newUnitKiller(g.unit); err != nil {
		t.Fatal(err)
	}
	defer unit.unit.close()
	b.kill(unit)
	eventually(t, "the death of the unit", func() bool { return !alive(pid) })
	b.expect("a unit", nil, nil)
}

// When the work has to be looked at again.
func TestWhenWorkIsDue(t *testing.T) {
	unit := new(unitKiller)
	for _, c := range []struct {
		work work
		due  time.Duration
	}{
		{work{}, 0},
		{work{nextSweep: 5}, 0},
		{work{killAt: 9, nextSweep: 5}, 9},
		{work{killAt: 9, status: StatusSuccess}, 0},
		{work{killing: true}, 1},
		{work{killing: true, killAt: 3, nextSweep: 5}, 5},
		{work{killing: true, unit: unit, killAt: 3, nextSweep: 5}, 5},
		{work{unit: unit}, 0},
		{work{unit: unit, killAt: 9}, 1},
		{work{unit: unit, killAt: 9, nextSweep: 5}, 5},
		{work{unit: unit, killAt: 9, nextSweep: 12}, 9},
	} {
		if due := c.work.nextCheck(); due != c.due {
			t.Errorf("%+v: %d, not %d", c.work, due, c.due)
		}
	}
}

// A stop is a kill where there is no time for it. Only the first one counts, and only systemd asks a unit.
func TestStopMessages(t *testing.T) {
	b := newBareGuard(t)
	for _, m := range []message{{Kind: kindKill, Seq: 7}, {Kind: kindStop, Seq: 7}} {
		w := &work{seq: 7}
		if b.stop(w, m); !w.killing || w.killAt != 0 {
			t.Errorf("%+v: %+v", m, w)
		}
	}
	b.expect("no grace", nil, nil)
	w := &work{seq: 7}
	before := boottime.Now()
	b.stop(w, message{Kind: kindStop, Seq: 7, Grace: time.Hour})
	first := w.killAt
	if w.killing || first < before+time.Hour || first > boottime.Now()+time.Hour {
		t.Errorf("%+v", w)
	}
	b.expect("asked", nil, []string{"stop 7"})
	if b.stop(w, message{Kind: kindStop, Seq: 7, Grace: time.Minute}); w.killAt != first {
		t.Error("the second one counts")
	}
	b.expect("asked again", nil, nil)
	unit := &work{seq: 8, unit: new(unitKiller)}
	if b.stop(unit, message{Kind: kindStop, Seq: 8, Grace: time.Hour}); unit.killAt == 0 {
		t.Error("a unit has no limit")
	}
	b.expect("a unit", nil, nil)
}
