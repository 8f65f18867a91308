package guard

import (
	"context"
	"errors"
	"testing"
	"time"

	"zkelectd/internal/sys/boottime"
)

// A confirmation counts only for the lease that is in force now (S1).
func TestAwaitLease(t *testing.T) {
	now := boottime.Now()
	in := func(d time.Duration) time.Duration { return (now + d).Truncate(time.Microsecond) }
	for name, c := range map[string]struct {
		since, wanted, enforced time.Duration
		want                    error
	}{
		"confirmed":                 {in(time.Hour), in(time.Hour), in(time.Hour), nil},
		"confirmed, then renewed":   {in(time.Hour), in(2 * time.Hour), in(time.Hour), nil},
		"renewed and confirmed":     {in(time.Hour), in(2 * time.Hour), in(2 * time.Hour), nil},
		"cut and confirmed":         {in(time.Hour), in(time.Minute), in(time.Minute), nil},
		"cut, then confirmed":       {in(time.Hour), in(time.Minute), in(time.Hour), context.DeadlineExceeded},
		"still a standby":           {in(time.Hour), in(time.Hour), Forever, context.DeadlineExceeded},
		"an earlier leadership":     {in(time.Hour), in(time.Hour), in(time.Minute), context.DeadlineExceeded},
		"withdrawn":                 {in(time.Hour), in(time.Hour), 0, context.DeadlineExceeded},
		"over when it is set":       {in(-time.Second), in(-time.Second), in(-time.Second), errNoLease},
		"over, and not read either": {in(-time.Second), in(-time.Second), Forever, errNoLease},
	} {
		b, file, err := newBoard()
		if err != nil {
			t.Fatal(err)
		}
		l := &Leadership{c: &Client{ctx: t.Context()}, place: b.place(1, 1), confirmed: make(chan struct{})}
		l.place.setDeadline(c.wanted)
		l.place.enforce(c.enforced)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if err := l.AwaitLease(ctx, c.since); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		file.Close()
	}
}

// Hooks that wait for promoted work that does not die do not keep the next daemon from starting.
func TestHooksOfASurvivorWait(t *testing.T) {
	b := newBareGuard(t)
	b.opt.Containment = KeeperContainment
	b.l.hooks = []Spec{{Argv: []string{"x"}, Timeout: time.Hour}}
	promoted := b.addLeadership(9, b.l.name)
	promoted.standby = true
	b.give(promoted, &work{seq: 7})
	b.daemon, b.survivedAt = nil, 1
	b.nameSurvivors()
	b.runPendingHooks()
	if !promoted.survivor || !b.l.survivor || !b.leaveSession || b.isCleaningUp(true) || b.l.work != nil {
		t.Errorf("survive: %t, %t; leave the session: %t; cleaning up: %t, hook %+v", promoted.survivor, b.l.survivor, b.leaveSession, b.isCleaningUp(true), b.l.work)
	}
	promoted.work = nil
	b.runPendingHooks()
	if b.l.work == nil {
		t.Error("the hook does not run once the work is dead")
	}
}
