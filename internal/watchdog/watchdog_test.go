package watchdog

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

const (
	takeover   = 30 * time.Second
	resetAfter = 5 * time.Minute
	own        = 4 * time.Second
)

func newWatchdog() *Watchdog {
	return New(Options{Takeover: takeover, StrikeResetAfter: resetAfter, LeaseWait: own})
}

func elected(id string, term int64) cluster.Snapshot {
	return cluster.Snapshot{
		HolderRead: true,
		Elected:    cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Node: id, Incarnation: id, Term: term}},
		Fence:      cluster.Stored[cluster.Fence]{Exists: true, Record: cluster.Fence{State: cluster.FenceReleased}},
	}
}

func holds(s cluster.Snapshot, id string, term int64, state cluster.FenceState) cluster.Snapshot {
	s.Fence = cluster.Stored[cluster.Fence]{Exists: true, Record: cluster.Fence{
		Node: id, Incarnation: id, Term: term, State: state, Kill: cluster.Duration(time.Second), RevokeTimeout: cluster.Duration(10 * time.Second),
	}}
	s.Current = cluster.Stored[cluster.Current]{Exists: true, Stat: cluster.Stat{Created: term}, Record: cluster.Current{Incarnation: id}}
	return s
}

// A current that is not the holder's is revoked at once, and the candidate is not blamed for it.
func TestForeignCurrentIsRevokedAtOnce(t *testing.T) {
	w := newWatchdog()
	s := elected("a", 7)
	s.Current = cluster.Stored[cluster.Current]{Exists: true, Err: cluster.ErrForeignCurrent}
	if f := w.Observe(s, 0); f.Revoke != cluster.ErrForeignCurrent.Error() {
		t.Errorf("revokes by %q", f.Revoke)
	}
	if f := w.Observe(s, 10*takeover); f.Overdue != "" {
		t.Errorf("the candidate is blamed: %q", f.Overdue)
	}
}

// A decision that was damaged is written again in the same term. Nobody could follow it meanwhile, which the elector may
// not have seen.
func TestADecisionThatWasWrittenAgainIsOverdueLater(t *testing.T) {
	w := newWatchdog()
	s := elected("a", 7)
	w.Observe(s, 0)
	s.Elected.Stat.Modified = 1
	if f := w.Observe(s, takeover); f.Overdue != "" {
		t.Errorf("the candidate is blamed: %q", f.Overdue)
	}
	if f := w.Observe(s, 2*takeover); f.Overdue == "" {
		t.Error("the candidate is never blamed")
	}
}

func TestExclusionsEndAndAreCleared(t *testing.T) {
	w := newWatchdog()
	s := holds(elected("a", 7), "a", 7, cluster.FenceReady)
	s.Elected.Record.Exclusions = []cluster.Exclusion{
		{Node: "a", Strikes: 2, For: cluster.Duration(2 * time.Minute), Expired: true},
		{Node: "b", Strikes: 1, For: cluster.Duration(time.Minute)},
	}
	f := w.Observe(s, 0)
	if len(f.Exclusions) != 2 || f.Exclusions[1].Expired || f.Wake != time.Minute {
		t.Errorf("at once: %+v, wake %s", f.Exclusions, f.Wake)
	}
	f = w.Observe(s, time.Minute)
	if len(f.Exclusions) != 2 || !f.Exclusions[1].Expired {
		t.Errorf("after a minute: %+v", f.Exclusions)
	}
	f = w.Observe(s, resetAfter)
	if len(f.Exclusions) != 1 || f.Exclusions[0].Node != "b" {
		t.Errorf("a leader still has its strikes after %s: %+v", resetAfter, f.Exclusions)
	}
	// The record still has them when the leader fails again.
	s.Fence.Record.State, s.Current = cluster.FenceReleased, cluster.Stored[cluster.Current]{}
	if f = w.Observe(s, resetAfter+time.Second); len(f.Exclusions) != 1 || f.Exclusions[0].Node != "b" {
		t.Errorf("a leader has its strikes again once it has failed: %+v", f.Exclusions)
	}
}

// The leader's host is often the elector's: with it the time that has passed must not be lost.
func TestTheNextElectorCountsFromWhenItFirstSawAStrike(t *testing.T) {
	w := newWatchdog()
	s := elected("a", 8)
	s.Elected.Record.Exclusions = []cluster.Exclusion{{Node: "b", Strikes: 1, Term: 7, For: cluster.Duration(time.Minute)}}
	w.Follow(s, 0)
	if f := w.Observe(s, time.Minute-1); f.Exclusions[0].Expired {
		t.Error("it has ended too early")
	}
	if f := w.Observe(s, time.Minute); !f.Exclusions[0].Expired {
		t.Error("it has not ended")
	}
}

// A suspended exclusion counts as a failure until its time is over.
func TestASuspendedExclusionEnds(t *testing.T) {
	w := newWatchdog()
	s := holds(elected("a", 7), "a", 7, cluster.FenceReady)
	s.Elected.Record.Exclusions = []cluster.Exclusion{{Node: "b", Strikes: 1, For: cluster.Duration(time.Minute), Expired: true, Suspended: true}}
	if f := w.Observe(s, 0); !f.Exclusions[0].Failed() || f.Wake != time.Minute {
		t.Errorf("at once: %+v, wake %s", f.Exclusions, f.Wake)
	}
	if f := w.Observe(s, time.Minute); f.Exclusions[0].Failed() || !f.Exclusions[0].Expired {
		t.Errorf("after a minute: %+v", f.Exclusions)
	}
}

// A candidate's time doubles with each candidate that was silent before it. The last leader was none.
func TestTheFirstCandidateAfterASilentLeaderHasNotTwiceTheTime(t *testing.T) {
	w := New(Options{Takeover: takeover, LeaseWait: own, Patience: time.Second})
	s := holds(elected("b", 8), "a", 7, cluster.FenceSilent)
	s.Current = cluster.Stored[cluster.Current]{}
	s.Self.Name, s.Elected.Record.By, s.Elected.Record.Cause, s.Elected.Record.Silent = "me", "me", cluster.CauseSilent, []string{"a"}
	s.Members = []cluster.Member{{Incarnation: cluster.Incarnation{Name: "b"}}}
	w.Observe(s, 0)
	if f := w.Observe(s, time.Second); f.Silent != "b" {
		t.Errorf("after the patience: silent %q", f.Silent)
	}
	s.Elected.Record.Node, s.Elected.Record.Incarnation, s.Elected.Record.Term, s.Elected.Record.Silent = "c", "c", 9, []string{"a", "b"}
	s.Members = append(s.Members, cluster.Member{Incarnation: cluster.Incarnation{Name: "c"}})
	w.Observe(s, time.Second)
	if f := w.Observe(s, 3*time.Second-1); f.Silent != "" {
		t.Errorf("the second candidate has no more time than the first: silent %q", f.Silent)
	}
}
