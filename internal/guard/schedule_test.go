package guard

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/boottime"
	"zkelectd/internal/procinfo"
)

// Whoever acts in another's stead gives that one time to act, and has time left itself.
func TestEachWaitsForTheOneBefore(t *testing.T) {
	order := []time.Duration{minSweepDelay, drainTime, maxSweepDelay, keeperDelay, guardOverdue, keeperHungAfter, exitTime, exitTimeout, startTimeout}
	if !slices.IsSorted(order) || assistAfter < drainTime || assistAfter >= keeperDelay || drainTime >= keeperDelay || keeperDelay >= guardOverdue || guardOverdue >= keeperHungAfter {
		t.Errorf("%s; the keeper is helped after %s", order, assistAfter)
	}
	if sendTimeout < keeperSendTimeout || keeperSendTimeout < keeperHungAfter || keeperStartTimeout < keeperSendTimeout || unkillableAfter < keeperHungAfter || rehearsalTimeout < keeperHungAfter || rehearsalLease < drainTime {
		t.Error("what may take long is not given the time")
	}
	if minRespawnDelay < keeperHungAfter/10 || maxRespawnDelay < 10*minRespawnDelay || maxRespawnDelay > stableAfter || closeTimeout < exitTime || closeTimeout > maxRespawnDelay {
		t.Error("the pauses between daemons are out of proportion")
	}
}

// What can't be started is tried again after pauses that grow to a limit.
func TestPausesGrow(t *testing.T) {
	b := newBareGuard(t)
	var pauses []time.Duration
	fail := func() error { pauses = append(pauses, b.respawnDelay); return errors.New("no") }
	b.respawnAt = boottime.Now() + time.Hour
	if b.tryStart(fail); len(pauses) != 0 {
		t.Error("tried before its time")
	}
	for range 10 {
		b.respawnAt = boottime.Now()
		if b.tryStart(fail); !isNear(b.respawnAt, b.respawnDelay) {
			t.Errorf("again at %s, after %s", b.respawnAt, b.respawnDelay)
		}
	}
	want := []time.Duration{0, 100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000}
	for i := range want {
		want[i] *= time.Millisecond
	}
	if !slices.Equal(pauses, want) || strings.Count(b.logText.String(), "cannot restart the daemon") != 10 {
		t.Errorf("%s; log: %s", pauses, b.logText)
	}
	b.respawnAt = 0
	if b.tryStart(func() error { return nil }); b.respawnAt != 0 {
		t.Error("what was started is started again")
	}
}

// armed returns in how long a timer fires, 0 for never.
func remainingTime(t *testing.T, tm *timer) time.Duration {
	t.Helper()
	var spec unix.ItimerSpec
	if err := unix.TimerfdGettime(tm.fd, &spec); err != nil {
		t.Fatal(err)
	}
	return time.Duration(spec.Value.Nano())
}

// The guard looks again when something is due, and not before.
func TestWhenTheGuardLooksAgain(t *testing.T) {
	const h = time.Hour
	for name, c := range map[string]struct {
		change func(g *guard, now time.Duration)
		want   time.Duration
	}{
		"nothing":                        {func(*guard, time.Duration) {}, 0},
		"a daemon that has to speak":     {func(g *guard, now time.Duration) { g.heartbeatDeadline = now + 3*h }, 3 * h},
		"a lease":                        {func(g *guard, now time.Duration) { g.work, g.lease = new(work), now+2*h }, 2 * h},
		"a lease, and a daemon":          {func(g *guard, now time.Duration) { g.work, g.lease, g.heartbeatDeadline = new(work), now+2*h, now+h }, h},
		"a stop under a lease":           {func(g *guard, now time.Duration) { g.work, g.lease = &work{killAt: now + h}, now+2*h }, h},
		"work that is doomed":            {func(g *guard, now time.Duration) { g.work, g.lease = &work{killing: true, nextSweep: now + 2*h}, now+h }, 2 * h},
		"an undo":                        {func(g *guard, now time.Duration) { g.work, g.lease = &work{hookDeadline: now + h}, 0 }, h},
		"the next daemon":                {func(g *guard, now time.Duration) { g.daemon, g.respawnAt = nil, now+h }, h},
		"the next daemon, and one runs":  {func(g *guard, now time.Duration) { g.respawnAt = now + h }, 0},
		"a keeper that is to end":        {func(g *guard, now time.Duration) { g.keeper.exitBy = now + h }, h},
		"a keeper that is to end, later": {func(g *guard, now time.Duration) { g.keeper.exitBy, g.heartbeatDeadline = now+2*h, now+h }, h},
	} {
		b := newBareGuard(t)
		tm, err := newTimer()
		if err != nil {
			t.Fatal(err)
		}
		b.timer, b.lease = tm, 0
		c.change(b.guard, boottime.Now())
		b.setTimer()
		if got := remainingTime(t, tm); c.want == 0 && got != 0 || c.want != 0 && (got > c.want || got <= c.want-time.Minute) {
			t.Errorf("%s: in %s, not %s", name, got, c.want)
		}
		b.work, b.lease, b.heartbeatDeadline = new(work), 0, 0 // without a lease: at once
		b.daemon, b.keeper = new(daemon), nil
		if b.setTimer(); !fires(t, tm) {
			t.Errorf("%s: work without a lease is not looked at", name)
		}
		tm.close()
	}
}

// What the guard does once daemon and work are dead, in this order.
func TestWhatIsUndertaken(t *testing.T) {
	type state struct{ over, closing, hungUp, session, unclean, working bool }
	for name, c := range map[string]struct {
		change func(*bareGuard)
		want   state
		keeper []string
	}{
		"the session is being closed": {func(b *bareGuard) { b.closingSession, b.session, b.noRespawn = true, new(Credentials), true }, state{over: true, closing: true, session: true}, nil},
		"something is to be undone": {func(b *bareGuard) {
			b.pendingHooks, b.session = []Spec{{Argv: []string{"x"}, Timeout: time.Hour}}, new(Credentials)
		}, state{session: true, working: true}, []string{"start -1"}},
		"that has failed":                 {func(b *bareGuard) { b.session, b.hookFailed = new(Credentials), true }, state{}, nil},
		"it is over":                      {func(b *bareGuard) { b.noRespawn = true }, state{over: true, hungUp: true}, nil},
		"it is to stop":                   {func(b *bareGuard) { b.stopping = true }, state{over: true, hungUp: true}, nil},
		"it is not time for a new daemon": {func(b *bareGuard) { b.respawnAt = boottime.Now() + time.Hour }, state{}, nil},
	} {
		b := newBareGuard(t)
		b.daemon = nil
		c.change(b)
		b.cleanUpAndRespawn()
		got := state{b.noRespawn, b.closingSession, b.keeper.exitBy != 0, b.session != nil, b.hookFailed, b.work != nil}
		if got != c.want {
			t.Errorf("%s: %+v, not %+v", name, got, c.want)
		}
		if c.want.hungUp {
			continue // the socket is shut down
		}
		if told := b.sent(b.keeperEnd); !slices.Equal(told, c.keeper) {
			t.Errorf("%s: the keeper is told %q", name, told)
		}
	}
}

// What has ended is waited for: the daemon, the keeper, and what a dead keeper has left behind.
func TestReap(t *testing.T) {
	b := newBareGuard(t)
	b.opt.Respawn = true
	k, d := b.keeper, b.daemon
	if b.reap(); b.noChildren || b.daemon != d || b.keeper != k {
		t.Fatal("nobody has ended")
	}
	orphan, _ := sleeper(t)
	orphan.Process.Kill()
	eventually(t, "the end of an orphan", func() bool { b.reap(); return !exists(orphan.Process.Pid) })
	if b.noChildren || b.daemon != d || b.keeper != k {
		t.Error("an orphan is taken for somebody else")
	}
	unix.Kill(d.pid, unix.SIGKILL)
	eventually(t, "the end of the daemon", func() bool { b.reap(); return b.daemon == nil })
	if b.noChildren || b.keeper != k || b.exitStatus != 128+9 || b.respawnAt == 0 {
		t.Errorf("after the daemon's end: %+v", b.guard)
	}
	unix.Kill(k.pid, unix.SIGKILL)
	eventually(t, "the end of the keeper", func() bool { b.reap(); return b.keeper == nil })
	if b.reap(); !b.noChildren {
		t.Error("the guard has children")
	}
	late, _ := sleeper(t)
	if b.reap(); b.noChildren {
		t.Error("a child is not seen")
	}
	late.Process.Kill()
	eventually(t, "the end of all", func() bool { b.reap(); return b.noChildren })
}

func exists(pid int) bool {
	_, err := procinfo.ReadStat(pid)
	return err == nil
}

// In one go work that may not go on is doomed, killed and swept; a daemon that is hung or doomed is killed.
func TestAdvance(t *testing.T) {
	for name, c := range map[string]struct {
		silence       time.Duration // from now
		doomed, alive bool
		hung          bool
	}{
		"a daemon that may be silent": {silence: time.Hour, alive: true},
		"one that need not speak":     {alive: true},
		"one that is hung":            {silence: -time.Hour, hung: true},
		"one that is doomed":          {doomed: true},
	} {
		b := newBareGuard(t)
		var err error
		if b.timer, err = newTimer(); err != nil {
			t.Fatal(err)
		}
		d := b.daemon
		d.killing, d.abandoned = c.doomed, c.doomed
		if b.work = (&work{seq: 7, spec: new(Spec)}); c.silence != 0 {
			b.heartbeatDeadline = boottime.Now() + c.silence
		}
		silence := b.heartbeatDeadline
		b.advance()
		if c.alive {
			if !alive(d.pid) || d.killing || d.abandoned || b.heartbeatDeadline != silence {
				t.Errorf("%s: %+v", name, d)
			}
		} else {
			eventually(t, "its death", func() bool { return !alive(d.pid) })
			if !d.killing || !d.abandoned || b.heartbeatDeadline != 0 {
				t.Errorf("%s: %+v", name, d)
			}
		}
		if logged := strings.Contains(b.logText.String(), "killing the daemon: it is hung"); logged != c.hung {
			t.Errorf("%s: log: %s", name, b.logText)
		}
		if w := b.work; w.killing == c.alive || !c.alive && w.nextSweep == 0 {
			t.Errorf("%s: %+v", name, w)
		}
		b.timer.close()
	}
	b := newBareGuard(t)
	var err error
	if b.timer, err = newTimer(); err != nil {
		t.Fatal(err)
	}
	defer b.timer.close()
	b.stopping = true
	if b.advance(); b.noRespawn {
		t.Error("over while the daemon runs")
	}
	b.deadDaemon, b.daemon = b.daemon, nil
	if b.advance(); b.noRespawn {
		t.Error("over while the daemon's last words are awaited")
	}
	b.deadDaemon = nil
	if b.advance(); !b.noRespawn {
		t.Error("never over")
	}
}
