package elector

import (
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

func move(m cluster.Move) cluster.Control {
	m.Request = by(1)
	return cluster.Control{Last: 1, Move: &m}
}

func TestAMoveElectsItsTarget(t *testing.T) {
	sick := newGroup("a", "b", "c").leads("a", 7)
	sick.node("c").Unhealthy = "sick"
	for name, c := range map[string]struct {
		g      *group
		move   cluster.Move
		leader string
		cause  cluster.Cause
	}{
		"to a node":                       {newGroup("a", "b", "c").leads("a", 7), cluster.Move{Node: "c"}, "c", cluster.CauseMove},
		"to who leads":                    {newGroup("a", "b", "c").leads("c", 7), cluster.Move{Node: "c"}, "c", ""},
		"to a site, its best":             {newGroup("a", "b", "c", "d").sites("dc1", "dc1", "dc2", "dc2").leads("a", 7), cluster.Move{Site: "dc2"}, "c", cluster.CauseMove},
		"within the site, policy decides": {newGroup("a", "b", "c", "d").sites("dc1", "dc1", "dc2", "dc2").leads("d", 7), cluster.Move{Site: "dc2"}, "c", cluster.CausePreempt},
		"to one that needs force":         {sick, cluster.Move{Node: "c", Force: true}, "c", cluster.CauseMove},
		"there is no leader":              {newGroup("a", "b", "c"), cluster.Move{Node: "c"}, "c", cluster.CauseFirst},
		"the leader is gone":              {newGroup("b", "c").leads("a", 7), cluster.Move{Node: "c"}, "c", cluster.CauseFailure},
	} {
		h := c.g.scenario(t)
		h.control(move(c.move))
		rec := h.leader(c.leader, c.cause)
		if c.cause == cluster.CauseMove && !strings.HasPrefix(rec.Reason, "moved to "+c.move.Target()+" by ann@host: new kernel") {
			t.Errorf("%s: %q", name, rec.Reason)
		}
		if h.requests().Move == nil || len(h.requests().Done) > 0 {
			t.Errorf("%s: the move is not kept: %+v", name, h.requests())
		}
	}
}

func TestAMoveEndsWhenItsTargetIsIneligible(t *testing.T) {
	for name, c := range map[string]struct {
		move    cluster.Move
		happens func(h *scenario)
		cause   cluster.Cause
		reason  string
		outcome string
	}{
		"it is gone":             {cluster.Move{Node: "b"}, func(h *scenario) { h.remove("b") }, cluster.CauseFailure, "b is gone; the move to b by ann@host: new kernel has ended: the node is not registered", "the node is not registered"},
		"it has given up":        {cluster.Move{Node: "b"}, func(h *scenario) { h.in.Snapshot.Fence.Record.State = cluster.FenceReleased }, cluster.CauseGaveUp, "the move to b", "excluded for 1m0s after strike 1: b gave up: "},
		"it is not eligible":     {cluster.Move{Node: "b"}, func(h *scenario) { h.group().node("b").Ineligible = "full" }, cluster.CauseIneligible, "b is no longer eligible: full", "full"},
		"it is unhealthy":        {cluster.Move{Node: "b"}, func(h *scenario) { h.group().node("b").Unhealthy = "sick" }, cluster.CauseUnhealthy, "unhealthy: sick", "unhealthy: sick"},
		"force does not help it": {cluster.Move{Node: "b", Force: true}, func(h *scenario) { h.remove("b") }, cluster.CauseFailure, "b is gone; the move to b", "the node is not registered"},
		"the whole site is gone": {cluster.Move{Site: "dc2"}, func(h *scenario) { h.remove("b") }, cluster.CauseFailure, "the move to site dc2", "no member there is eligible"},
	} {
		h := newGroup("a", "b", "c").sites("dc1", "dc2", "dc1").leads("b", 7).scenario(t)
		h.control(move(c.move))
		h.leader("b", "")
		c.happens(h)
		if rec := h.leader("a", c.cause); !strings.Contains(rec.Reason, c.reason) {
			t.Errorf("%s: %q, want %q", name, rec.Reason, c.reason)
		}
		h.ended(1, c.outcome)
		if h.requests().Move != nil {
			t.Errorf("%s: the move is kept: %+v", name, h.requests().Move)
		}
	}
}

func TestReelectFollowsThePolicyAlone(t *testing.T) {
	damped := newGroup("a", "b").leads("b", 7)
	damped.Elected.Record.Preemptions = []cluster.Preemption{{Term: 5}, {Term: 6}}
	failed := newGroup("a", "b").sites("dc1", "dc2").leads("b", 7).before("dc1")
	for name, c := range map[string]struct {
		g       *group
		rules   cluster.Rules
		move    *cluster.Move
		leader  string
		cause   cluster.Cause
		outcome string
	}{
		"manual failback":       {newGroup("a", "b").leads("b", 7), cluster.Rules{Type: "priority", Failback: cluster.FailbackManual}, nil, "a", cluster.CauseReelect, "a was elected"},
		"delayed failback":      {newGroup("a", "b").leads("b", 7), cluster.Rules{Type: "priority", Failback: "24h"}, nil, "a", cluster.CauseReelect, "a was elected"},
		"damping":               {damped, cluster.Rules{Type: "priority", MaxPreemptions: 2}, nil, "a", cluster.CauseReelect, "a was elected"},
		"a move":                {newGroup("a", "b").leads("b", 7), cluster.Rules{Type: "priority"}, &cluster.Move{Request: by(1), Node: "b"}, "a", cluster.CauseReelect, "a was elected"},
		"the best leads":        {newGroup("a", "b").leads("a", 7), cluster.Rules{Type: "priority"}, nil, "a", "", "a leads and is the best"},
		"there is no leader":    {newGroup("a", "b"), cluster.Rules{Type: "priority"}, nil, "a", cluster.CauseFirst, "a leads and is the best"},
		"failures are the past": {failed, cluster.Rules{Type: "other-site"}, nil, "a", cluster.CauseReelect, "a was elected"},
		"the incumbent is kept": {newGroup("a", "b").leads("b", 7), cluster.Rules{Type: "round-robin"}, nil, "b", "", "b leads and is the best"},
	} {
		h := c.g.scenario(t, c.rules)
		elect := by(2)
		h.control(cluster.Control{Last: 2, Move: c.move, Reelect: &elect})
		rec := h.leader(c.leader, c.cause)
		if c.cause == cluster.CauseReelect && !strings.HasPrefix(rec.Reason, "reelection requested by ann@host: new kernel: a is better than b") {
			t.Errorf("%s: %q", name, rec.Reason)
		}
		h.ended(2, c.outcome)
		if c.move != nil {
			h.ended(1, "ended by a reelection")
		}
		if o := h.requests(); o.Reelect != nil || o.Move != nil {
			t.Errorf("%s: not over: %+v", name, o)
		}
	}
}

func TestReelectHasItsOwnCircumstances(t *testing.T) {
	h := newGroup("a", "b").sites("dc1", "dc2").leads("b", 7).scenario(t, cluster.Rules{Type: "priority", Failback: cluster.FailbackManual})
	elect := by(1)
	h.control(cluster.Control{Reelect: &elect})
	c := h.leader("a", cluster.CauseReelect).Circumstances
	if c.Cause != cluster.CauseReelect || c.Node != "b" || c.Site != "dc2" || c.Failed != nil {
		t.Errorf("%+v", c)
	}
}

func TestClearStrikesForTheCurrentTermIsKept(t *testing.T) {
	for up, want := range map[int64]int{6: 0, 7: 1} {
		h := newGroup("a", "b").leads("a", 7).scenario(t)
		h.control(cluster.Control{ClearedStrikes: []cluster.ClearedStrikes{{Request: by(1), Term: up}}})
		h.leader("a", "")
		if left := len(h.requests().ClearedStrikes); left != want {
			t.Errorf("up to term %d: %d clear-strikes requests are left, want %d", up, left, want)
		}
	}
}

func TestTheQuestionMatchesTheDecision(t *testing.T) {
	g := newGroup("a", "b", "c").leads("a", 7).control(cluster.Control{
		Move:           &cluster.Move{Request: by(1), Node: "b"},
		Cordons:        []cluster.Cordon{{Request: by(2), Node: "c"}},
		ClearedStrikes: []cluster.ClearedStrikes{{Request: by(3), Node: "b", Term: 7}},
	})
	in := g.input(t, cluster.Rules{Type: "exec"})
	in.Exclusions = []cluster.Exclusion{{Node: "b", Term: 6}, {Node: "c", Term: 6}}
	in.Snapshot.Elected.Record.Exclusions = in.Exclusions
	e := newElector()
	q, wanted := e.Question(in)
	if !wanted || q.Incumbent != "a" || q.Move == nil || len(q.Cordons) != 1 || len(q.Members) != 3 || q.Excluded["c"] == "" || q.Excluded["b"] != "" {
		t.Errorf("wanted %v: %+v", wanted, q)
	}
	in.Snapshot.Members = in.Snapshot.Members[1:]
	if q, _ := e.Question(in); q.Incumbent != "" || q.Circumstances.Cause != cluster.CauseFailure || q.Circumstances.Node != "a" {
		t.Errorf("after a failure: %+v", q)
	}
	if _, wanted := e.Question(g.input(t)); wanted {
		t.Error("the program is needed although another policy type decides")
	}
}
