package elector

import (
	"errors"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// A write that keeps being refused is repeated with growing pauses, and its reason is logged once.
func TestRefusedWritesAreRepeatedWithGrowingPauses(t *testing.T) {
	const base = 100 * time.Millisecond
	var r Retry
	s := newGroup("a", "b").elected("a", 7).Snapshot
	now, logged := time.Hour, 0
	var pauses []time.Duration
	for range 12 {
		if at := r.Wait(&s, nil, now); at != 0 {
			t.Fatalf("waits until %s at %s", at, now)
		}
		if r.Failed("ELECT", &s, nil, errors.New("no such znode"), false, now, base) {
			logged++
		}
		at := r.Wait(&s, nil, now)
		if again := r.Wait(&s, nil, at-1); at <= now || again != at {
			t.Fatalf("at %s: waits until %s, then until %s", now, at, again)
		}
		pauses = append(pauses, at-now)
		now = at
	}
	for i, p := range pauses {
		if want := min(base<<i, 5*time.Second); p != want {
			t.Errorf("pause %d is %s, want %s", i, p, want)
		}
	}
	if logged != 1 {
		t.Errorf("logged %d times", logged)
	}
	if !r.Failed("ELECT", &s, nil, errors.New("another reason"), false, now, base) {
		t.Error("another reason is not logged")
	}
}

func TestAPermanentErrorIsLoggedAtOnce(t *testing.T) {
	var r Retry
	s := newGroup("a").Snapshot
	if !r.Failed("ELECT", &s, nil, cluster.ErrNoAuth, true, time.Hour, time.Second) {
		t.Error("not logged")
	}
	if r.Failed("ELECT", &s, nil, cluster.ErrNoAuth, true, time.Hour, time.Second) {
		t.Error("logged twice")
	}
}

// A write made from other records is another write: it waits briefly (L1), but is not repeated without any pause.
func TestAChangedSnapshotEndsTheGrowingPause(t *testing.T) {
	const base = 100 * time.Millisecond
	old := newGroup("a", "b").elected("a", 7)
	for name, changed := range map[string]func(s *cluster.Snapshot, other *cluster.SlotState){
		"elected":            func(s *cluster.Snapshot, _ *cluster.SlotState) { s.Elected.Stat.Modified++ },
		"fence":              func(s *cluster.Snapshot, _ *cluster.SlotState) { s.Fence.Stat.Modified++ },
		"deleted":            func(s *cluster.Snapshot, _ *cluster.SlotState) { s.Elected.Exists = false },
		"current":            func(s *cluster.Snapshot, _ *cluster.SlotState) { s.Current.Exists = true },
		"policy":             func(s *cluster.Snapshot, _ *cluster.SlotState) { s.Policy.Exists = true },
		"control":            func(s *cluster.Snapshot, _ *cluster.SlotState) { s.Control.Stat.Modified++ },
		"slots":              func(s *cluster.Snapshot, _ *cluster.SlotState) { s.Slots.Stat.Modified++ },
		"slots deleted":      func(s *cluster.Snapshot, _ *cluster.SlotState) { s.Slots.Exists = false },
		"members":            func(s *cluster.Snapshot, _ *cluster.SlotState) { s.Members = s.Members[:1] },
		"elected of another": func(_ *cluster.Snapshot, o *cluster.SlotState) { o.Elected.Stat.Modified++ },
		"deleted in another": func(_ *cluster.Snapshot, o *cluster.SlotState) { o.Elected.Exists = false },
		"fence of another":   func(_ *cluster.Snapshot, o *cluster.SlotState) { o.Fence.Stat.Modified++ },
		"current of another": func(_ *cluster.Snapshot, o *cluster.SlotState) { o.Current.Exists = true },
		"another slot":       func(_ *cluster.Snapshot, o *cluster.SlotState) { o.Slot = "2" },
	} {
		var r Retry
		s, now := old.Snapshot, time.Hour
		s.Slots.Exists = true
		others := []cluster.SlotState{{Slot: "1", Elected: cluster.Stored[cluster.Elected]{Exists: true}}}
		for range 10 {
			r.Failed("ELECT", &s, others, cluster.ErrBadVersion, false, now, base)
		}
		if at := r.Wait(&s, others, now+base); at != now+retryMax {
			t.Errorf("%s: waits until %s", name, at)
		}
		changed(&s, &others[0])
		if at := r.Wait(&s, others, now); at != now+base {
			t.Errorf("%s: another write waits until %s", name, at)
		}
		if at := r.Wait(&s, others, now+base); at != 0 {
			t.Errorf("%s: another write waits longer, until %s", name, at)
		}
	}
}

func TestSuccessfulRepairsArePaced(t *testing.T) {
	const base = 100 * time.Millisecond
	var r Retry
	g := newGroup("a", "b").elected("a", 7)
	now := time.Hour
	r.Repaired(now, base)
	for i := range 4 {
		g.Elected.Stat.Modified++ // each repair changes what is read
		at := r.Wait(&g.Snapshot, nil, now)
		if want := now + base<<i; at != want {
			t.Fatalf("repair %d: waits until %s, want %s", i, at, want)
		}
		now = at
		r.Repaired(now, base)
	}
	r.Succeeded("ELECT")
	if at := r.Wait(&g.Snapshot, nil, now); at != 0 {
		t.Errorf("waits until %s after another write took effect", at)
	}
}

// Another write, or the same one much later, begins with the first pause; only a success of the same write resets it.
func TestPausesAreCountedPerWrite(t *testing.T) {
	const base = 100 * time.Millisecond
	s := newGroup("a", "b").elected("a", 7).Snapshot
	failed := func() (r Retry, due time.Duration) {
		for range 3 {
			r.Failed("ELECT", &s, nil, cluster.ErrNoAuth, false, time.Hour, base)
		}
		return r, time.Hour + 4*base
	}
	for name, c := range map[string]struct {
		what   string
		after  time.Duration // the end of the last pause
		pause  time.Duration
		logged bool
	}{
		"the same":             {"ELECT", 0, 8 * base, true},
		"the same, later":      {"ELECT", 2*retryMax - 1, 8 * base, true},
		"the same, long after": {"ELECT", 2 * retryMax, base, false},
		"another":              {"REVOKE", 0, base, false},
	} {
		r, due := failed()
		now := due + c.after
		if logged := r.Failed(c.what, &s, nil, errors.New("another reason"), false, now, base); logged != c.logged {
			t.Errorf("%s: logged: %v", name, logged)
		}
		if at := r.Wait(&s, nil, now); at != now+c.pause {
			t.Errorf("%s: the pause is %s, want %s", name, at-now, c.pause)
		}
	}
	r, due := failed()
	if r.Failed("REVOKE", &s, nil, cluster.ErrNoAuth, true, due, base) {
		t.Error("the same reason is logged again for another write")
	}
	r, due = failed()
	r.Succeeded("REVOKE")
	if at := r.Wait(&s, nil, due-1); at != due {
		t.Errorf("after another write has succeeded it waits until %s, want %s", at, due)
	}
	r.Succeeded("ELECT")
	if at := r.Wait(&s, nil, due-1); at != 0 {
		t.Errorf("after it has succeeded it waits until %s", at)
	}
}
