package elector

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// A decision keeps unknown fields, names its elector and the previous leader, and has the next term.
func TestElectRecord(t *testing.T) {
	g := newGroup("a", "b").sites("dc1", "dc2").leads("a", 7)
	g.Self.Name = "elector-0000000000000001-n_0000000001"
	g.Elected.Record.Unknown = map[string]json.RawMessage{"kept": json.RawMessage("1")}
	g.Members = g.Members[1:]
	d := newElector().Decide(g.input(t))
	if d.Elect == nil {
		t.Fatalf("no member: %q", d.Note)
	}
	got := *d.Elect
	if len(got.Ranking) != 1 || got.Ranking[0].Node != "b" || !reflect.DeepEqual(*d.Ranking.Entries[0].Member, g.Members[0]) {
		t.Errorf("ranking %+v", got.Ranking)
	}
	got.Ranking = nil
	want := cluster.Elected{
		Header: g.Elected.Record.Header, Term: wall.Unix() + 8, Node: "b", Site: "dc2", Incarnation: "b", Cause: cluster.CauseFailure, Reason: "a is gone",
		By: g.Self.Name, PreviousNode: "a", PreviousSite: "dc1", PolicyRevision: 3, Time: wall, Heir: &cluster.Heir{},
		Circumstances: cluster.Circumstances{Cause: cluster.CauseFailure, Node: "a", Site: "dc1"},
	}
	want.Circumstances.Failed = got.Circumstances.Failed
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

// The previous leader comes from the decision, or from the fence if the decision was lost.
func TestThePredecessorComesFromTheFenceIfTheDecisionIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		g    *group
		want string
	}{
		"decision and fence":         {newGroup("b").elected("a", 7).fence("x", 6, cluster.FenceReleased), "a dc1"},
		"no decision":                {newGroup("b").fence("x", 7, cluster.FenceReleased), "x dc9"},
		"no decision, damaged fence": {newGroup("b"), " "},
	} {
		if c.g.Fence.Exists {
			c.g.Fence.Record.Site = "dc9"
		} else {
			c.g.Fence = cluster.Stored[cluster.Fence]{Exists: true, Err: errors.New("damaged"), Record: cluster.Fence{Node: "x"}}
		}
		d := newElector().Decide(c.g.input(t))
		if d.Elect == nil || d.Elect.PreviousNode+" "+d.Elect.PreviousSite != c.want {
			t.Errorf("%s: %+v", name, d.Elect)
		}
	}
}

// The reasons for an election that repairs the records.
func TestRepairReasons(t *testing.T) {
	damaged := func(fence, elected int64) *group {
		g := newGroup("a").leads("a", 7)
		g.Fence = cluster.Stored[cluster.Fence]{Exists: true, Err: errors.New("the fence is damaged"), Stat: cluster.Stat{Modified: fence}}
		g.Elected.Stat.Modified = elected
		return g
	}
	newer := newGroup("a").leads("a", 7)
	newer.Fence.Stat.Modified = 9
	unreadable := newGroup("a").leads("a", 7)
	unreadable.Elected = cluster.Stored[cluster.Elected]{Exists: true, Err: errors.New("the decision is damaged")}
	remembers := func(term int64, state cluster.FenceState) *group {
		g := newGroup("a").leads("a", 7).fence("a", 7, state)
		g.node("a").LastTerm = term
		return g
	}
	for name, c := range map[string]struct {
		g    *group
		want string
	}{
		"deleted":                        {newGroup("a").fence("a", 7, cluster.FenceReady), "the decision was deleted"},
		"the decision is damaged":        {unreadable, "the decision is damaged"},
		"damaged since":                  {damaged(9, 8), "the fence is damaged"},
		"damaged, and decided since":     {damaged(8, 8), "the fence is damaged"}, // the decision is not judged by a damaged fence
		"written since and not damaged":  {newer, ""},
		"the fence is gone":              {newGroup("a").elected("a", 7), "the fence was deleted"},
		"a later term is remembered":     {remembers(8, cluster.FenceHeld), "a member remembers a later term"},
		"the same term is remembered":    {remembers(7, cluster.FenceHeld), ""},
		"it leads with an earlier term":  {remembers(8, cluster.FenceReady), ""},
		"neither decision nor fence say": {newGroup("a").elected("a", 0).fence("", 0, cluster.FenceRevoked), ""},
	} {
		d := newElector().Decide(c.g.input(t))
		switch {
		case c.want == "":
			if d.Elect != nil && d.Elect.Cause == cluster.CauseRepair {
				t.Errorf("%s: elected: %s", name, d.Elect.Reason)
			}
		case d.Elect == nil || d.Elect.Cause != cluster.CauseRepair || d.Elect.Reason != c.want:
			t.Errorf("%s: %+v, want %q", name, d.Elect, c.want)
		}
	}
}

// While a group comes up its members join one by one: preemptions in the first minute do not count.
func TestPreemptionsWhileAGroupComesUpAreNotCounted(t *testing.T) {
	for _, c := range []struct {
		after   time.Duration
		counted int
	}{{0, 0}, {startupPeriod - 1, 0}, {startupPeriod, 1}} {
		h := newGroup("a", "b").scenario(t)
		all := h.in.Snapshot.Members
		h.in.Snapshot.Members = all[1:]
		h.leader("b", cluster.CauseFirst)
		h.pass(c.after)
		h.in.Snapshot.Members = all
		if rec := h.leader("a", cluster.CausePreempt); len(rec.Preemptions) != c.counted {
			t.Errorf("%s after the first election: moves %v", c.after, rec.Preemptions)
		}
	}
	// A later election does not begin another such minute.
	h := newGroup("a", "b", "c").scenario(t)
	h.leader("a", cluster.CauseFirst)
	h.pass(time.Hour)
	all := h.in.Snapshot.Members
	h.remove("a")
	h.leader("b", cluster.CauseFailure)
	h.in.Snapshot.Members = all
	if rec := h.leader("a", cluster.CausePreempt); len(rec.Preemptions) != 1 {
		t.Errorf("after a failure: moves %v", rec.Preemptions)
	}
}

// The next preemption is allowed when the oldest one no longer counts.
func TestTheNextPreemptionFollowsTheOldest(t *testing.T) {
	h := newGroup("a", "b").leads("b", 7).scenario(t, cluster.Rules{Type: "priority", MaxPreemptions: 2})
	first := h.in.Now
	h.leader("a", cluster.CausePreempt)
	h.pass(time.Minute)
	h.swap()
	h.leader("b", cluster.CausePreempt)
	rec := &h.in.Snapshot.Elected.Record
	rec.Preemptions[0], rec.Preemptions[1] = rec.Preemptions[1], rec.Preemptions[0] // in any order
	h.pass(time.Minute)
	h.swap()
	if d := h.settle(); d.Wake != first+time.Hour {
		t.Errorf("wakes after %s", d.Wake-first)
	}
}

// A revocation needs a holder, and keeps what the fence says about it.
func TestRevokeRecord(t *testing.T) {
	g := newGroup("a", "b").leads("a", 7)
	g.Fence.Record.Term, g.Fence.Record.Led, g.Fence.Record.LeaseWait = 6, true, 4
	g.Fence.Record.State = cluster.FenceHeld
	g.Fence.Record.Owed, g.Fence.Record.Earlier = 36, []cluster.EarlierHolder{{Node: "old", Wait: 36}}
	g.Fence.Record.Failsafe = &cluster.Failsafe{Members: []cluster.FailsafeMember{{}}}
	in := g.input(t)
	in.Revoke = "not released in time"
	d := newElector().Decide(in)
	if d.Revoke == nil || d.Revoke.Owed != 36 || len(d.Revoke.Earlier) != 1 || d.Revoke.Failsafe == nil {
		t.Errorf("it forgets what the holder owes, or who has promised: %+v", d.Revoke)
	}
	g.Fence.Record.Owed, g.Fence.Record.Earlier, g.Fence.Record.Failsafe = 0, nil, nil
	in = g.input(t)
	in.Revoke = "not released in time"
	if d := newElector().Decide(in); d.Revoke == nil || !d.Revoke.Led || d.Revoke.LeaseWait != 4 || d.Revoke.Term != 6 || d.Revoke.State != cluster.FenceRevoked {
		t.Errorf("%+v", d.Revoke)
	}
	in.Snapshot.Current.Exists = false
	if d := newElector().Decide(in); d.Revoke != nil {
		t.Errorf("revokes without a holder: %+v", d.Revoke)
	}
	// An unreadable fence is rewritten as REVOKED by an election: it has nothing to keep.
	in.Snapshot.Current.Exists = true
	g.node("a").SessionTimeout = cluster.Duration(10 * time.Second)
	in.Snapshot.Fence = cluster.Stored[cluster.Fence]{Exists: true, Err: errors.New("damaged")}
	if d := newElector().Decide(in); d.Revoke != nil || d.Elect == nil || d.Fence == nil || d.Fence.State != cluster.FenceRevoked || time.Duration(d.Fence.LeaseWait) != cluster.LeaseWait(10*time.Second) {
		t.Errorf("an unreadable fence: %+v", d)
	}
}

// A leader whose current was replaced no longer leads. The next election is followed by a REVOKE of what took its place.
func TestAReplacedCurrentEndsTheLeadership(t *testing.T) {
	g := newGroup("a").leads("a", 7)
	g.Current.Record, g.Current.Err = cluster.Current{}, fmt.Errorf("znode %w", cluster.ErrForeignCurrent)
	if g.Ready() {
		t.Error("it counts as READY")
	}
	in := g.input(t)
	d := newElector().Decide(in)
	if d.Elect == nil || d.Elect.Cause != cluster.CauseRepair || d.Elect.Reason != "current was replaced under a" || len(d.Elect.Exclusions) > 0 {
		t.Fatalf("%+v", d.Elect)
	}
	in.Snapshot.Elected.Record, in.Revoke = *d.Elect, g.Current.Err.Error()
	if d := newElector().Decide(in); d.Revoke == nil || d.Revoke.State != cluster.FenceRevoked || d.Revoke.Reason != in.Revoke {
		t.Errorf("%+v", d)
	}
}

// A member that has released on request, but goes on, may be elected again: it was replaced, which the elector has read
// before it has read by whom.
func TestAMemberThatGoesOnMayBeElectedAgain(t *testing.T) {
	e, g := newElector(), newGroup("a", "b").leads("a", 7)
	g.Fence.Record.State, g.Fence.Record.Requested = cluster.FenceReleased, true
	elects(t, "it has released", e.Decide(g.input(t)), "a")
}

// A holder of an older build keeps what it does not know from the fence of its predecessor: that says nothing about it.
func TestAMemberIsNotTakenForItsPredecessorThatStopped(t *testing.T) {
	e, g := newElector(), newGroup("a").leads("a", 7)
	g.Fence.Record.State, g.Fence.Record.Lapsed, g.Fence.Record.Stopping = cluster.FenceReleased, true, "b"
	elects(t, "its predecessor stopped", e.Decide(g.input(t)), "a")
}

// A member that has released because it stops, clean or not, is not elected again until its incarnation is gone.
func TestAMemberThatStopsIsNotElectedAgain(t *testing.T) {
	for _, state := range []cluster.FenceState{cluster.FenceReleased, cluster.FenceUnclean, cluster.FenceReady} {
		t.Run(string(state), func(t *testing.T) {
			e := newElector()
			g := newGroup("a", "b").leads("a", 7)
			g.Fence.Record.State, g.Fence.Record.Requested, g.Fence.Record.Stopping = state, true, "a"
			g.Fence.Record.Reason = "stopped by systemd"
			d := e.Decide(g.input(t))
			if state == cluster.FenceReady {
				if d.Elect != nil {
					t.Fatalf("a leader is replaced: %s", d.Elect.Reason)
				}
				return
			}
			if d.Elect == nil || d.Elect.Node != "b" {
				t.Fatalf("elected %+v", d.Elect)
			}
			after := newGroup("a", "b").leads("b", 8)
			if d := e.Decide(after.input(t)); d.Elect != nil || d.Ranking.Entries[len(d.Ranking.Entries)-1].RefusalReason() != "its membership ends: stopped by systemd" {
				t.Errorf("elected %+v", d.Elect)
			}
			// Its next incarnation may be elected.
			gone := newGroup("b").leads("b", 8)
			e.Decide(gone.input(t))
			if d := e.Decide(after.input(t)); d.Elect == nil || d.Elect.Node != "a" {
				t.Errorf("not elected once it is back: %q", d.Blocked)
			}
		})
	}
}

// Only a drain of the leader's own node or site replaces it; a cordon does not.
func TestDrained(t *testing.T) {
	o := &activeRequests{Control: cluster.Control{Cordons: []cluster.Cordon{
		{Request: by(1), Node: "a"}, {Request: by(2), Node: "b", Drain: true}, {Request: by(3), Site: "dc1", Drain: true},
	}}}
	for _, c := range []struct {
		node, site string
		request    int64
	}{{"a", "dc2", 0}, {"a", "dc1", 3}, {"b", "dc2", 2}, {"c", "dc2", 0}} {
		if request := o.drained(c.node, c.site); request.ID != c.request {
			t.Errorf("%s on %s: request %d", c.node, c.site, request.ID)
		}
	}
}

// A policy without a program asks no question, and the wait for an old question does not count.
func TestNoQuestionWithoutAProgram(t *testing.T) {
	in := newGroup("a", "b").leads("a", 7).input(t)
	exec := newGroup("a", "b").leads("a", 7).input(t, cluster.Rules{Type: "exec"})
	e := newElector()
	var p Program
	p.Update(e, &exec)
	if ready, wake, ask := p.Update(e, &in); !ready || wake != 0 || ask != nil || p.waiting != 0 {
		t.Errorf("%v, %s, %v", ready, wake, ask)
	}
	// The wait for a changed question begins now.
	exec.Now += time.Hour
	if ready, wake, _ := p.Update(e, &exec); ready || wake != exec.Now+2*policy.ProgramTimeout {
		t.Errorf("%v, wakes at %s", ready, wake)
	}
	if AnswerAge != 30*time.Second { // docs/policies.md
		t.Errorf("answers are used for %s", AnswerAge)
	}
}

// A decision carries out a request if it has its number and the right cause: other decisions do not end it.
func TestOnlyItsOwnDecisionEndsAReelection(t *testing.T) {
	for name, c := range map[string]struct {
		cause   cluster.Cause
		request int64
		ended   string
	}{
		"its own":             {cluster.CauseReelect, 4, "b was elected"},
		"that of another":     {cluster.CauseReelect, 3, ""},
		"a move of that name": {cluster.CauseMove, 4, ""},
	} {
		h := newGroup("a", "b").leads("b", 7).scenario(t)
		h.in.Snapshot.Elected.Record.Cause, h.in.Snapshot.Elected.Record.Request = c.cause, c.request
		o := by(4)
		h.control(cluster.Control{Reelect: &o})
		d := h.decide()
		if c.ended == "" {
			if d.Elect == nil || d.Elect.Cause != cluster.CauseReelect || d.Circumstances.Cause != cluster.CauseReelect {
				t.Errorf("%s: %+v", name, d)
			}
			continue
		}
		if d.Elect != nil || d.Control == nil {
			t.Fatalf("%s: %+v", name, d)
		}
		h.write(d)
		h.ended(4, c.ended)
	}
}

// After control was deleted and created again, another request with the same number has its whole time.
func TestAnotherRequestOfTheSameNumberHasItsOwnTime(t *testing.T) {
	h := newGroup("a", "b").leads("b", 7).scenario(t)
	h.control(cluster.Control{Pause: &cluster.Pause{Request: by(1, 10*time.Minute)}})
	h.leader("b", "")
	h.pass(9 * time.Minute)
	h.control(cluster.Control{Pause: &cluster.Pause{Request: by(1, time.Hour)}})
	h.leader("b", "")
	h.pass(time.Hour - 1)
	h.leader("b", "")
	h.pass(1)
	h.leader("a", cluster.CausePreempt)
}

// A clear-strikes request is kept while it covers a strike, and while the decision cannot be read.
func TestClearStrikesIsKeptWhileItCoversAStrike(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*cluster.Elected)
		err    error
		kept   bool
	}{
		"a strike is left":  {func(*cluster.Elected) {}, nil, true},
		"none is left":      {func(e *cluster.Elected) { e.Exclusions = nil }, nil, false},
		"the decision lost": {func(e *cluster.Elected) { *e = cluster.Elected{Term: 9} }, errors.New("damaged"), true},
	} {
		g := newGroup("a", "b").leads("a", 7)
		g.Elected.Record.Exclusions = []cluster.Exclusion{{Node: "b", Strikes: 1, Term: 5}}
		c.change(&g.Elected.Record)
		g.Elected.Err = c.err
		o := activeRequests{Control: cluster.Control{ClearedStrikes: []cluster.ClearedStrikes{{Request: by(1), Node: "b", Term: 6}}}}
		o.collect(&g.Snapshot)
		if kept := len(o.ClearedStrikes) == 1; kept != c.kept || o.changed == c.kept {
			t.Errorf("%s: kept: %v, changed: %v", name, kept, o.changed)
		}
	}
}
