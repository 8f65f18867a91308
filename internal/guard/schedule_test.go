package guard

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/sys/procinfo"
)

// A process that acts in place of another gives that one time to act first, and has enough time left itself.
func TestTimeoutsAreOrdered(t *testing.T) {
	order := []time.Duration{minSweepDelay, drainTime, maxSweepDelay, keeperDelay, guardOverdue, keeperHungAfter, exitTime, exitTimeout, startTimeout}
	if !slices.IsSorted(order) || assistAfter < drainTime || assistAfter >= keeperDelay || drainTime >= keeperDelay || keeperDelay >= guardOverdue || guardOverdue >= keeperHungAfter {
		t.Errorf("%s; the keeper is assisted after %s", order, assistAfter)
	}
	if sendTimeout < keeperHungAfter || keeperStartTimeout < keeperHungAfter || keeperStartTimeout >= startTimeout || firstKeeperTimeout < keeperStartTimeout || minSurvival <= keeperHungAfter || unkillableAfter < keeperHungAfter || rehearsalTimeout < keeperHungAfter || rehearsalLease < drainTime {
		t.Error("a timeout is too short")
	}
	if minRespawnDelay < keeperHungAfter/10 || maxRespawnDelay < 10*minRespawnDelay || maxRespawnDelay > stableAfter || closeTimeout < exitTime || closeTimeout > maxRespawnDelay {
		t.Error("the delays between daemons are out of proportion")
	}
}

// The guard wakes up when something is due, and not before.
func TestGuardNextCheck(t *testing.T) {
	const h = time.Hour
	for name, c := range map[string]struct {
		change func(b *bareGuard, now time.Duration)
		want   time.Duration
	}{
		"nothing":              {func(*bareGuard, time.Duration) {}, 0},
		"a heartbeat deadline": {func(b *bareGuard, now time.Duration) { b.board.heartbeat().setDeadline(now + 3*h) }, 3 * h},
		"a lease":              {func(b *bareGuard, now time.Duration) { b.give(b.l, &work{}); b.l.setLease(now + 2*h) }, 2 * h},
		"the first of two leases": {func(b *bareGuard, now time.Duration) {
			b.give(b.l, &work{})
			b.l.setLease(now + 2*h)
			b.give(b.addLeadership(2, "h"), &work{})
		}, h},
		"a lease and a heartbeat": {func(b *bareGuard, now time.Duration) {
			b.give(b.l, &work{})
			b.l.setLease(now + 2*h)
			b.board.heartbeat().setDeadline(now + h)
		}, h},
		"a stop within the lease":        {func(b *bareGuard, now time.Duration) { b.give(b.l, &work{killAt: now + h}); b.l.setLease(now + 2*h) }, h},
		"work being killed":              {func(b *bareGuard, now time.Duration) { b.give(b.l, &work{killing: true, nextSweep: now + 2*h}) }, 2 * h},
		"a pending hook":                 {func(b *bareGuard, now time.Duration) { b.give(b.l, &work{hookDeadline: now + h}); b.l.setLease(0) }, h},
		"the next daemon":                {func(b *bareGuard, now time.Duration) { b.daemon, b.respawnAt = nil, now+h }, h},
		"the next daemon while one runs": {func(b *bareGuard, now time.Duration) { b.respawnAt = now + h }, 0},
		"work that may survive":          {func(b *bareGuard, now time.Duration) { b.daemon, b.survivedAt = nil, now+h }, h},
		"the same, messages unread":      {func(b *bareGuard, now time.Duration) { b.deadDaemon, b.daemon, b.survivedAt = b.daemon, nil, now+h }, 0},
		"a keeper that starts":           {func(b *bareGuard, now time.Duration) { b.keeper.readyBy = now + h }, h},
		"an exiting keeper":              {func(b *bareGuard, now time.Duration) { b.keeper.exitBy = now + h }, h},
		"an exiting keeper, later": {func(b *bareGuard, now time.Duration) {
			b.keeper.exitBy = now + 2*h
			b.board.heartbeat().setDeadline(now + h)
		}, h},
	} {
		b := newBareGuard(t)
		now := boottime.Now()
		c.change(b, now)
		soonest := (now + c.want).Truncate(time.Microsecond) // as on the board
		if got := b.nextCheck(); c.want == 0 && got != 0 || c.want != 0 && (got < soonest || got > boottime.Now()+c.want) {
			t.Errorf("%s: wakes in %s, want %s", name, got-now, c.want)
		}
		b.give(b.l, &work{}) // without a lease it is due at once
		b.l.setLease(0)
		b.board.heartbeat().setDeadline(0)
		if at := b.nextCheck(); at == 0 || at > boottime.Now() {
			t.Errorf("%s: does not wake at once for work without a lease", name)
		}
	}
}

// What the guard does once daemon and work are dead, in this order.
func TestCleanUpAndRespawn(t *testing.T) {
	type state struct{ noRespawn, closing, session, leaveSession, waiting bool }
	dead := new(daemon)
	late := func(optional bool) *work {
		return &work{hookDeadline: boottime.Now() - 2*minSurvival, killing: true, spec: &Spec{Argv: []string{"x"}, Optional: optional}}
	}
	for name, c := range map[string]struct {
		change func(*bareGuard)
		want   state
	}{
		"the session is being closed": {func(b *bareGuard) { b.closingSession, b.session, b.noRespawn = true, new(Credentials), true }, state{noRespawn: true, closing: true, session: true, waiting: true}},
		"work is being killed":        {func(b *bareGuard) { b.give(b.l, &work{}); b.session = new(Credentials) }, state{session: true, waiting: true}},
		"there are pending hooks":     {func(b *bareGuard) { b.l.hooks, b.session = make([]Spec, 1), new(Credentials) }, state{session: true, waiting: true}},
		"a hook runs":                 {func(b *bareGuard) { b.give(b.l, &work{hookDeadline: boottime.Now() + time.Hour}); b.survivedAt = 1 }, state{waiting: true}},
		"a hook is being killed": {func(b *bareGuard) {
			b.give(b.l, &work{hookDeadline: boottime.Now(), killing: true})
			b.session = new(Credentials)
		}, state{session: true, waiting: true}},
		"a hook survives":           {func(b *bareGuard) { b.give(b.l, late(false)); b.session = new(Credentials) }, state{leaveSession: true, waiting: true}},
		"an optional hook survives": {func(b *bareGuard) { b.give(b.l, late(true)) }, state{waiting: true}},
		"work survives":             {func(b *bareGuard) { b.give(b.l, &work{}); b.session, b.survivedAt = new(Credentials), 1 }, state{leaveSession: true, waiting: true}},
		"work has survived":         {func(b *bareGuard) { b.give(b.l, &work{}); b.l.survivor = true }, state{waiting: true}},
		"a hook has failed":         {func(b *bareGuard) { b.session, b.leaveSession = new(Credentials), true }, state{leaveSession: true, waiting: true}},
		"the session was left":      {func(b *bareGuard) { b.leaveSession = true }, state{}},
		"no respawn":                {func(b *bareGuard) { b.noRespawn = true }, state{noRespawn: true}},
		"stopping":                  {func(b *bareGuard) { b.stopping = true }, state{noRespawn: true}},
		"before the next respawn":   {func(b *bareGuard) { b.respawnAt = boottime.Now() + time.Hour }, state{}},
	} {
		b := newBareGuard(t)
		b.daemon, b.l.daemon = nil, dead
		c.change(b)
		b.cleanUpAndRespawn()
		got := state{b.noRespawn, b.closingSession, b.session != nil, b.leaveSession, len(b.leaderships) > 0}
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
		if survives := strings.Contains(name, "surviv"); b.l.survivor != survives {
			t.Errorf("%s: survives: %t", name, b.l.survivor)
		}
		b.tendKeepers()
		if exiting := b.keeper.exitBy != 0; exiting != (b.noRespawn && !got.waiting) {
			t.Errorf("%s: the keeper exits: %t", name, exiting)
		}
	}
}

// Hooks run once their leadership was abandoned, or its daemon is dead, and its work too; only some of them at a time.
func TestPendingHooksRun(t *testing.T) {
	hooks := []Spec{{Argv: []string{"x"}, Timeout: time.Hour}}
	for name, c := range map[string]struct {
		change func(b *bareGuard)
		runs   bool
	}{
		"the daemon lives":        {func(*bareGuard) {}, false},
		"abandoned":               {func(b *bareGuard) { b.l.abandoned = true }, true},
		"the daemon is dead":      {func(b *bareGuard) { b.daemon = nil }, true},
		"its messages are unread": {func(b *bareGuard) { b.deadDaemon, b.daemon = b.daemon, nil }, false},
		"the work lives":          {func(b *bareGuard) { b.daemon = nil; b.give(b.l, &work{seq: 7}) }, false},
		"promoted work lives": {func(b *bareGuard) {
			s := b.addLeadership(9, b.l.name)
			s.standby = true
			b.give(s, &work{seq: 7})
			b.daemon = nil
		}, false},
		"abandoned beside a standby":      {func(b *bareGuard) { b.standBy(Forever) }, true},
		"abandoned beside a promoted one": {func(b *bareGuard) { b.standBy(boottime.Now() + time.Hour) }, false},
		"enough others run":               {func(b *bareGuard) { b.daemon = nil; b.runHooksElsewhere(hooksAtOnce) }, false},
		"almost enough others run":        {func(b *bareGuard) { b.daemon = nil; b.runHooksElsewhere(hooksAtOnce - 1) }, true},
	} {
		b := newBareGuard(t)
		b.opt.Containment = KeeperContainment // without control groups
		b.l.hooks = hooks
		c.change(b)
		b.runPendingHooks()
		w := b.l.work
		if runs := w != nil && w.hookDeadline != 0; runs != c.runs || runs && (!w.launched || !isNear(w.hookDeadline, time.Hour) || len(b.l.hooks) != 0) {
			t.Errorf("%s: %+v", name, w)
		}
	}
}

// standBy abandons the leadership, beside which promotable work of its group has a lease.
func (b *bareGuard) standBy(lease time.Duration) {
	s := b.addLeadership(9, b.l.name)
	s.standby = true
	s.setLease(lease)
	b.give(s, &work{seq: 7})
	b.l.abandoned = true
}

// A hook of an instance and the promotable work of its group run beside each other, but nothing beside what is about to be killed (S1).
func TestAStandbyRunsBesideAHook(t *testing.T) {
	for name, c := range map[string]struct {
		standby bool // the leadership that has work
		group   string
		change  func(b *bareGuard, other *leadership)
		refused bool
	}{
		"a hook beside a standby":            {true, "g", func(*bareGuard, *leadership) {}, false},
		"a hook of a slot beside a standby":  {true, "g/3", func(*bareGuard, *leadership) {}, false},
		"a hook beside an abandoned standby": {true, "g/3", func(_ *bareGuard, other *leadership) { other.abandoned = true }, true},
		"a hook after the daemon's death":    {true, "g", func(_ *bareGuard, other *leadership) { other.daemon = &daemon{} }, true},
		"a hook of another group":            {true, "gg", func(_ *bareGuard, other *leadership) { other.abandoned = true }, false},
		"a standby beside a hook":            {false, "g", func(*bareGuard, *leadership) {}, false},
		"a standby beside an abandoned hook": {false, "g", func(_ *bareGuard, other *leadership) { other.abandoned = true }, true},
	} {
		b := newBareGuard(t)
		b.opt.Containment = CgroupContainment
		other, next := b.addLeadership(10, "g"), b.addLeadership(11, c.group)
		other.standby, next.standby = c.standby, !c.standby
		b.give(other, &work{seq: 7})
		c.change(b, other)
		if err := b.mayPrepare(next, &Spec{}); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// runHooksElsewhere makes n other leaderships run hooks.
func (b *bareGuard) runHooksElsewhere(n int) {
	for i := range n {
		b.give(b.addLeadership(10+i, "other"), &work{hookDeadline: 1})
	}
}

// The guard waits for exited children: the daemon, the keeper, and orphans of a dead keeper.
func TestReap(t *testing.T) {
	b := newBareGuard(t)
	b.opt.Respawn = true
	k, d := b.keeper, b.daemon
	if b.reap(); b.noChildren || b.daemon != d || k.dead {
		t.Fatal("no child has exited")
	}
	orphan, _ := sleeper(t)
	orphan.Process.Kill()
	eventually(t, "the reaping of an orphan", func() bool { b.reap(); return !exists(orphan.Process.Pid) })
	if b.noChildren || b.daemon != d || k.dead {
		t.Error("an orphan was mistaken for daemon or keeper")
	}
	unix.Kill(d.pid, unix.SIGKILL)
	eventually(t, "the reaping of the daemon", func() bool { b.reap(); return b.daemon == nil })
	if b.noChildren || k.dead || b.exitStatus != 128+9 || b.respawnAt == 0 {
		t.Errorf("after the daemon's exit: %+v", b.guard)
	}
	unix.Kill(k.pid, unix.SIGKILL)
	eventually(t, "the reaping of the keeper", func() bool { b.reap(); return k.dead })
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

// The guard exits only when its daemon is dead, and what that has sent was read.
func TestGuardStopsAfterItsDaemon(t *testing.T) {
	b := newBareGuard(t)
	var err error
	if b.timer, err = boottime.NewTimer(); err != nil {
		t.Fatal(err)
	}
	defer b.timer.Close()
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
