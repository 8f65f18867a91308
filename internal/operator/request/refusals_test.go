package request

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

func TestRefusals(t *testing.T) {
	led := func(t *testing.T) *testGroup { return group(t).leads("a1") }
	hard := func(t *testing.T) *testGroup {
		h := led(t)
		h.control().Pause = &cluster.Pause{Request: ann(1), Hard: true}
		return h
	}
	alone := func(t *testing.T) *testGroup {
		h := led(t)
		for _, id := range []string{"a2", "b1", "b2"} {
			h.node(id).Unhealthy = "no disk"
		}
		return h
	}
	cordoned := func(t *testing.T) *testGroup {
		h := led(t)
		h.node("a2").Unhealthy = "no disk"
		h.control().Cordons = []cluster.Cordon{{Site: "dc2", Request: cluster.Request{By: "ann@host"}}}
		return h
	}
	left := func(t *testing.T) *testGroup {
		h := group(t).elects("a1")
		h.q.Snapshot.Members = h.q.Snapshot.Members[1:]
		return h
	}
	const paused = "the group is paused hard by ann@host: new kernel; run 'zkelectd resume' first"
	forced := bob()
	forced.Force = true
	for name, c := range map[string]struct {
		group func(*testing.T) *testGroup
		cmd   command
		want  string
	}{
		"move without a target":           {led, move(bob(), "", ""), "name exactly one of node and site"},
		"move to an unknown node":         {led, move(bob(), "x", ""), `no member has the node "x"; there are a1, a2, b1, b2`},
		"move to an unknown site":         {led, move(bob(), "", "x"), `no member has the site "x"; there are dc1, dc2`},
		"move when paused hard":           {hard, move(bob(), "a2", ""), paused},
		"move to an unhealthy one":        {alone, move(bob(), "a2", ""), "leadership cannot move to a2: a2: unhealthy: no disk; --force moves it anyway"},
		"move to an unhealthy site":       {alone, move(bob(), "", "dc2"), "leadership cannot move to site dc2: b1: unhealthy: no disk; b2: unhealthy: no disk; --force"},
		"move to a cordoned one":          {cordoned, move(bob(), "b1", ""), "leadership cannot move to b1: b1: site dc2 is cordoned by ann@host"},
		"move away, no leader":            {func(t *testing.T) *testGroup { return group(t) }, moveAway(bob()), "there is no leader"},
		"move away, it has left":          {left, moveAway(bob()), "there is no leader"},
		"move away, no other":             {alone, moveAway(bob()), "no other member is eligible: a2: unhealthy: no disk; b1: unhealthy: no disk; b2: unhealthy: no disk"},
		"move away, others are cordoned":  {cordoned, moveAway(bob()), "; 'zkelectd uncordon --site dc2' lets b1 be elected again"},
		"cordon an unknown node":          {led, cordon(bob(), "x", "", false), `no member has the node "x"`},
		"drain an unknown site":           {led, cordon(bob(), "", "x", true), `no member has the site "x"`},
		"drain when paused hard":          {hard, cordon(bob(), "a1", "", true), paused},
		"drain, no other":                 {alone, cordon(bob(), "a1", "", true), "no other member is eligible: a2: unhealthy: no disk; b1: unhealthy: no disk; b2: unhealthy: no disk; --force drains it as soon as another one is"},
		"uncordon without a cordon":       {led, uncordon(bob(), "a1", "", false), "there is no such cordon"},
		"uncordon without a target":       {led, uncordon(bob(), "", "", false), "name exactly one of node, site and all"},
		"resume without a pause":          {led, resume(bob()), "the group is not paused"},
		"reelect when paused hard":        {hard, reelect(bob()), paused},
		"clear-strikes of a node without": {led, clearStrikes(bob(), "a1"), "a1 has no strikes"},
	} {
		h := c.group(t)
		if _, err := h.planFor(c.cmd); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func commands() map[string]command {
	return map[string]command{
		"move": move(bob(), "a2", ""), "move away": moveAway(bob()), "cordon": cordon(bob(), "a2", "", false), "drain": cordon(bob(), "a1", "", true),
		"uncordon": uncordon(bob(), "", "", true), "pause": pause(bob(), false), "resume": resume(bob()), "reelect": reelect(bob()), "clear-strikes": clearStrikes(bob(), ""),
	}
}

func TestUnreadableControlIsNotReplaced(t *testing.T) {
	for name, cmd := range commands() {
		h := group(t).leads("a1")
		h.q.Snapshot.Control = cluster.ReadStored[cluster.Control]("/c/control", []byte(`{"v":9}`), cluster.Stat{}, true)
		_, err := h.planFor(cmd)
		if err == nil || !errors.Is(err, h.q.Snapshot.Control.Err) || !strings.Contains(err.Error(), "requests cannot be submitted: znode /c/control has format version 9") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnknownFieldsAreKept(t *testing.T) {
	for name, cmd := range commands() {
		h := group(t).leads("a1")
		h.q.Snapshot.Control = cluster.ReadStored[cluster.Control]("/c/control", []byte(`{"v":1,"last":7,"color":"red","pause":{"id":1,"by":"x"},"cordons":[{"id":2,"by":"x","node":"b2"}]}`), cluster.Stat{}, true)
		h.q.Snapshot.Elected.Record.Exclusions = []cluster.Exclusion{{Node: "b1", Expired: true, Term: 3}}
		plan, err := h.planFor(cmd)
		if err != nil || string(plan.Control.Unknown["color"]) != `"red"` {
			t.Errorf("%s: %v, %+v", name, err, plan.Control.Header)
		}
	}
}

// After the highest possible number, which can only be forged, no request is planned: the next number would be invalid.
func TestNoRequestAfterTheLastNumber(t *testing.T) {
	for name, cmd := range commands() {
		h := group(t).leads("a1")
		h.q.Snapshot.Control = exists(cluster.Control{Last: cluster.MaxRequest, Pause: &cluster.Pause{Request: ann(1)}, Cordons: []cluster.Cordon{{Request: ann(2), Node: "b2"}}})
		h.q.Snapshot.Elected.Record.Exclusions = []cluster.Exclusion{{Node: "b1", Expired: true, Term: 3}}
		if _, err := h.planFor(cmd); err == nil || !strings.Contains(err.Error(), "'zkelectd repair control' empties") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNumberOfCordonsIsBounded(t *testing.T) {
	full := func() *testGroup {
		h := group(t).leads("a1")
		c := h.control()
		for !c.Full() {
			c.Cordons = append(c.Cordons, cluster.Cordon{Request: c.Next(ann(0)), Node: fmt.Sprintf("gone%d", len(c.Cordons))})
		}
		h.q.Snapshot.Elected.Record.Exclusions = []cluster.Exclusion{{Node: "b1", Expired: true, Term: 3}}
		return h
	}
	for name, cmd := range map[string]command{
		"cordon": cordon(bob(), "a2", "", false), "drain": cordon(bob(), "a1", "", true), "clear-strikes": clearStrikes(bob(), ""),
	} {
		if _, err := full().planFor(cmd); err == nil || !strings.Contains(err.Error(), "too many") || !strings.Contains(err.Error(), "uncordon some of the nodes and sites") {
			t.Errorf("%s: %v", name, err)
		}
	}
	h := full()
	h.control().Cordons[17].Node = "a2"
	plan, err := h.planFor(cordon(bob(), "a2", "", true))
	if err != nil || len(plan.Control.Cordons) != len(h.control().Cordons) {
		t.Errorf("replacing another one: %v, %d cordons", err, len(plan.Control.Cordons))
	}
	for name, cmd := range map[string]command{"move": move(bob(), "a2", ""), "uncordon": uncordon(bob(), "gone3", "", false), "pause": pause(bob(), true), "reelect": reelect(bob())} {
		if _, err := full().planFor(cmd); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
