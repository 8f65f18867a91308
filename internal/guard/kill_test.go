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
type lone struct {
	*guard
	t                *testing.T
	toDaemon, toKeep *os.File
	text             *strings.Builder // the log
}

func newLone(t *testing.T) *lone {
	t.Helper()
	runtime.LockOSThread() // see newOffspring
	t.Cleanup(runtime.UnlockOSThread)
	l := &lone{t: t, text: new(strings.Builder)}
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
	l.guard = &guard{
		log:    slog.New(slog.NewTextHandler(l.text, nil)),
		daemon: &daemon{pid: d.Pid, socket: toDaemon},
		keeper: &keeperProcess{Process: k, pid: k.Pid, socket: toKeeper, word: toKeeper},
		inbox:  make(chan letter),
		lease:  boottime.Now() + time.Hour,
	}
	l.toDaemon, l.toKeep = daemonEnd, keeperEnd
	var err error
	if l.children, err = newOffspring(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.children.close)
	return l
}

// told reads what was sent, as "kind seq text".
func (l *lone) told(f *os.File) []string {
	l.t.Helper()
	var all []string
	for {
		f.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) // what was sent is there
		m, err := readFrame(f)
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				l.t.Fatal(err)
			}
			return all
		}
		all = append(all, strings.TrimSpace(fmt.Sprint(m.Kind, " ", m.Seq, " ", m.Status, m.Error, m.Output)))
	}
}

// expect checks what the daemon and the keeper were told since.
func (l *lone) expect(what string, daemon, keeper []string) {
	l.t.Helper()
	if got := l.told(l.toDaemon); !slices.Equal(got, daemon) {
		l.t.Errorf("%s: the daemon is told %q, not %q", what, got, daemon)
	}
	if got := l.told(l.toKeep); !slices.Equal(got, keeper) {
		l.t.Errorf("%s: the keeper is told %q, not %q", what, got, keeper)
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
		"an undo":                       {alone: true, work: work{limit: ahead}, lives: true},
		"an undo after its limit":       {alone: true, work: work{limit: behind}, log: "what undoes leadership"},
		"the limit of an undo, a lease": {lease: ahead, work: work{limit: behind}, log: "what undoes leadership"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLone(t)
			now := boottime.Now()
			w := c.work
			w.seq, w.spec = 7, new(Spec)
			for _, at := range []*time.Duration{&w.killAt, &w.limit, &c.lease} {
				if *at != 0 {
					*at += now
				}
			}
			l.lease, l.work, l.daemon.gone = c.lease, &w, c.silent
			if c.alone {
				l.daemon = nil
			}
			l.judge(&w)
			l.judge(&w) // nothing more comes of that
			var killed []string
			if !c.lives {
				killed = []string{"kill 7"}
			}
			l.expect("", nil, killed)
			if w.doomed == c.lives || strings.Count(l.text.String(), "level=ERROR") != min(1, len(c.log)) || !strings.Contains(l.text.String(), c.log) {
				t.Errorf("doomed: %t; the log says %q", w.doomed, l.text)
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
		"not at once":                {waited: 2 * helpAfter, below: true, woken: true},
		"long after, and it is busy": {waited: 2 * keeperHung, heard: true, below: true, woken: true},
		"long after, and it hangs":   {waited: 2 * keeperHung, killed: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLone(t)
			dir := t.TempDir()
			cmd := exec.Command("sh", "-c", `setsid sh -c 'echo $$ >$D/below; exec sleep 1000' & kill -STOP $$; : >$D/woken; exec sleep 1000`)
			cmd.Env = []string{"D=" + dir, "PATH=" + os.Getenv("PATH")}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			h := &house{t: t, dir: dir}
			below := h.wrote("below")
			t.Cleanup(func() {
				unix.Kill(below, unix.SIGKILL)
				cmd.Process.Kill()
				cmd.Wait()
			})
			eventually(t, "the stop", func() bool { return !running(cmd.Process.Pid) })
			l.keeper.pid, l.keeper.heard = cmd.Process.Pid, c.heard
			w := &work{seq: 7}
			switch {
			case c.waited == time.Nanosecond:
				w.since = boottime.Now() + time.Hour // however long this process waits for its turn
			case c.waited != 0:
				w.since = boottime.Now() - c.waited
			}
			before := boottime.Now()
			l.kill(w)
			if c.asked {
				l.expect("", nil, []string{"kill 7"})
				if w.since < before || w.since > boottime.Now() {
					t.Errorf("it has begun %s ago", boottime.Now()-w.since)
				}
				return // the next one may come late
			}
			l.expect("", nil, nil)
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
		l := newLone(t)
		l.keeper = nil
		dir := t.TempDir()
		family := func(name string) (top, below int) {
			cmd := exec.Command("sh", "-c", `setsid sh -c 'echo $$ >$D/`+name+`; exec sleep 1000' & exec sleep 1000`)
			cmd.Env = []string{"D=" + dir, "PATH=" + os.Getenv("PATH")}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			below = (&house{t: t, dir: dir}).wrote(name)
			t.Cleanup(func() {
				unix.Kill(below, unix.SIGKILL)
				cmd.Process.Kill()
				cmd.Wait()
			})
			return cmd.Process.Pid, below
		}
		own, ownBelow := family("own")
		orphan, orphanBelow := family("orphan")
		l.daemon.pid = own
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if !descriptors {
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil {
				t.Fatal(err)
			}
		}
		l.kill(&work{seq: 7})
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the death of an orphan", func() bool { return !alive(orphan) })
		eventually(t, "the death of what is below", func() bool { // which is an orphan then
			l.kill(&work{seq: 7})
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
	unreadable := &cgroup{kills: -1, events: -1}
	for name, c := range map[string]struct {
		work      work
		childless bool
		by        Containment
		dead      bool
		killed    bool
		daemon    []string
	}{
		"not doomed":                             {work: work{status: StatusSuccess, next: -1}, childless: true},
		"not yet again":                          {work: work{doomed: true, next: time.Hour}},
		"again":                                  {work: work{doomed: true, next: -1}, killed: true},
		"its keeper lives":                       {work: work{doomed: true, next: -1}, childless: true, killed: true},
		"nothing left":                           {work: work{doomed: true, unkept: true}, childless: true, dead: true, daemon: []string{"exited 7 was killed with its keeper", "dead 7"}},
		"nothing left, its end was known":        {work: work{doomed: true, unkept: true, status: StatusSuccess}, childless: true, dead: true, daemon: []string{"dead 7"}},
		"a child left":                           {work: work{doomed: true, unkept: true}, killed: true},
		"a control group that can't be read":     {work: work{doomed: true, unkept: true, group: unreadable}, childless: true, killed: true},
		"a namespace":                            {work: work{doomed: true, unkept: true}, by: PidnsContainment, dead: true, daemon: []string{"exited 7 was killed with its keeper", "dead 7"}},
		"an undo, of which no daemon is to know": {work: work{doomed: true, unkept: true, status: StatusSuccess, limit: time.Hour}, childless: true, dead: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLone(t)
			w := c.work
			w.seq, w.spec = 7, new(Spec)
			if w.next > 0 {
				w.next += boottime.Now()
			}
			next := w.next
			l.work, l.childless, l.opt.Containment = &w, c.childless, c.by
			before := boottime.Now()
			l.sweep(&w)
			var killed []string
			if c.killed {
				killed = []string{"kill 7"}
			}
			l.expect("", c.daemon, killed)
			if (l.work == nil) != c.dead {
				t.Errorf("dead: %t", l.work == nil)
			}
			if swept := c.dead || c.killed; swept != (w.next != next) || swept && (w.next < before+sweepLeast || w.next > boottime.Now()+sweepMost) {
				t.Errorf("swept: %t, again after %s", swept, w.next-before)
			}
		})
	}
}

// A unit is swept until nothing has run in it for a while: then it is dead, and the daemon is told how it ended.
func TestSweepOfAUnit(t *testing.T) {
	for _, doomed := range []bool{true, false} {
		g := newUnitGroup(t)
		l := newLone(t)
		pid := g.run("exec sleep 1000")
		w := &work{seq: 7, spec: &Spec{Unit: &g.unit}, doomed: doomed}
		var err error
		if w.unit, err = newEnd(g.unit); err != nil {
			t.Fatal(err)
		}
		l.work = w
		if l.sweep(w); !doomed && w.next != 0 {
			t.Error("a unit that may run is swept")
		}
		w.killAt, w.next = boottime.Now()+time.Hour, 0 // asked to stop
		l.sweep(w)
		if l.work == nil {
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
		eventually(t, "the end of the unit", func() bool { l.sweep(w); return l.work == nil })
		l.expect(how, []string{"exited 7 " + how, "dead 7"}, nil)
		if alive(pid) || w.unit.group != nil {
			t.Errorf("alive: %t, %+v", alive(pid), w.unit)
		}
	}
}

// What the kernel can kill in one step is killed at once, whatever the keeper does.
func TestKillEndsAControlGroup(t *testing.T) {
	l := newLone(t)
	c, err := newCgroup(cgroupParent(), 6)
	if err != nil {
		t.Fatal(err)
	}
	cmd, p := sleeper(t, func(cmd *exec.Cmd) { cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, c.fd() })
	l.work = &work{seq: 7, group: c}
	l.kill(l.work)
	p.dies(t)
	l.expect("a control group", nil, []string{"kill 7"})
	cmd.Wait()
	eventually(t, "the end of all", func() bool { return !c.populated() })
	l.dead(l.work, "words")
	l.expect("its end", []string{"dead 7 words"}, nil)
	if _, err := os.Stat(c.dir); !os.IsNotExist(err) || l.work != nil || l.text.Len() != 0 {
		t.Errorf("its control group is left: %v; the log says %s", err, l.text)
	}
	if _, err := unix.FcntlInt(uintptr(c.events), unix.F_GETFD, 0); err == nil {
		t.Error("its files are left open")
	}
	left, err := newCgroup(cgroupParent(), 7)
	if err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(left.dir, "inside") // what has one can't be removed
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	l.finish(&work{group: left})
	if !strings.Contains(l.text.String(), "a control group is left behind") || !strings.Contains(l.text.String(), left.dir) {
		t.Errorf("the log says %s", l.text)
	}
	if err := errors.Join(os.Remove(inside), os.Remove(left.dir)); err != nil {
		t.Error(err)
	}

	g := newUnitGroup(t)
	pid := g.run("exec sleep 1000")
	unit := &work{seq: 8}
	if unit.unit, err = newEnd(g.unit); err != nil {
		t.Fatal(err)
	}
	defer unit.unit.close()
	l.kill(unit)
	eventually(t, "the death of the unit", func() bool { return !alive(pid) })
	l.expect("a unit", nil, nil)
}

// When the work has to be looked at again.
func TestWhenWorkIsDue(t *testing.T) {
	unit := new(end)
	for _, c := range []struct {
		work work
		due  time.Duration
	}{
		{work{}, 0},
		{work{next: 5}, 0},
		{work{killAt: 9, next: 5}, 9},
		{work{killAt: 9, status: StatusSuccess}, 0},
		{work{doomed: true}, 1},
		{work{doomed: true, killAt: 3, next: 5}, 5},
		{work{doomed: true, unit: unit, killAt: 3, next: 5}, 5},
		{work{unit: unit}, 0},
		{work{unit: unit, killAt: 9}, 1},
		{work{unit: unit, killAt: 9, next: 5}, 5},
		{work{unit: unit, killAt: 9, next: 12}, 9},
	} {
		if due := c.work.due(); due != c.due {
			t.Errorf("%+v: %d, not %d", c.work, due, c.due)
		}
	}
}

// A stop is a kill where there is no time for it. Only the first one counts, and only systemd asks a unit.
func TestStopMessages(t *testing.T) {
	l := newLone(t)
	for _, m := range []message{{Kind: kindKill, Seq: 7}, {Kind: kindStop, Seq: 7}} {
		w := &work{seq: 7}
		if l.stop(w, m); !w.doomed || w.killAt != 0 {
			t.Errorf("%+v: %+v", m, w)
		}
	}
	l.expect("no grace", nil, nil)
	w := &work{seq: 7}
	before := boottime.Now()
	l.stop(w, message{Kind: kindStop, Seq: 7, Grace: time.Hour})
	first := w.killAt
	if w.doomed || first < before+time.Hour || first > boottime.Now()+time.Hour {
		t.Errorf("%+v", w)
	}
	l.expect("asked", nil, []string{"stop 7"})
	if l.stop(w, message{Kind: kindStop, Seq: 7, Grace: time.Minute}); w.killAt != first {
		t.Error("the second one counts")
	}
	l.expect("asked again", nil, nil)
	unit := &work{seq: 8, unit: new(end)}
	if l.stop(unit, message{Kind: kindStop, Seq: 8, Grace: time.Hour}); unit.killAt == 0 {
		t.Error("a unit has no limit")
	}
	l.expect("a unit", nil, nil)
}
