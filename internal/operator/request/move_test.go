package request

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

func TestMove(t *testing.T) {
	led := func(t *testing.T) *testGroup { return group(t).leads("a1") }
	lasting, forced := bob(), bob()
	lasting.For, forced.Force = 10*time.Minute, true
	for name, c := range map[string]struct {
		group    func(*testing.T) *testGroup
		options  Options
		node     string
		site     string
		messages []string
		leader   string
	}{
		"to a node":     {led, bob(), "b1", "", []string{"moves leadership from a1 (dc1) to b1 (dc2)"}, "b1"},
		"to a site":     {led, bob(), "", "dc2", []string{"moves leadership from a1 (dc1) to b1 (dc2)"}, "b1"},
		"for a time":    {led, lasting, "b1", "", []string{"moves leadership from a1 (dc1) to b1 (dc2) for 10m0s"}, "b1"},
		"to the leader": {led, bob(), "a1", "", []string{"a1 leads already; it stays first"}, "a1"},
		"no leader":     {func(t *testing.T) *testGroup { return group(t) }, bob(), "b2", "", []string{"there is no leader; b2 takes over and stays first"}, "b2"},
		"to the best of a site": {func(t *testing.T) *testGroup {
			h := led(t)
			h.node("b1").Unhealthy = "no disk"
			return h
		}, bob(), "", "dc2", []string{"moves leadership from a1 (dc1) to b2 (dc2)"}, "b2"},
		"paused softly": {func(t *testing.T) *testGroup {
			h := led(t)
			h.control().Pause = &cluster.Pause{Request: ann(1)}
			return h
		}, bob(), "b1", "", []string{"moves leadership from a1 (dc1) to b1 (dc2)"}, "b1"},
		"back, under manual failback": {func(t *testing.T) *testGroup {
			return group(t, cluster.Rules{Failback: cluster.FailbackManual}).leads("b1")
		}, bob(), "a1", "", []string{"moves leadership from b1 (dc2) to a1 (dc1)"}, "a1"},
		"replacing another": {func(t *testing.T) *testGroup {
			h := led(t)
			h.control().Move = &cluster.Move{Request: ann(1), Site: "dc1"}
			return h
		}, bob(), "b1", "", []string{"replaces the move to site dc1 by ann@host: new kernel", "moves leadership from a1 (dc1) to b1 (dc2)"}, "b1"},
		"elected only": {func(t *testing.T) *testGroup { return group(t).elects("a1") }, bob(), "b1", "", []string{
			"moves leadership from a1 (dc1) to b1 (dc2)",
		}, "b1"},
		"during a reelection": {func(t *testing.T) *testGroup {
			h := led(t)
			h.control().Reelect = &cluster.Request{ID: 1, By: "ann@host", Reason: "new kernel"}
			return h
		}, bob(), "b1", "", []string{
			"ends the reelection by ann@host: new kernel", "moves leadership from a1 (dc1) to b1 (dc2)",
		}, "b1"},
		"by force": {func(t *testing.T) *testGroup {
			h := led(t)
			h.node("b2").Unhealthy = "no disk"
			return h
		}, forced, "b2", "", []string{"moves leadership from a1 (dc1) to b2 (dc2)"}, "b2"},
		"against policy by force": {func(t *testing.T) *testGroup {
			return group(t, cluster.Rules{Filter: []string{"member.id != 'b2'"}}).leads("a1")
		}, forced, "b2", "", []string{"moves leadership from a1 (dc1) to b2 (dc2)"}, "b2"},
		"past a cordon by force": {func(t *testing.T) *testGroup {
			h := led(t)
			h.control().Cordons = []cluster.Cordon{{Request: ann(1), Site: "dc2", Drain: true}}
			return h
		}, forced, "", "dc2", []string{"moves leadership from a1 (dc1) to b1 (dc2)"}, "b1"},
	} {
		h := c.group(t)
		plan, err := h.planFor(move(c.options, c.node, c.site))
		if err != nil || !slices.Equal(plan.Messages, c.messages) {
			t.Errorf("%s: %v, messages %q", name, err, plan.Messages)
			continue
		}
		want := &cluster.Move{Request: cluster.Request{
			ID: plan.ID, By: "bob@host", Reason: "test", For: cluster.Duration(c.options.For), Remaining: cluster.Duration(c.options.For), Time: wall,
		}, Node: c.node, Site: c.site, Force: c.options.Force}
		if !reflect.DeepEqual(plan.Control.Move, want) || plan.Control.LastRequest != "move to "+want.Target()+" by bob@host" {
			t.Errorf("%s: planned %+v, the last is %q", name, plan.Control.Move, plan.Control.LastRequest)
		}
		if out := h.after(plan); out.Leader.ID != c.leader {
			t.Errorf("%s: then %q leads", name, out.Leader.ID)
		}
	}
}

func TestReelect(t *testing.T) {
	h := group(t, cluster.Rules{Failback: cluster.FailbackManual}).leads("b1")
	h.control().Pause = &cluster.Pause{Request: ann(1)}
	h.control().Last = 4
	plan, err := h.planFor(reelect(bob()))
	if err != nil || !slices.Equal(plan.Messages, []string{"a1 (dc1) takes over"}) || plan.Control.Reelect == nil || plan.Control.Reelect.ID != 5 || plan.Control.LastRequest != "reelection by bob@host" {
		t.Errorf("%v, %+v", err, plan)
	}
	if out := h.after(plan); out.Leader.ID != "a1" {
		t.Errorf("then %q leads", out.Leader.ID)
	}

	h = group(t).leads("a1")
	h.control().Move = &cluster.Move{Request: ann(1), Node: "a1"}
	plan, err = h.planFor(reelect(bob()))
	if err != nil || !slices.Equal(plan.Messages, []string{"ends the move to a1 by ann@host: new kernel", "a1 (dc1) is the best and stays"}) {
		t.Errorf("%v, %q", err, plan.Messages)
	}

	other := ann(1)
	h.control().Move, h.control().Reelect = nil, &other
	plan, err = h.planFor(reelect(bob()))
	if d, _ := plan.Control.Ended(1); err != nil || plan.Messages[0] != "ends the reelection by ann@host: new kernel" || d.Outcome != "ended by another reelection" {
		t.Errorf("%v, %q, %+v", err, plan.Messages, d)
	}

	h = group(t)
	for i := range h.q.Snapshot.Members {
		h.q.Snapshot.Members[i].Node.Record.Unhealthy = "no disk"
	}
	plan, err = h.planFor(reelect(bob()))
	if err != nil || len(plan.Messages) != 1 || !strings.HasPrefix(plan.Messages[0], "no member is eligible: a1: unhealthy: no disk") {
		t.Errorf("%v, %q", err, plan.Messages)
	}
}

// Without a target, leadership moves to the best other member that is eligible.
func TestMoveToTheBestOther(t *testing.T) {
	h := group(t).leads("a1")
	plan, err := moveAway(bob())(h.q)
	if err != nil || plan.Control.Move == nil || plan.Control.Move.Node != "a2" || time.Duration(plan.Control.Move.For) != BestMoveFor {
		t.Fatalf("%v, %+v", err, plan.Control.Move)
	}
	h.q.Snapshot.Control = exists(cluster.Control{Cordons: []cluster.Cordon{{Request: cluster.Request{ID: 1, By: "ann@host"}, Node: "a2"}}})
	if plan, err = moveAway(bob())(h.q); err != nil || plan.Control.Move.Node != "b1" {
		t.Errorf("past a cordon: %v, %+v", err, plan.Control.Move)
	}
	if _, err := moveAway(bob())(group(t).q); err == nil || !strings.Contains(err.Error(), "there is no leader to replace: name a node or a site") {
		t.Errorf("without a leader: %v", err)
	}
	h = group(t).leads("a1")
	for _, id := range []string{"a2", "b1", "b2"} {
		x := cluster.Exclusion{Node: id, Strikes: 1, For: cluster.Duration(time.Minute), Term: 6, Reason: "its child exited", Time: wall}
		h.q.Snapshot.Elected.Record.Exclusions = append(h.q.Snapshot.Elected.Record.Exclusions, x)
	}
	_, err = moveAway(bob())(h.q)
	if err == nil || !strings.Contains(err.Error(), "; 'zkelectd drain --node a1' has b1 take over, although it has failed") {
		t.Errorf("all others have failed: %v", err)
	}
	plan, err = cordon(bob(), "a1", "", true)(h.q)
	if err != nil || !strings.Contains(strings.Join(plan.Messages, "\n"), "nobody is left who has not failed: b1") {
		t.Errorf("then a drain: %v, %q", err, plan.Messages)
	}
}
