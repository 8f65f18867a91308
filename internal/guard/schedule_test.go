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

// A process that acts in place of another gives that one time to act first, and has enough time left itself.
func TestTimeoutsAreOrdered(t *testing.T) {
	order := []time.Duration{minSweepDelay, drainTime, maxSweepDelay, keeperDelay, guardOverdue, keeperHungAfter, exitTime, exitTimeout, startTimeout}
	if !slices.IsSorted(order) || assistAfter < drainTime || assistAfter >= keeperDelay || drainTime >= keeperDelay || keeperDelay >= guardOverdue || guardOverdue >= keeperHungAfter {
		t.Errorf("%s; the keeper is assisted after %s", order, assistAfter)
	}
	if sendTimeout < keeperSendTimeout || keeperSendTimeout < keeperHungAfter || keeperStartTimeout < keeperSendTimeout || unkillableAfter < keeperHungAfter || rehearsalTimeout < keeperHungAfter || rehearsalLease < drainTime {
		t.Error("a timeout is too short")
	}
	if minRespawnDelay < keeperHungAfter/10 || maxRespawnDelay < 10*minRespawnDelay || maxRespawnDelay > stableAfter || closeTimeout < exitTime || closeTimeout > maxRespawnDelay {
		t.Error("the delays between daemons are out of proportion")
	}
}

// A failed start is tried again after delays that grow up to a maximum.
func TestRespawnDelayGrows(t *testing.T) {
	b := newBareGuard(t)
	var pauses []time.Duration
	fail := func() error { pauses = append(pauses, b.respawnDelay); return errors.New("no") }
	b.respawnAt = boottime.Now() + time.Hour
	if b.tryStart(fail); len(pauses) != 0 {
		t.Error("tried too early")
	}
	for range 10 {
		b.respawnAt = boottime.Now()
		if b.tryStart(fail); !isNear(b.respawnAt, b.respawnDelay) {
			t.Errorf("next try at %s, delay %s", b.respawnAt, b.respawnDelay)
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
		t.Error("a successful start is repeated")
	}
}

// remainingTime returns the time until a timer fires; 0 if it is disarmed.
func remainingTime(t *testing.T, tm *timer) time.Duration {
	t.Helper()
	var spec unix.ItimerSpec
	if err := unix.TimerfdGettime(tm.fd, &spec); err != nil {
		t.Fatal(err)
	}
	return time.Duration(spec.Value.Nano())
}

// The guard's timer fires when something is due, and not before.
func TestGuardSetTimer(t *testing.T) {
	const h = time.Hour
	for name, c := range map[string]struct {
		change func(g *guard, now time.Duration)
		want   time.Duration
	}{
		"nothing":                        {func(*guard, time.Duration) {}, 0},
		"a heartbeat deadline":           {func(g *guard, now time.Duration) { g.heartbeatDeadline = now + 3*h }, 3 * h},
		"a lease":                        {func(g *guard, now time.Duration) { g.work, g.lease = new(work), now+2*h }, 2 * h},
		"a lease and a heartbeat":        {func(g *guard, now time.Duration) { g.work, g.lease, g.heartbeatDeadline = new(work), now+2*h, now+h }, h},
		"a stop within the lease":        {func(g *guard, now time.Duration) { g.work, g.lease = &work{killAt: now + h}, now+2*h }, h},
		"work being killed":              {func(g *guard, now time.Duration) { g.work, g.lease = &work{killing: true, nextSweep: now + 2*h}, now+h }, 2 * h},
		"a pending hook":                 {func(g *guard, now time.Duration) { g.work, g.lease = &work{hookDeadline: now + h}, 0 }, h},
		"the next daemon":                {func(g *guard, now time.Duration) { g.daemon, g.respawnAt = nil, now+h }, h},
		"the next daemon while one runs": {func(g *guard, now time.Duration) { g.respawnAt = now + h }, 0},
		"an exiting keeper":              {func(g *guard, now time.Duration) { g.keeper.exitBy = now + h }, h},
		"an exiting keeper, later":       {func(g *guard, now time.Duration) { g.keeper.exitBy, g.heartbeatDeadline = now+2*h, now+h }, h},
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
			t.Errorf("%s: fires in %s, want %s", name, got, c.want)
		}
		b.work, b.lease, b.heartbeatDeadline = new(work), 0, 0 // work without a lease is due at once
		b.daemon, b.keeper = new(daemon), nil
		if b.setTimer(); !fires(t, tm) {
			t.Errorf("%s: the timer does not fire for work without a lease", name)
		}
		tm.close()
	}
}

// What the guard does once daemon and work are dead, in this order.
func TestCleanUpAndRespawn(t *testing.T) {
	type state struct{ noRespawn, closing, keeperExiting, session, hookFailed, working bool }
	for name, c := range map[string]struct {
		change func(*bareGuard)
		want   state
		keeper []string
	}{
		"the session is being closed": {func(b *bareGuard) { b.closingSession, b.session, b.noRespawn = true, new(Credentials), true }, state{noRespawn: true, closing: true, session: true}, nil},
		"there are pending hooks": {func(b *bareGuard) {
			b.pendingHooks, b.session = []Spec{{Argv: []string{"x"}, Timeout: time.Hour}}, new(Credentials)
		}, state{session: true, working: true}, []string{"start -1"}},
		"a hook has failed":       {func(b *bareGuard) { b.session, b.hookFailed = new(Credentials), true }, state{}, nil},
		"no respawn":              {func(b *bareGuard) { b.noRespawn = true }, state{noRespawn: true, keeperExiting: true}, nil},
		"stopping":                {func(b *bareGuard) { b.stopping = true }, state{noRespawn: true, keeperExiting: true}, nil},
		"before the next respawn": {func(b *bareGuard) { b.respawnAt = boottime.Now() + time.Hour }, state{}, nil},
	} {
		b := newBareGuard(t)
		b.daemon = nil
		c.change(b)
		b.cleanUpAndRespawn()
		got := state{b.noRespawn, b.closingSession, b.keeper.exitBy != 0, b.session != nil, b.hookFailed, b.work != nil}
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
		if c.want.keeperExiting {
			continue // the socket is shut down
		}
		if sent := b.sent(b.keeperEnd); !slices.Equal(sent, c.keeper) {
			t.Errorf("%s: sent %q to the keeper", name, sent)
		}
	}
}

// The guard waits for exited children: the daemon, the keeper, and orphans of a dead keeper.
func TestReap(t *testing.T) {
	b := newBareGuard(t)
	b.opt.Respawn = true
	k, d := b.keeper, b.daemon
	if b.reap(); b.noChildren || b.daemon != d || b.keeper != k {
		t.Fatal("no child has exited")
	}
	orphan, _ := sleeper(t)
	orphan.Process.Kill()
	eventually(t, "the reaping of an orphan", func() bool { b.reap(); return !exists(orphan.Process.Pid) })
	if b.noChildren || b.daemon != d || b.keeper != k {
		t.Error("an orphan was mistaken for daemon or keeper")
	}
	unix.Kill(d.pid, unix.SIGKILL)
	eventually(t, "the reaping of the daemon", func() bool { b.reap(); return b.daemon == nil })
	if b.noChildren || b.keeper != k || b.exitStatus != 128+9 || b.respawnAt == 0 {
		t.Errorf("after the daemon's exit: %+v", b.guard)
	}
	unix.Kill(k.pid, unix.SIGKILL)
	eventually(t, "the reaping of the keeper", func() bool { b.reap(); return b.keeper == nil })
	if b.reap(); !b.noChildren {
		t.Error("noChildren is not set")
	}
	late, _ := sleeper(t)
	if b.reap(); b.noChildren {
		t.Error("noChildren is set although there is a child")
	}
	late.Process.Kill()
	eventually(t, "the reaping of all children", func() bool { b.reap(); return b.noChildren })
}

// exists reports whether a process exists, be it a zombie.
func exists(pid int) bool {
	_, err := procinfo.ReadStat(pid)
	return err == nil
}

// One call of advance kills and sweeps work that may not run any longer, and kills a daemon that is hung or to be killed.
func TestAdvance(t *testing.T) {
	for name, c := range map[string]struct {
		deadline       time.Duration // of the heartbeat, from now
		killing, alive bool
		hung           bool
	}{
		"before the heartbeat deadline": {deadline: time.Hour, alive: true},
		"no heartbeat deadline":         {alive: true},
		"after the heartbeat deadline":  {deadline: -time.Hour, hung: true},
		"killing":                       {killing: true},
	} {
		b := newBareGuard(t)
		var err error
		if b.timer, err = newTimer(); err != nil {
			t.Fatal(err)
		}
		d := b.daemon
		d.killing, d.abandoned = c.killing, c.killing
		if b.work = (&work{seq: 7, spec: new(Spec)}); c.deadline != 0 {
			b.heartbeatDeadline = boottime.Now() + c.deadline
		}
		deadline := b.heartbeatDeadline
		b.advance()
		if c.alive {
			if !alive(d.pid) || d.killing || d.abandoned || b.heartbeatDeadline != deadline {
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
		t.Error("noRespawn is set while the daemon runs")
	}
	b.deadDaemon, b.daemon = b.daemon, nil
	if b.advance(); b.noRespawn {
		t.Error("noRespawn is set while messages of the daemon are unread")
	}
	b.deadDaemon = nil
	if b.advance(); !b.noRespawn {
		t.Error("noRespawn is not set")
	}
}
