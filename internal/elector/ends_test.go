package elector

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

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
