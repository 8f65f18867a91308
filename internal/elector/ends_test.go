package elector

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

func TestAReelectionEndsUnderEveryPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		rules  cluster.Rules
		leader string
		cause  cluster.Cause
	}{
		"round-robin":  {cluster.Rules{Rank: []string{"round-robin"}}, "b", cluster.CauseReelect},
		"another site": {cluster.Rules{Rank: []string{"expr:member.site != previous.site", "node-id"}}, "b", cluster.CauseReelect},
		"a filter":     {cluster.Rules{Type: "node-id", Filter: []string{"member.id != previous.id"}}, "b", cluster.CauseReelect},
		"a strategy":   {cluster.Rules{Type: "node-id", Strategies: []cluster.Strategy{{When: "previous.site == 'dc2'", Use: "node-id"}, {Use: "highest-node-id"}}}, "c", cluster.CauseReelect},
	} {
		t.Run(name, func(t *testing.T) {
			h := newGroup("a", "b", "c").sites("dc1", "dc2", "dc2").leads("a", 7).scenario(t, c.rules)
			o := by(1)
			h.control(cluster.Control{Reelect: &o})
			h.leader(c.leader, c.cause)
			o = by(2)
			h.control(cluster.Control{Reelect: &o})
			n := len(h.terms)
			if h.settle(); len(h.terms) > n+1 || h.requests().Reelect != nil {
				t.Errorf("the second: %d terms", len(h.terms)-n)
			}
		})
	}
}

func TestASoftPauseDoesNotKeepADrainedOrUnhealthyLeader(t *testing.T) {
	drain := cluster.Control{Pause: paused(false).Pause, Cordons: []cluster.Cordon{{Request: by(2), Node: "a", Drain: true}}}
	t.Run("drain", func(t *testing.T) {
		h := newGroup("a", "b").leads("a", 7).scenario(t)
		h.group().node("a").Ineligible = "full"
		h.control(drain)
		if rec := h.leader("b", cluster.CauseDrain); strings.Contains(rec.Reason, "full") {
			t.Errorf("drained, and the reason is %q", rec.Reason)
		}
	})
	t.Run("unhealthy", func(t *testing.T) {
		h := newGroup("a", "b").leads("a", 7).scenario(t)
		h.group().node("a").Ineligible, h.group().node("a").Unhealthy = "full", "sick"
		h.control(paused(false))
		h.leader("b", cluster.CauseUnhealthy)
	})
}

func TestAMoveToAStoppingNodeEnds(t *testing.T) {
	h := newGroup("a", "b").leads("b", 7).scenario(t)
	h.control(move(cluster.Move{Node: "b"}))
	h.leader("b", "")
	f := &h.in.Snapshot.Fence.Record
	f.State, f.Requested = cluster.FenceReleased, true
	h.leader("a", cluster.CauseStopped)
	h.ended(1, "it is stopping, as requested")
}

func TestTheQuestionIgnoresRequestsThatAreOver(t *testing.T) {
	g := newGroup("a", "b").leads("a", 7).control(cluster.Control{Cordons: []cluster.Cordon{{Request: by(1, time.Minute), Node: "b"}}})
	in := g.input(t, cluster.Rules{Type: "exec"})
	e := newElector()
	e.Decide(in)
	in.Now += time.Minute
	if q, _ := e.Question(in); len(q.Cordons) != 0 {
		t.Errorf("asked under %+v", q.Cordons)
	}
}

func TestTheQuestionIncludesTheNewStrike(t *testing.T) {
	in := newGroup("a", "b").elected("a", 7).fence("a", 7, cluster.FenceReleased).input(t, cluster.Rules{Type: "exec"})
	if q, _ := newElector().Question(in); q.Excluded["a"] == "" {
		t.Errorf("excluded: %v", q.Excluded)
	}
}

func TestAReelectionEndsIfNoMemberIsEligible(t *testing.T) {
	h := newGroup("a").leads("a", 7).scenario(t)
	h.group().node("a").Unhealthy = "sick"
	o := by(2)
	h.control(cluster.Control{Reelect: &o})
	h.settle()
	if d, _ := h.requests().Ended(2); d.Outcome == "" || strings.Contains(d.Outcome, "it is the best") {
		t.Errorf("%+v", h.requests())
	}
}

func TestAnIneligibleLeaderStaysIfNoOtherIsEligible(t *testing.T) {
	h := newGroup("a").leads("a", 7).scenario(t)
	h.group().node("a").Unhealthy = "sick"
	if d := h.settle(); d.Blocked.Reason == "" && d.Note == "" {
		t.Error("not a word")
	}
}

func TestAReplacedLeaderMayLeadAgain(t *testing.T) {
	h := newGroup("a", "b").elected("b", 8).fence("a", 7, cluster.FenceReleased).scenario(t)
	h.in.Snapshot.Fence.Record.Requested = true
	h.leader("a", cluster.CausePreempt)
}

func TestTheFallbackElectsButDoesNotPreempt(t *testing.T) {
	h := newGroup("a", "b").leads("b", 7).scenario(t, cluster.Rules{Type: "exec"})
	h.in.Answer = &policy.Answer{Err: "hangs"}
	h.leader("b", "")
	if d := h.settle(); !strings.Contains(d.Blocked.Reason, "the ranking program has no answer") {
		t.Errorf("holding: %q", d.Blocked)
	}
	h.remove("b")
	h.leader("a", cluster.CauseFailure)
}
