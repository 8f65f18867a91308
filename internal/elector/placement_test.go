package elector

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

func follower(t *testing.T, g *group) *scenario {
	h := g.scenario(t, cluster.Rules{Rank: []string{"with:billing", "oldest"}, Failback: cluster.FailbackImmediate})
	h.e.opt.Group = "cache"
	return h
}

func TestElectionWaitsAtMostTwoSeconds(t *testing.T) {
	for name, c := range map[string]struct {
		peer    string
		prepare func(*scenario)
		waits   bool
	}{
		"nobody is elected there":         {"", func(h *scenario) { h.remove("a") }, true},
		"the peer was on the same node":   {"a", func(h *scenario) { h.remove("a") }, true},
		"the peer is on a node elsewhere": {"x", func(h *scenario) { h.remove("a") }, false},
		"the peer leads":                  {"b", func(h *scenario) { h.remove("a") }, false},
		"the leader is unhealthy":         {"a", func(h *scenario) { h.group().node("a").Unhealthy = "no disk" }, true},
		"the peer's node is unhealthy":    {"b", func(h *scenario) { h.group().node("b").Unhealthy = "no disk"; h.remove("a") }, true},
		"an operator has moved it": {"", func(h *scenario) {
			h.remove("a")
			h.control(cluster.Control{Move: &cluster.Move{Request: by(1), Node: "c"}})
		}, false},
		"a circle": {"", func(h *scenario) {
			h.remove("a")
			h.in.Placement.Relations = policy.Graph{"billing": {With: []string{"cache"}}}
		}, false},
	} {
		h := follower(t, newGroup("a", "b", "c").leads("a", 7))
		h.in.Placement.Peers = map[string]string{"billing": c.peer}
		c.prepare(h)
		if d := h.decide(); (d.Awaiting != "") != c.waits || (d.Elect == nil) != c.waits {
			t.Errorf("%s: awaits %q, elects %v", name, d.Awaiting, d.Elect)
			continue
		}
		h.in.Now += 2*time.Second - 1
		if d := h.decide(); (d.Elect == nil) != c.waits {
			t.Errorf("%s: just before the limit: %v", name, d.Elect)
		}
		h.in.Now++
		if d := h.decide(); d.Elect == nil {
			t.Errorf("%s: no election after 2s: awaits %q, note %q, blocked %q", name, d.Awaiting, d.Note, d.Blocked)
		}
		h.in.Now += time.Minute
		if d := h.decide(); d.Elect == nil { // the write may have failed
			t.Errorf("%s: waits again for the same election: %+v", name, d)
		}
	}
}

func TestEveryElectionMayWait(t *testing.T) {
	h := follower(t, newGroup("a", "b", "c"))
	h.in.Placement.Peers = map[string]string{"billing": ""}
	for _, id := range []string{"a", "b", "c"} {
		if d := h.decide(); d.Awaiting == "" {
			t.Fatalf("%s is elected without a wait", id)
		}
		h.pass(2 * time.Second)
		h.settle()
		if got := h.in.Snapshot.Elected.Record.Node; got != id {
			t.Fatalf("%s is elected, want %s", got, id)
		}
		h.remove(id)
	}
}

// A group without a room anywhere looks again soon: what other groups lead changes without an event for this one.
func TestFullHostsAreRankedAgain(t *testing.T) {
	h := newGroup("a").scenario(t)
	h.group().node("a").MaxLeaders = 1
	h.in.Placement.Load = map[string]int{"a": 1}
	if d := h.settle(); d.Note != "no member is eligible: a: it leads 1, and node.max_leaders is 1" || d.Wake != h.in.Now+time.Second {
		t.Errorf("%q, wake %s", d.Note, d.Wake)
	}
	h.in.Placement.Load = nil
	h.leader("a", cluster.CauseFirst)
}
