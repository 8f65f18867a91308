package termlog

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// group builds an elector's snapshots.
type group struct{ cluster.Snapshot }

func (g *group) elect(term int64, node string, cause cluster.Cause) {
	g.Elected = cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Term: term, Node: node, Incarnation: node + "-1", Cause: cause, Reason: "why " + node}}
}

func (g *group) current(term int64, node string, state cluster.CurrentState) {
	g.Current = cluster.Stored[cluster.Current]{Exists: true, Record: cluster.Current{Term: term, Node: node, Incarnation: node + "-1", State: state}}
	fence := cluster.FenceHeld
	if state == cluster.CurrentReady {
		fence = cluster.FenceReady
	}
	g.Fence = cluster.Stored[cluster.Fence]{Exists: true, Record: cluster.Fence{Term: term, Node: node, Incarnation: node + "-1", State: fence}}
}

func (g *group) vacant() { g.Current = cluster.Stored[cluster.Current]{} }

// ended is what the last leader, or who takes over from it, has left behind.
func (g *group) ended(state cluster.FenceState, idle *cluster.Gap) {
	g.vacant()
	g.Fence.Record.End(idle)
	g.Fence.Record.State = state
}

func is(d *cluster.Duration, want time.Duration) bool { return d != nil && time.Duration(*d) == want }

// shows returns a gap in words.
func shows(g *cluster.Gap) string {
	if g == nil {
		return "-"
	}
	return g.Rounded()
}

func TestHandoverTimes(t *testing.T) {
	var r Recorder
	var g group
	at := time.Hour
	see := func(after time.Duration) {
		at += after
		r.Observe(g.Snapshot, at)
	}
	g.elect(7, "a", cluster.CauseFirst)
	g.current(7, "a", cluster.CurrentReady)
	see(0)
	first := r.Take()
	if len(first) != 1 || first[0].Term != 7 || first[0].ToReady != nil || first[0].Leaderless != nil || first[0].Outcome != "READY" {
		t.Fatalf("of what was in the first snapshot: %+v", first)
	}
	r.Written(first)
	if seen := r.Witnessed(); len(seen) != 0 {
		t.Errorf("witnessed %+v, which was there before", seen)
	}

	g.elect(8, "b", cluster.CauseMove)
	see(time.Minute)
	g.vacant()
	see(time.Second)
	g.current(8, "b", cluster.CurrentProgress)
	see(time.Second)
	g.current(8, "b", cluster.CurrentReady)
	g.Fence.Record.Wait, g.Fence.Record.Idle = "1s because it had to", &cluster.Gap{For: cluster.Duration(2 * time.Second)}
	see(time.Second)
	moved := r.Take()
	if len(moved) != 1 || moved[0].Wait != "1s because it had to" || !is(moved[0].ToReady, 3*time.Second) || shows(moved[0].Leaderless) != "2s" || moved[0].Cause != cluster.CauseMove {
		t.Fatalf("%+v", moved)
	}
	if seen := r.Witnessed(); len(seen) != 1 || seen[0].Term != 8 {
		t.Errorf("witnessed: %+v", seen)
	}
	see(time.Second)
	if seen := r.Witnessed(); len(seen) != 0 {
		t.Errorf("witnessed again: %+v", seen)
	}
	if len(r.Take()) != 1 {
		t.Error("a term is recorded twice")
	}
}

// If the decision and READY are seen at once, the time between them counts only for the elector that has decided.
func TestToReadyCountsFromTheDecision(t *testing.T) {
	for name, decides := range map[string]bool{"it has decided": true, "another has": false} {
		var r Recorder
		var g group
		g.elect(7, "a", cluster.CauseFirst)
		g.current(7, "a", cluster.CurrentReady)
		r.Observe(g.Snapshot, time.Hour)
		if decides {
			r.Decide(8, time.Hour+time.Second)
		}
		g.elect(8, "b", cluster.CauseMove)
		g.current(8, "b", cluster.CurrentReady)
		r.Observe(g.Snapshot, time.Hour+3*time.Second)
		if all := r.Take(); len(all) != 2 || is(all[1].ToReady, 2*time.Second) != decides || !decides && all[1].ToReady != nil {
			t.Errorf("%s: %+v", name, all)
		}
	}
}

func TestATermThatWasNeverReadyHasAReason(t *testing.T) {
	var r Recorder
	var g group
	g.elect(7, "a", cluster.CauseFirst)
	r.Observe(g.Snapshot, time.Hour)
	g.elect(8, "b", cluster.CauseOverdue)
	r.Observe(g.Snapshot, time.Hour+time.Second)
	if all := r.Take(); len(all) != 1 || all[0].Term != 7 || all[0].Outcome != "never READY: why b" {
		t.Errorf("%+v", all)
	}
}

// gaps has what the elector sees, and what it is to say then of how long no leader's work has run.
type gaps struct {
	t  *testing.T
	r  Recorder
	g  group
	at time.Duration
}

func newGaps(t *testing.T) *gaps {
	x := &gaps{t: t, at: time.Hour}
	x.g.elect(7, "a", cluster.CauseFirst)
	x.g.current(7, "a", cluster.CurrentReady)
	return x
}

func (x *gaps) see(after time.Duration, want string) {
	x.t.Helper()
	x.at += after
	x.r.Observe(x.g.Snapshot, x.at)
	if got := shows(x.r.Leaderless(x.at, cluster.LeaseZnodeSeen{})); got != want {
		x.t.Errorf("no leader's work for %s, want %s", got, want)
	}
}

// The end of the work is what the fence says, not the end of current; without a word of it, it was before the end of current.
func TestGapsBeginWithTheEndOfTheWork(t *testing.T) {
	x := newGaps(t)
	x.see(0, "-")
	x.g.ended(cluster.FenceReleased, &cluster.Gap{For: cluster.Duration(20 * time.Millisecond)})
	x.see(time.Minute, "20ms")
	x.see(time.Second, "1.02s")
	x.g.elect(8, "b", cluster.CauseStopped)
	x.g.current(8, "b", cluster.CurrentProgress)
	x.g.Fence.Record.Idle = &cluster.Gap{For: cluster.Duration(1500 * time.Millisecond)}
	x.see(time.Second, "1.5s")
	x.g.ended(cluster.FenceRevoked, nil) // a failed takeover, by an elector that knows no more than this one
	x.see(time.Second, "2.5s")
	x.g.elect(9, "c", cluster.CauseOverdue)
	x.g.current(9, "c", cluster.CurrentReady)
	x.g.Fence.Record.Idle = &cluster.Gap{For: cluster.Duration(3 * time.Second)}
	x.see(time.Second, "-")
	x.g.vacant() // its session has ended
	x.see(time.Second, "at least 0s")
	x.see(time.Second, "at least 1s")
	x.g.ended(cluster.FenceRevoked, cluster.AtLeast(0)) // somebody else saw it later
	x.see(time.Second, "at least 2s")
	if all := x.r.Take(); len(all) != 3 || shows(all[0].Leaderless) != "-" || shows(all[1].Leaderless) != "-" || shows(all[2].Leaderless) != "3s" {
		t.Errorf("%+v", all)
	}
}

// A new elector knows that there has been no leader since the records were written at least.
func TestANewElectorCountsOn(t *testing.T) {
	x := newGaps(t)
	x.g.vacant()
	x.see(0, "at least 0s") // the leader and the elector were lost together
	x.see(time.Second, "at least 1s")
	x = newGaps(t)
	x.g.ended(cluster.FenceReleased, &cluster.Gap{For: cluster.Duration(time.Second)})
	x.see(0, "at least 1s")
	x = newGaps(t)
	x.g.vacant()
	x.g.elect(8, "b", cluster.CauseFailure)
	x.g.Elected.Record.Leaderless = cluster.AtLeast(4 * time.Second)
	x.see(0, "at least 4s")
	x = newGaps(t)
	x.g.Elected.Record.Leaderless = cluster.AtLeast(4 * time.Second) // until its leader was READY
	x.g.vacant()
	x.see(0, "at least 0s")
	x = newGaps(t)
	x.g.Elected.Record.Leaderless = cluster.AtLeast(4 * time.Second)
	x.g.ended(cluster.FenceReleased, cluster.AtLeast(0))
	x.see(0, "at least 0s")
}

// A deputy that acts, and acts again later, does not count what it has not seen as a time without a leader.
func TestADeputyThatWasBlindCountsAnew(t *testing.T) {
	x := newGaps(t)
	x.g.vacant()
	x.see(0, "at least 0s")
	x.see(time.Second, "at least 1s")
	x.g.elect(8, "b", cluster.CauseFailure)
	x.see(0, "at least 1s")
	x.g.ended(cluster.FenceReady, nil) // b has led meanwhile, and is lost
	x.g.Fence.Record.Term = 8
	x.g.vacant()
	x.see(8*time.Second, "at least 0s")
	x.g.Fence.Record.Term, x.g.Fence.Record.State = 10, cluster.FenceHeld // two others were elected meanwhile
	x.see(8*time.Second, "at least 0s")

	x = newGaps(t)
	x.g.vacant()
	x.see(0, "at least 0s")
	x.g.elect(8, "b", cluster.CauseFailure)
	x.see(time.Second, "at least 1s")
	// b has led for less time than a read took.
	x.g.Fence.Record = cluster.Fence{Term: 8, State: cluster.FenceReleased, Led: true, Idle: cluster.AtLeast(0)}
	x.see(time.Second, "at least 0s")
	x.see(time.Second, "at least 1s")
	x.g.Fence.Record.State = cluster.FenceRevoked // said again, otherwise
	x.see(time.Second, "at least 2s")

	x = newGaps(t)
	x.see(0, "-")
	x.g.ended(cluster.FenceReleased, &cluster.Gap{For: cluster.Duration(time.Second)})
	x.see(time.Second, "1s")
	x.g.Fence = cluster.Stored[cluster.Fence]{Exists: true, Err: cluster.ErrNoAuth} // what it has said is lost
	x.see(time.Second, "at least 0s")
}

// A host that is lost has worked until its last renewal at least, whatever else is known of it.
func TestTheGapAfterSilenceCountsFromTheLastRenewal(t *testing.T) {
	x := newGaps(t)
	x.see(0, "-")
	renewed := cluster.LeaseZnodeSeen{At: x.at + time.Second, Witnessed: true}
	if got := shows(x.r.Leaderless(x.at+4*time.Second, renewed)); got != "at most 3s" {
		t.Errorf("a READY leader: %s", got)
	}
	found := cluster.LeaseZnodeSeen{At: x.at + time.Second}
	if got := shows(x.r.Leaderless(x.at+4*time.Second, found)); got != "at least 0s" {
		t.Errorf("a READY leader that may have been silent before: %s", got)
	}
	x.g.elect(8, "b", cluster.CauseSilent)
	x.g.ended(cluster.FenceSilent, cluster.AtMost(3*time.Second))
	x.see(4*time.Second, "at most 3s")
	x.g.current(8, "b", cluster.CurrentProgress)
	x.see(time.Second, "at most 4s")
	if got := shows(x.r.Leaderless(x.at+time.Second, cluster.LeaseZnodeSeen{At: x.at, Witnessed: true})); got != "at most 5s" {
		t.Errorf("a candidate that falls silent as well: %s", got)
	}
}
