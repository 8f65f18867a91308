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
		if at := r.Wait(&s, now); at != 0 {
			t.Fatalf("waits until %s at %s", at, now)
		}
		if r.Failed("ELECT", &s, errors.New("no such znode"), false, now, base) {
			logged++
		}
		at := r.Wait(&s, now)
		if again := r.Wait(&s, at-1); at <= now || again != at {
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
	if !r.Failed("ELECT", &s, errors.New("another reason"), false, now, base) {
		t.Error("another reason is not logged")
	}
}

func TestAPermanentErrorIsLoggedAtOnce(t *testing.T) {
	var r Retry
	s := newGroup("a").Snapshot
	if !r.Failed("ELECT", &s, cluster.ErrNoAuth, true, time.Hour, time.Second) {
		t.Error("not logged")
	}
	if r.Failed("ELECT", &s, cluster.ErrNoAuth, true, time.Hour, time.Second) {
		t.Error("logged twice")
	}
}

// A write made from other records is another write: it waits briefly (L1), but is not repeated without any pause.
func TestAChangedSnapshotEndsTheGrowingPause(t *testing.T) {
	const base = 100 * time.Millisecond
	old := newGroup("a", "b").elected("a", 7)
	for name, changed := range map[string]func(s *cluster.Snapshot){
		"elected": func(s *cluster.Snapshot) { s.Elected.Stat.Modified++ },
		"fence":   func(s *cluster.Snapshot) { s.Fence.Stat.Modified++ },
		"deleted": func(s *cluster.Snapshot) { s.Elected.Exists = false },
		"current": func(s *cluster.Snapshot) { s.Current.Exists = true },
		"policy":  func(s *cluster.Snapshot) { s.Policy.Exists = true },
		"control": func(s *cluster.Snapshot) { s.Control.Stat.Modified++ },
		"members": func(s *cluster.Snapshot) { s.Members = s.Members[:1] },
	} {
		var r Retry
		s, now := old.Snapshot, time.Hour
		for range 10 {
			r.Failed("ELECT", &s, cluster.ErrBadVersion, false, now, base)
		}
		if at := r.Wait(&s, now+base); at != now+retryMax {
			t.Errorf("%s: waits until %s", name, at)
		}
		changed(&s)
		if at := r.Wait(&s, now); at != now+base {
			t.Errorf("%s: another write waits until %s", name, at)
		}
		if at := r.Wait(&s, now+base); at != 0 {
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
		at := r.Wait(&g.Snapshot, now)
		if want := now + base<<i; at != want {
			t.Fatalf("repair %d: waits until %s, want %s", i, at, want)
		}
		now = at
		r.Repaired(now, base)
	}
	r.Succeeded("ELECT")
	if at := r.Wait(&g.Snapshot, now); at != 0 {
		t.Errorf("waits until %s after another write took effect", at)
	}
}

// Another write, or the same one much later, begins with the first pause; only a success of the same write resets it.
func TestPausesAreCountedPerWrite(t *testing.T) {
	const base = 100 * time.Millisecond
	s := newGroup("a", "b").elected("a", 7).Snapshot
	failed := func() (r Retry, due time.Duration) {
		for range 3 {
			r.Failed("ELECT", &s, cluster.ErrNoAuth, false, time.Hour, base)
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
		if logged := r.Failed(c.what, &s, errors.New("another reason"), false, now, base); logged != c.logged {
			t.Errorf("%s: logged: %v", name, logged)
		}
		if at := r.Wait(&s, now); at != now+c.pause {
			t.Errorf("%s: the pause is %s, want %s", name, at-now, c.pause)
		}
	}
	r, due := failed()
	if r.Failed("REVOKE", &s, cluster.ErrNoAuth, true, due, base) {
		t.Error("the same reason is logged again for another write")
	}
	r, due = failed()
	r.Succeeded("REVOKE")
	if at := r.Wait(&s, due-1); at != due {
		t.Errorf("after another write has succeeded it waits until %s, want %s", at, due)
	}
	r.Succeeded("ELECT")
	if at := r.Wait(&s, due-1); at != 0 {
		t.Errorf("after it has succeeded it waits until %s", at)
	}
}
