package elector

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

func TestManualFailbackLeavesAHealthyLeader(t *testing.T) {
	rules := cluster.Rules{Type: "priority", Failback: cluster.FailbackManual}
	h := newGroup("a", "b").leads("b", 7).scenario(t, rules)
	if d := h.settle(); len(h.terms) > 0 || !strings.Contains(d.Blocked, "a would be better than b (priority 100 against priority 99), but failback is manual") {
		t.Errorf("moved by itself: %+v; blocked: %q", h.terms, d.Blocked)
	}
	h.remove("b")
	h.leader("a", cluster.CauseFailure)
}

func TestDelayedFailbackNeedsUnbrokenEligibility(t *testing.T) {
	h := newGroup("a", "b").leads("b", 7).scenario(t, cluster.Rules{Type: "priority", Failback: cluster.FailbackDelayed, FailbackDelay: cluster.Duration(30 * time.Second)})
	if d := h.settle(); d.Wake != h.in.Now+30*time.Second || !strings.Contains(d.Blocked, "delayed until it has been eligible for 30s") {
		t.Errorf("at once: wake %s, held %q", d.Wake, d.Blocked)
	}
	h.in.Now += 20 * time.Second
	h.group().node("a").Ineligible = "sick"
	if d := h.settle(); d.Blocked != "" {
		t.Errorf("one that may not lead is blocked: %q", d.Blocked)
	}
	h.group().node("a").Ineligible = ""
	h.in.Now += 20 * time.Second
	h.leader("b", "")
	h.in.Now += 29 * time.Second
	h.leader("b", "")
	h.in.Now += time.Second
	h.leader("a", cluster.CausePreempt)
}

func TestDelayedFailbackDoesNotDelayFailures(t *testing.T) {
	h := newGroup("a", "b").leads("x", 7).scenario(t, cluster.Rules{Type: "priority", Failback: cluster.FailbackDelayed, FailbackDelay: cluster.Duration(time.Hour)})
	h.leader("a", cluster.CauseFailure)
}

// swap reverses which member policy prefers.
func (h *scenario) swap() {
	a, b := h.group().node("a"), h.group().node("b")
	a.Priority, b.Priority = b.Priority, a.Priority
}

func TestDampingLimitsPreemptions(t *testing.T) {
	h := newGroup("a", "b").leads("b", 7).scenario(t, cluster.Rules{Type: "priority", MaxPreemptions: 2, PreemptionWindow: cluster.Duration(time.Hour)})
	h.leader("a", cluster.CausePreempt)
	h.swap()
	rec := h.leader("b", cluster.CausePreempt)
	if len(rec.Preemptions) != 2 || rec.Preemptions[1] != rec.Term {
		t.Errorf("moves %v of term %d", rec.Preemptions, rec.Term)
	}
	h.swap()
	d := h.settle()
	if len(h.terms) != 2 || !strings.Contains(d.Blocked, "election.max_preemptions allows no more") || d.Wake != h.in.Now+time.Hour {
		t.Errorf("moved %d times; blocked: %q; wake %s", len(h.terms), d.Blocked, d.Wake)
	}
	h.in.Now += time.Hour - 1
	h.leader("b", "")
	h.in.Now++
	if rec := h.leader("a", cluster.CausePreempt); len(rec.Preemptions) != 1 {
		t.Errorf("moves that no longer count are kept: %v", rec.Preemptions)
	}
}

func TestDampingOnlyLimitsPreemptions(t *testing.T) {
	damped := func() *scenario {
		h := newGroup("a", "b", "c").leads("b", 7).scenario(t, cluster.Rules{Type: "priority", MaxPreemptions: 1, PreemptionWindow: cluster.Duration(time.Hour)})
		h.leader("a", cluster.CausePreempt)
		h.swap()
		h.leader("a", "")
		return h
	}
	for name, c := range map[string]struct {
		happens func(h *scenario)
		cause   cluster.Cause
	}{
		"a failure":            {func(h *scenario) { h.remove("a") }, cluster.CauseFailure},
		"an unhealthy leader":  {func(h *scenario) { h.group().node("a").Unhealthy = "sick" }, cluster.CauseUnhealthy},
		"an ineligible leader": {func(h *scenario) { h.group().node("a").Ineligible = "full" }, cluster.CauseIneligible},
		"a move":               {func(h *scenario) { h.control(cluster.Control{Move: &cluster.Move{Request: by(1), Node: "b"}}) }, cluster.CauseMove},
		"a drain": {func(h *scenario) {
			h.control(cluster.Control{Cordons: []cluster.Cordon{{Request: by(1), Node: "a", Drain: true}}})
		}, cluster.CauseDrain},
		"an election": {func(h *scenario) { o := by(1); h.control(cluster.Control{Reelect: &o}) }, cluster.CauseReelect},
	} {
		h := damped()
		c.happens(h)
		if rec := h.leader("b", c.cause); len(rec.Preemptions) != 1 {
			t.Errorf("%s: counted among %v, or the moves were forgotten", name, rec.Preemptions)
		}
	}
}

func TestANewElectorCountsEarlierPreemptions(t *testing.T) {
	h := newGroup("a", "b").leads("b", 7).scenario(t, cluster.Rules{Type: "priority", MaxPreemptions: 1, PreemptionWindow: cluster.Duration(time.Hour)})
	h.leader("a", cluster.CausePreempt)
	h.swap()
	h.e, h.in.Now = newElector(), time.Minute
	h.leader("a", "")
	h.in.Now += time.Hour
	h.leader("b", cluster.CausePreempt)
}
