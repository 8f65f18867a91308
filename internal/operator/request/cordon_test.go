package request

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

func TestCordonAndDrain(t *testing.T) {
	lasting := bob()
	lasting.For = time.Hour
	for name, c := range map[string]struct {
		options    Options
		node, site string
		drain      bool
		messages   string
		last       string
		leader     string
	}{
		"a standby":               {bob(), "b1", "", false, "b1 will not be elected", "cordon of b1", "a1"},
		"a standby for a time":    {lasting, "b1", "", false, "b1 will not be elected for 1h0m0s", "cordon of b1", "a1"},
		"the leader":              {lasting, "a1", "", false, "a1 will not be elected for 1h0m0s; a1 leads and continues to", "cordon of a1", "a1"},
		"the leader's site":       {bob(), "", "dc1", false, "site dc1 will not be elected; a1 leads and continues to", "cordon of site dc1", "a1"},
		"another site":            {bob(), "", "dc2", false, "site dc2 will not be elected", "cordon of site dc2", "a1"},
		"drain a standby":         {bob(), "b1", "", true, "b1 will not be elected; leadership does not move", "drain of b1", "a1"},
		"drain another site":      {lasting, "", "dc2", true, "site dc2 will not be elected for 1h0m0s; leadership does not move", "drain of site dc2", "a1"},
		"drain the leader":        {lasting, "a1", "", true, "a1 will not be elected for 1h0m0s, and leadership moves from a1 (dc1) to a2 (dc1)", "drain of a1", "a2"},
		"drain the leader's site": {bob(), "", "dc1", true, "site dc1 will not be elected, and leadership moves from a1 (dc1) to b1 (dc2)", "drain of site dc1", "b1"},
	} {
		for _, soft := range []bool{false, true} {
			h := group(t).leads("a1")
			if soft {
				h.control().Pause = &cluster.Pause{Request: ann(1)}
			}
			plan, err := h.planFor(cordon(c.options, c.node, c.site, c.drain))
			if err != nil || strings.Join(plan.Messages, "\n") != c.messages || plan.Control.LastRequest != c.last+" by bob@host" {
				t.Errorf("%s, paused %t: %v, messages %q, the last is %q", name, soft, err, plan.Messages, plan.Control.LastRequest)
				continue
			}
			d := cluster.Duration(c.options.For)
			want := []cluster.Cordon{{
				Request: cluster.Request{ID: plan.ID, By: "bob@host", Reason: "test", For: d, Remaining: d, Time: wall}, Node: c.node, Site: c.site, Drain: c.drain,
			}}
			if !reflect.DeepEqual(plan.Control.Cordons, want) {
				t.Errorf("%s: planned %+v", name, plan.Control.Cordons)
			}
			if out := h.after(plan); out.Leader.ID != c.leader {
				t.Errorf("%s: then %q leads", name, out.Leader.ID)
			}
		}
	}
}

// A cordon of the last member that could take over says so.
func TestCordonOfTheLastStandby(t *testing.T) {
	h := group(t).leads("a1")
	h.control().Cordons = []cluster.Cordon{{Node: "a2"}, {Node: "b2"}}
	for _, drain := range []bool{false, true} {
		plan, err := h.planFor(cordon(bob(), "b1", "", drain))
		want := "warning: no other member may lead then: nobody would take over from a1"
		if err != nil || len(plan.Messages) != 2 || plan.Messages[1] != want {
			t.Errorf("drain %t: %v, %q", drain, err, plan.Messages)
		}
	}
}

func TestForcedDrainWaitsForAnotherMember(t *testing.T) {
	h := group(t, cluster.Rules{Filter: []string{"member.priority >= 35"}}).leads("a1")
	o := bob()
	o.Force = true
	plan, err := h.planFor(cordon(o, "a1", "", true))
	if err != nil || !slices.Equal(plan.Messages, []string{"a1 will not be elected; a1 leads until another member is eligible"}) {
		t.Fatalf("%v, %q", err, plan.Messages)
	}
	if out := h.after(plan); out.Leader.ID != "a1" {
		t.Errorf("then %q leads", out.Leader.ID)
	}
	h.node("b1").Priority = 36
	if out := h.after(plan); out.Leader.ID != "b1" {
		t.Errorf("once b1 is eligible, %q leads", out.Leader.ID)
	}
}

func TestHardPauseAllowsCordons(t *testing.T) {
	h := group(t).leads("a1")
	h.control().Pause = &cluster.Pause{Request: ann(1), Hard: true}
	if plan, err := h.planFor(cordon(bob(), "a1", "", false)); err != nil || len(plan.Control.Cordons) != 1 {
		t.Errorf("%v, %+v", err, plan.Control.Cordons)
	}
}

func TestCordonEndsAMoveToItsTarget(t *testing.T) {
	for name, c := range map[string]struct {
		move       cluster.Move
		node, site string
		ends       bool
	}{
		"the target":   {cluster.Move{Node: "b1"}, "b1", "", true},
		"another node": {cluster.Move{Node: "b1"}, "b2", "", false},
		"its site":     {cluster.Move{Node: "b1"}, "", "dc2", false},
		"the site":     {cluster.Move{Site: "dc2"}, "", "dc2", true},
		"another site": {cluster.Move{Site: "dc2"}, "", "dc1", false},
		"a node at it": {cluster.Move{Site: "dc2"}, "b2", "", false},
	} {
		h := group(t).leads("a1")
		c.move.Request = ann(1)
		h.control().Move, h.control().Last = &c.move, 1
		plan, err := h.planFor(cordon(bob(), c.node, c.site, false))
		if err != nil {
			t.Fatal(err)
		}
		target := c.move.Target()
		done, ended := plan.Control.Ended(1)
		if ended != c.ends || (plan.Control.Move == nil) != c.ends || (plan.Messages[0] == "ends the move to "+target+" by ann@host: new kernel") != c.ends {
			t.Errorf("%s: ended %+v, move %+v, messages %q", name, done, plan.Control.Move, plan.Messages)
		}
		if c.ends && (done.What != "move to "+target || done.Outcome != "the target was cordoned" || !done.Time.Equal(wall)) {
			t.Errorf("%s: ended as %+v", name, done)
		}
	}
}

func TestUncordon(t *testing.T) {
	for name, c := range map[string]struct {
		node, site string
		all        bool
		target     string
		ended      []int64
		messages   []string
	}{
		"a node": {"b1", "", false, "b1", []int64{1}, []string{"ended: drained by ann@host: new kernel"}},
		"a site": {"", "dc2", false, "site dc2", []int64{2}, []string{"ended: site dc2 is cordoned by ann@host: new kernel"}},
		"gone":   {"x", "", false, "x", []int64{4}, []string{"ended: cordoned by ann@host: new kernel"}},
		"all": {"", "", true, "all", []int64{1, 2, 4}, []string{
			"ended: drained by ann@host: new kernel", "ended: site dc2 is cordoned by ann@host: new kernel",
			"ended: cordoned by ann@host: new kernel",
		}},
	} {
		h := group(t).leads("a1")
		h.control().Pause = &cluster.Pause{Request: ann(9), Hard: true}
		h.control().Cordons = []cluster.Cordon{
			{Request: ann(1), Node: "b1", Drain: true}, {Request: ann(2), Site: "dc2"}, {Request: ann(4), Node: "x"},
		}
		h.control().Last = 9
		plan, err := h.planFor(uncordon(bob(), c.node, c.site, c.all))
		if err != nil || !slices.Equal(plan.Messages, c.messages) || len(plan.Control.Cordons) != 3-len(c.ended) {
			t.Errorf("%s: %v, messages %q, left %+v", name, err, plan.Messages, plan.Control.Cordons)
		}
		for _, id := range c.ended {
			if done, ok := plan.Control.Ended(id); !ok || done.Outcome != "ended by bob@host" {
				t.Errorf("%s: request %d ended as %+v", name, id, done)
			}
			if slices.ContainsFunc(plan.Control.Cordons, func(x cluster.Cordon) bool { return x.ID == id }) {
				t.Errorf("%s: request %d is still in force", name, id)
			}
		}
		if plan.Control.LastRequest != "uncordon of "+c.target+" by bob@host" {
			t.Errorf("%s: the last is %q", name, plan.Control.LastRequest)
		}
	}
}
