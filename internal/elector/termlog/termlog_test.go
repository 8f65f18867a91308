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

func is(d *cluster.Duration, want time.Duration) bool { return d != nil && time.Duration(*d) == want }

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
	g.Fence.Record.Wait = "1s because it had to"
	see(time.Second)
	moved := r.Take()
	if len(moved) != 1 || moved[0].Wait != "1s because it had to" || !is(moved[0].ToReady, 3*time.Second) || !is(moved[0].Leaderless, 2*time.Second) || moved[0].Cause != cluster.CauseMove {
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

func TestAnUnseenGapIsBounded(t *testing.T) {
	var r Recorder
	var g group
	g.elect(7, "a", cluster.CauseFirst)
	g.current(7, "a", cluster.CurrentReady)
	r.Observe(g.Snapshot, time.Hour)
	g.elect(8, "b", cluster.CauseMove)
	r.Observe(g.Snapshot, 2*time.Hour)
	g.current(8, "b", cluster.CurrentReady)
	r.Observe(g.Snapshot, 2*time.Hour+time.Second)
	if all := r.Take(); len(all) != 2 || !is(all[1].Leaderless, time.Second) || !is(all[1].ToReady, time.Second) {
		t.Errorf("%+v", all)
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

// A leader that was the elector as well ends before its successor's eyes.
func TestTheSuccessorOfTheElectorSeesTheLossOfTheLeader(t *testing.T) {
	for name, c := range map[string]struct {
		members []string
		want    *cluster.Duration
	}{
		"the leader was the elector": {[]string{"b-1"}, span(3 * time.Second)},
		"the leader is another":      {[]string{"a-1", "b-1"}, nil},
	} {
		var r Recorder
		var g group
		g.elect(7, "a", cluster.CauseFirst)
		for _, member := range c.members {
			g.Members = append(g.Members, cluster.Member{Incarnation: cluster.Incarnation{Name: member}})
		}
		r.Succeed(g.Snapshot, time.Hour)
		r.Observe(g.Snapshot, time.Hour)
		g.elect(8, "b", cluster.CauseFailure)
		r.Observe(g.Snapshot, time.Hour+time.Second)
		g.current(8, "b", cluster.CurrentReady)
		r.Observe(g.Snapshot, time.Hour+3*time.Second)
		all := r.Take()
		if last := all[len(all)-1]; last.Term != 8 || (last.Leaderless == nil) != (c.want == nil) || c.want != nil && *last.Leaderless != *c.want {
			t.Errorf("%s: %+v", name, last)
		}
	}
}

// TAKE elects and deletes current at once, and a leader that ZooKeeper did not answer in time is elected again.
func TestTermsAfterSilenceAndAfterAnOutage(t *testing.T) {
	var r Recorder
	var g group
	g.elect(7, "a", cluster.CauseFirst)
	g.current(7, "a", cluster.CurrentReady)
	r.Observe(g.Snapshot, time.Hour)
	g.elect(8, "b", cluster.CauseSilent)
	g.vacant()
	g.Fence.Record.State = cluster.FenceSilent
	r.Observe(g.Snapshot, 2*time.Hour)
	g.current(8, "b", cluster.CurrentReady)
	r.Observe(g.Snapshot, 2*time.Hour+time.Second)
	g.vacant()
	g.Fence.Record.State, g.Fence.Record.Lapsed = cluster.FenceReleased, true
	r.Observe(g.Snapshot, 3*time.Hour)
	g.elect(9, "b", cluster.CauseLapsed)
	r.Observe(g.Snapshot, 3*time.Hour+time.Second)
	g.current(9, "b", cluster.CurrentReady)
	r.Observe(g.Snapshot, 3*time.Hour+3*time.Second)
	all := r.Take()
	if len(all) != 3 || all[1].Cause != cluster.CauseSilent || all[1].Reason != "why b" || !is(all[1].Leaderless, time.Second) ||
		all[2].Cause != cluster.CauseLapsed || all[2].Outcome != "READY" || !is(all[2].Leaderless, 3*time.Second) ||
		!is(all[2].ToReady, 2*time.Second) {
		t.Errorf("%+v", all)
	}
}
