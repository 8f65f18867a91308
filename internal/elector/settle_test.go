package elector

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

var (
	anyID    = rapid.SampledFrom([]string{"a", "b", "c", "d", "gone"})
	anySite  = rapid.SampledFrom([]string{"dc1", "dc2"})
	anyState = rapid.SampledFrom([]cluster.FenceState{cluster.FenceHeld, cluster.FenceReady, cluster.FenceReleased, cluster.FenceUnclean, cluster.FenceRevoked})
)

func anyRules(t *rapid.T) cluster.Rules {
	rules := cluster.Rules{
		Type:           rapid.SampledFrom(policy.Types()).Draw(t, "type"),
		Sites:          map[string]int{"dc1": rapid.IntRange(0, 1).Draw(t, "dc1")},
		Failback:       rapid.SampledFrom([]string{"", "1m", cluster.FailbackManual}).Draw(t, "failback"),
		MaxPreemptions: rapid.IntRange(0, 2).Draw(t, "max moves"),
		Hysteresis:     rapid.SampledFrom([]int{0, 20}).Draw(t, "hysteresis"),
		Filter:         rapid.SliceOfN(rapid.Map(anyID, func(id string) string { return "member.id != '" + id + "'" }), 0, 1).Draw(t, "filter"),
		Strategies: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) cluster.Strategy {
			return cluster.Strategy{
				When: rapid.SampledFrom([]string{"cause == 'failure'", "len(failed_sites) > 1", "cause == 'reelect'", "cause == 'preempt'"}).Draw(t, "when"),
				Use:  rapid.SampledFrom(policy.Types()).Draw(t, "use"),
			}
		}), 0, 2).Draw(t, "strategies"),
	}
	if rapid.Bool().Draw(t, "spelled out") {
		rules.Rank = rapid.SliceOfN(rapid.SampledFrom([]string{"site", "priority", "oldest", "node-id", "other-site", "latency", "score", "round-robin", "expr:member.priority", "expr:member.site != previous.site", "expr:member.site in failed_sites", "expr:cause == 'reelect' ? member.score : 1"}), 1, 3).Draw(t, "rank")
	}
	return rules
}

func anyGroup(t *rapid.T) *group {
	g := newGroup([]string{"a", "b", "c", "d"}[:rapid.IntRange(1, 4).Draw(t, "members")]...)
	for i := range g.Members {
		n := &g.Members[i].Node.Record
		n.Site, n.Priority = anySite.Draw(t, "site"), rapid.IntRange(0, 2).Draw(t, "priority")
		switch rapid.IntRange(0, 6).Draw(t, "state") {
		case 0:
			n.Unhealthy = "sick"
		case 1:
			n.Ineligible = "full"
		case 2, 3:
			v := float64(rapid.IntRange(0, 9).Draw(t, "measured"))
			n.Score, n.Latency = &v, &v
		}
	}
	if rapid.Bool().Draw(t, "decided") {
		g.elected(anyID.Draw(t, "elected"), rapid.Int64Range(1, 9).Draw(t, "term")).before(rapid.SliceOfNDistinct(anySite, 0, 2, rapid.ID).Draw(t, "failed")...)
		g.Elected.Record.Circumstances.Node = anyID.Draw(t, "before")
		for _, term := range rapid.SliceOfNDistinct(rapid.Int64Range(1, 3), 0, 2, rapid.ID).Draw(t, "moves") {
			g.Elected.Record.Preemptions = append(g.Elected.Record.Preemptions, cluster.Preemption{Term: term, Time: wall})
		}
		for i, id := range rapid.SliceOfNDistinct(anyID, 0, 3, rapid.ID).Draw(t, "struck") {
			g.Elected.Record.Exclusions = cluster.Strike(g.Elected.Record.Exclusions, id, "x", int64(i), time.Minute, time.Hour, wall)
		}
	}
	if rapid.Bool().Draw(t, "fenced") {
		g.fence(anyID.Draw(t, "holder"), rapid.Int64Range(1, 9).Draw(t, "fence term"), anyState.Draw(t, "fence state"))
		g.Fence.Record.Led = rapid.Bool().Draw(t, "led")
		if g.Fence.Record.Site = "dc1"; rapid.IntRange(0, 9).Draw(t, "damaged") == 0 {
			g.Fence = cluster.Stored[cluster.Fence]{Exists: true, Err: errors.New("damaged"), Stat: cluster.Stat{Modified: 1}}
		}
	}
	if rapid.Bool().Draw(t, "current") {
		g.current(anyID.Draw(t, "current of"))
	}
	return g
}

func anyRequests(t *rapid.T) cluster.Control {
	var c cluster.Control
	next := func() cluster.Request {
		return c.Next(cluster.Request{By: "ann@host", For: cluster.Duration(rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "for"))})
	}
	either := func() (node, site string) {
		if rapid.Bool().Draw(t, "a node") {
			return anyID.Draw(t, "target"), ""
		}
		return "", anySite.Draw(t, "target site")
	}
	if rapid.IntRange(0, 3).Draw(t, "paused") == 0 {
		c.Pause = &cluster.Pause{Request: next(), Hard: rapid.Bool().Draw(t, "hard")}
	}
	if rapid.Bool().Draw(t, "moved") {
		c.Move = &cluster.Move{Request: next(), Force: rapid.Bool().Draw(t, "force")}
		c.Move.Node, c.Move.Site = either()
	}
	if rapid.Bool().Draw(t, "election") {
		o := next()
		c.Reelect = &o
	}
	for range rapid.IntRange(0, 2).Draw(t, "cordons") {
		cordon := cluster.Cordon{Request: next(), Drain: rapid.Bool().Draw(t, "drain")}
		cordon.Node, cordon.Site = either()
		c.Cordons = append(c.Cordons, cordon)
	}
	if rapid.Bool().Draw(t, "cleared") {
		c.ClearedStrikes = []cluster.ClearedStrikes{{Request: next(), Node: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "node"), Term: rapid.Int64Range(0, 9).Draw(t, "up to")}}
	}
	return c
}

func anyScenario(t *rapid.T) *scenario {
	g := anyGroup(t)
	h := g.scenario(t, anyRules(t))
	h.exclude(g.Elected.Record.Exclusions)
	h.in.Overdue = rapid.SampledFrom([]string{"", "", "late"}).Draw(t, "overdue")
	h.in.Revoke = rapid.SampledFrom([]string{"", "", "late"}).Draw(t, "revoke")
	if rapid.Bool().Draw(t, "answered") {
		h.in.Answer = &policy.Answer{Ranking: rapid.SliceOfNDistinct(anyID, 0, 5, rapid.ID).Draw(t, "answer")}
	}
	switch rapid.IntRange(0, 4).Draw(t, "control") {
	case 0:
	case 1:
		h.in.Snapshot.Control = unreadableControl()
	default:
		h.control(anyRequests(t))
	}
	return h
}

// As time passes for requests, delays and exclusions, the group settles, and never wakes without a reason.
func TestEveryGroupSettlesInTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := anyScenario(t)
		for range 200 {
			d := h.settle()
			if d.Wake == 0 {
				return
			}
			h.pass(d.Wake - h.in.Now)
		}
		t.Fatalf("still wakes after %s: %d terms, requests %+v", h.in.Now, len(h.terms), h.requests())
	})
}

// When an ineligible leader is to be replaced, the rules rank it as a member that is not the incumbent.
func TestAnIneligibleLeaderIsNoIncumbent(t *testing.T) {
	rules := cluster.Rules{Type: "priority", Filter: []string{`previous.id == member.id || member.id != "a"`}}
	again := newGroup("a", "b").leads("a", 7) // the best in an election that replaces it
	d := newElector().Decide(again.input(t, rules))
	if d.Elect != nil || !strings.Contains(d.Blocked.Reason, "the next election would elect it again") {
		t.Errorf("elected %+v, holding: %q", d.Elect, d.Blocked)
	}
	equal := newGroup("b", "a").leads("a", 7) // b is older
	equal.node("a").Priority = equal.node("b").Priority
	if d := newElector().Decide(equal.input(t, rules)); d.Elect == nil || d.Elect.Node != "b" || d.Elect.Cause != cluster.CauseIneligible {
		t.Errorf("elected %+v, holding: %q", d.Elect, d.Blocked)
	}
}
