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
	l := newBareGuard(t)
	var pauses []time.Duration
	fail := func() error { pauses = append(pauses, l.respawnDelay); return errors.New("no") }
	l.respawnAt = boottime.Now() + time.Hour
	if l.tryStart(fail); len(pauses) != 0 {
		t.Error("tried before its time")
	}
	for range 10 {
		l.respawnAt = boottime.Now()
		if l.tryStart(fail); !isNear(l.respawnAt, l.respawnDelay) {
			t.Errorf("again at %s, after %s", l.respawnAt, l.respawnDelay)
		}
	}
	want := []time.Duration{0, 100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000}
	for i := range want {
		want[i] *= time.Millisecond
	}
	if !slices.Equal(pauses, want) || strings.Count(l.logText.String(), "cannot restart the daemon") != 10 {
		t.Errorf("%s; the log says %s", pauses, l.logText)
	}
	l.respawnAt = 0
	if l.tryStart(func() error { return nil }); l.respawnAt != 0 {
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
		l := newBareGuard(t)
		tm, err := newTimer()
		if err != nil {
			t.Fatal(err)
		}
		l.timer, l.lease = tm, 0
		c.change(l.guard, boottime.Now())
		l.setTimer()
		if got := remainingTime(t, tm); c.want == 0 && got != 0 || c.want != 0 && (got > c.want || got <= c.want-time.Minute) {
			t.Errorf("%s: in %s, not %s", name, got, c.want)
		}
		l.work, l.lease, l.heartbeatDeadline = new(work), 0, 0 // without a lease: at once
		l.daemon, l.keeper = new(daemon), nil
		if l.setTimer(); !fires(t, tm) {
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
		"the session is being closed": {func(l *bareGuard) { l.closingSession, l.session, l.noRespawn = true, new(Credentials), true }, state{over: true, closing: true, session: true}, nil},
		"something is to be undone": {func(l *bareGuard) {
			l.pendingHooks, l.session = []Spec{{Argv: []string{"x"}, Timeout: time.Hour}}, new(Credentials)
		}, state{session: true, working: true}, []string{"start -1"}},
		"that has failed":                 {func(l *bareGuard) { l.session, l.hookFailed = new(Credentials), true }, state{}, nil},
		"it is over":                      {func(l *bareGuard) { l.noRespawn = true }, state{over: true, hungUp: true}, nil},
		"it is to stop":                   {func(l *bareGuard) { l.stopping = true }, state{over: true, hungUp: true}, nil},
		"it is not time for a new daemon": {func(l *bareGuard) { l.respawnAt = boottime.Now() + time.Hour }, state{}, nil},
	} {
		l := newBareGuard(t)
		l.daemon = nil
		c.change(l)
		l.cleanUpAndRespawn()
		got := state{l.noRespawn, l.closingSession, l.keeper.exitBy != 0, l.session != nil, l.hookFailed, l.work != nil}
		if got != c.want {
			t.Errorf("%s: %+v, not %+v", name, got, c.want)
		}
		if c.want.hungUp {
			continue // the socket is shut down
		}
		if told := l.sent(l.keeperEnd); !slices.Equal(told, c.keeper) {
			t.Errorf("%s: the keeper is told %q", name, told)
		}
	}
}

// What has ended is waited for: the daemon, the keeper, and what a dead keeper has left behind.
func TestReap(t *testing.T) {
	l := newBareGuard(t)
	l.opt.Respawn = true
	k, d := l.keeper, l.daemon
	if l.reap(); l.noChildren || l.daemon != d || l.keeper != k {
		t.Fatal("nobody has ended")
	}
	orphan, _ := sleeper(t)
	orphan.Process.Kill()
	eventually(t, "the end of an orphan", func() bool { l.reap(); return !exists(orphan.Process.Pid) })
	if l.noChildren || l.daemon != d || l.keeper != k {
		t.Error("an orphan is taken for somebody else")
	}
	unix.Kill(d.pid, unix.SIGKILL)
	eventually(t, "the end of the daemon", func() bool { l.reap(); return l.daemon == nil })
	if l.noChildren || l.keeper != k || l.exitStatus != 128+9 || l.respawnAt == 0 {
		t.Errorf("after the daemon's end: %+v", l.guard)
	}
	unix.Kill(k.pid, unix.SIGKILL)
	eventually(t, "the end of the keeper", func() bool { l.reap(); return l.keeper == nil })
	if l.reap(); !l.noChildren {
		t.Error("the guard has children")
	}
	late, _ := sleeper(t)
	if l.reap(); l.noChildren {
		t.Error("a child is not seen")
	}
	late.Process.Kill()
	eventually(t, "the end of all", func() bool { l.reap(); return l.noChildren })
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
		l := newBareGuard(t)
		var err error
		if l.timer, err = newTimer(); err != nil {
			t.Fatal(err)
		}
		d := l.daemon
		d.killing, d.gone = c.doomed, c.doomed
		if l.work = (&work{seq: 7, spec: new(Spec)}); c.silence != 0 {
			l.heartbeatDeadline = boottime.Now() + c.silence
		}
		silence := l.heartbeatDeadline
		l.advance()
		if c.alive {
			if !alive(d.pid) || d.killing || d.gone || l.heartbeatDeadline != silence {
				t.Errorf("%s: %+v", name, d)
			}
		} else {
			eventually(t, "its death", func() bool { return !alive(d.pid) })
			if !d.killing || !d.gone || l.heartbeatDeadline != 0 {
				t.Errorf("%s: %+v", name, d)
			}
		}
		if logged := strings.Contains(l.logText.String(), "killing the daemon: it is hung"); logged != c.hung {
			t.Errorf("%s: the log says %s", name, l.logText)
		}
		if w := l.work; w.killing == c.alive || !c.alive && w.nextSweep == 0 {
			t.Errorf("%s: %+v", name, w)
		}
		l.timer.close()
	}
	l := newBareGuard(t)
	var err error
	if l.timer, err = newTimer(); err != nil {
		t.Fatal(err)
	}
	defer l.timer.close()
	l.stopping = true
	if l.advance(); l.noRespawn {
		t.Error("over while the daemon runs")
	}
	l.deadDaemon, l.daemon = l.daemon, nil
	if l.advance(); l.noRespawn {
		t.Error("over while the daemon's last words are awaited")
	}
	l.deadDaemon = nil
	if l.advance(); !l.noRespawn {
		t.Error("never over")
	}
}
