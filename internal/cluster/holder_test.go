package cluster

import (
	"testing"
	"time"
)

// TestAcquiredReadyAndHoldsCurrent changes each part that the three conditions depend on.
func TestAcquiredReadyAndHoldsCurrent(t *testing.T) {
	const session = 7
	for name, c := range map[string]struct {
		change                 func(*Snapshot)
		acquired, ready, holds bool
	}{
		"a leader":                    {func(*Snapshot) {}, true, true, true},
		"a candidate":                 {func(s *Snapshot) { s.Fence.Record.State = FenceHeld }, true, false, true},
		"no current":                  {func(s *Snapshot) { s.Current.Exists, s.Current.Stat.Owner = false, session }, true, false, false},
		"current of another session":  {func(s *Snapshot) { s.Current.Stat.Owner = 8 }, true, true, false},
		"leadership was not read":     {func(s *Snapshot) { s.HolderRead = false }, true, true, false},
		"a fence of another term":     {func(s *Snapshot) { s.Fence.Record.Term = 2 }, false, false, true},
		"a fence of another":          {func(s *Snapshot) { s.Fence.Record.Incarnation = "b" }, false, false, true},
		"a fence that is damaged":     {func(s *Snapshot) { s.Fence.Err = ErrInvalid }, false, false, true},
		"a decision that is damaged":  {func(s *Snapshot) { s.Elected.Err = ErrInvalid }, false, false, true},
		"neither decision, nor fence": {func(s *Snapshot) { s.Elected, s.Fence = Stored[Elected]{}, Stored[Fence]{} }, false, false, true},
	} {
		s := Snapshot{
			Session: session, HolderRead: true,
			Elected: Stored[Elected]{Exists: true, Record: Elected{Term: 3, Incarnation: "a"}},
			Fence:   Stored[Fence]{Exists: true, Record: Fence{Term: 3, Incarnation: "a", State: FenceReady}},
			Current: Stored[Current]{Exists: true, Stat: Stat{Owner: session}},
		}
		c.change(&s)
		if s.Acquired() != c.acquired || s.Ready() != c.ready || s.HoldsCurrent() != c.holds {
			t.Errorf("%s: acquired %v, ready %v, holds current %v", name, s.Acquired(), s.Ready(), s.HoldsCurrent())
		}
	}
}

// An attempt has ended once the elected incarnation has released, or was revoked, in the elected term; it waits only while
// its fence is HELD.
func TestEndedAndWaiting(t *testing.T) {
	for state, want := range map[FenceState]struct {
		ended bool
		wait  string
	}{
		FenceHeld: {false, "5s"}, FenceReady: {false, ""}, FenceReleased: {true, ""}, FenceUnclean: {true, ""}, FenceRevoked: {true, ""},
	} {
		s := Snapshot{
			Elected: Stored[Elected]{Exists: true, Record: Elected{Term: 3, Incarnation: "a"}},
			Fence:   Stored[Fence]{Exists: true, Record: Fence{Term: 3, Incarnation: "a", State: state, Wait: "5s"}},
		}
		if s.Ended() != want.ended || s.Waiting() != want.wait {
			t.Errorf("%s: ended %v, waits %q", state, s.Ended(), s.Waiting())
		}
		s.Fence.Record.Incarnation = "b"
		if s.Ended() || s.Waiting() != "" {
			t.Errorf("%s of another incarnation: ended %v, waits %q", state, s.Ended(), s.Waiting())
		}
	}
}

func TestExclusionDescription(t *testing.T) {
	x := Exclusion{Node: "a", Strikes: 2, For: Duration(time.Minute), Reason: "a gave up"}
	if got, want := x.Describe(), "excluded for 1m0s after strike 2: a gave up"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
