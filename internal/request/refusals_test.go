package request

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/whatif"
)

type command = func(whatif.Question) (Plan, error)

func TestRequestsThatAreRefused(t *testing.T) {
	led := func(t *testing.T) *house { return group(t).leads("a1") }
	hard := func(t *testing.T) *house {
		h := led(t)
		h.control().Pause = &cluster.Pause{Request: ann(1), Hard: true}
		return h
	}
	alone := func(t *testing.T) *house {
		h := led(t)
		for _, id := range []string{"a2", "b1", "b2"} {
			h.node(id).Unhealthy = "no disk"
		}
		return h
	}
	const paused = "the group is paused hard by ann@host: new kernel: 'zkelectd resume' first"
	forced := bob()
	forced.Force = true
	for name, c := range map[string]struct {
		group func(*testing.T) *house
		give  command
		want  string
	}{
		"move nowhere":             {led, move(bob(), "", ""), "name a node or a site, one of them"},
		"move to two":              {led, move(bob(), "a1", "dc1"), "name a node or a site, one of them"},
		"move to nobody":           {led, move(bob(), "x", ""), `no member has the node "x"; there are a1, a2, b1, b2`},
		"move to no site":          {led, move(bob(), "", "x"), `no member has the site "x"; there are dc1, dc2`},
		"force to nobody":          {led, move(forced, "x", ""), `no member has the node "x"`},
		"move to a site as a node": {led, move(bob(), "dc1", ""), `no member has the node "dc1"`},
		"move when paused hard":    {hard, move(bob(), "a2", ""), paused},
		"force when paused hard":   {hard, move(forced, "a2", ""), paused},
		"move to an unfit one":     {alone, move(bob(), "a2", ""), "a2 may not lead: a2: unhealthy: no disk; --force moves it there all the same"},
		"move to an unfit site":    {alone, move(bob(), "", "dc2"), "site dc2 may not lead: b1: unhealthy: no disk; b2: unhealthy: no disk; --force"},
		"step down, nobody leads":  {func(t *testing.T) *house { return group(t) }, stepDown(bob()), "nobody leads"},
		"step down, nobody else":   {alone, stepDown(bob()), "no other member is eligible: a1: asked to step down by bob@host: test; a2: unhealthy: no disk"},
		"step down, forced":        {alone, stepDown(forced), "no other member is eligible"},
		"step down, paused hard":   {hard, stepDown(bob()), paused},
		"cordon nobody":            {led, cordon(bob(), "x", "", false), `no member has the node "x"`},
		"cordon nothing":           {led, cordon(bob(), "", "", false), "name a node or a site"},
		"drain no site":            {led, cordon(bob(), "", "x", true), `no member has the site "x"`},
		"drain when paused hard":   {hard, cordon(bob(), "a1", "", true), paused},
		"drain, nobody else":       {alone, cordon(bob(), "a1", "", true), "no other member is eligible: a1: drained by bob@host: test; a2: unhealthy: no disk; b1: unhealthy: no disk; b2: unhealthy: no disk; --force drains it as soon as one is"},
		"drain a site, nobody":     {alone, cordon(bob(), "", "dc1", true), "no other member is eligible"},
		"uncordon what is open":    {led, uncordon(bob(), "a1", "", false), "there is no such cordon"},
		"uncordon nothing":         {led, uncordon(bob(), "", "", false), "there is no such cordon"},
		"uncordon all of none":     {led, uncordon(bob(), "", "", true), "there is no such cordon"},
		"resume what goes on":      {led, resume(bob()), "the group is not paused"},
		"reelect when paused hard": {hard, reelect(bob()), paused},
		"clear-strikes of nobody":  {led, clearStrikes(bob(), "a1"), "a1 has no strikes"},
		"clear-strikes of none":    {led, clearStrikes(bob(), ""), "no node has strikes"},
	} {
		h := c.group(t)
		if _, err := h.gives(c.give); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func commands() map[string]command {
	return map[string]command{
		"move": move(bob(), "a2", ""), "step-down": stepDown(bob()), "cordon": cordon(bob(), "a2", "", false), "drain": cordon(bob(), "a1", "", true),
		"uncordon": uncordon(bob(), "", "", true), "pause": pause(bob(), false), "resume": resume(bob()), "reelect": reelect(bob()), "clear-strikes": clearStrikes(bob(), ""),
	}
}

func TestRequestsThatCannotBeReadAreNotReplaced(t *testing.T) {
	for name, give := range commands() {
		h := group(t).leads("a1")
		h.q.Snapshot.Control = cluster.ReadSlot[cluster.Control]("/c/control", []byte(`{"v":9}`), cluster.Stat{}, true)
		_, err := h.gives(give)
		if err == nil || !errors.Is(err, h.q.Snapshot.Control.Err) || !strings.Contains(err.Error(), "the requests cannot be changed: znode /c/control has format version 9") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatANewerVersionWroteIntoTheRequestsIsKept(t *testing.T) {
	for name, give := range commands() {
		h := group(t).leads("a1")
		h.q.Snapshot.Control = cluster.ReadSlot[cluster.Control]("/c/control", []byte(`{"v":1,"last":7,"color":"red","pause":{"id":1,"by":"x"},"cordons":[{"id":2,"by":"x","node":"b2"}]}`), cluster.Stat{}, true)
		h.q.Snapshot.Elected.Record.Exclusions = []cluster.Exclusion{{Node: "b1", Served: true, Term: 3}}
		plan, err := h.gives(give)
		if err != nil || string(plan.Control.Unknown["color"]) != `"red"` {
			t.Errorf("%s: %v, %+v", name, err, plan.Control.Header)
		}
	}
}

// A forged number is the last that there is: then no request is made, lest the next number be none.
func TestRequestsEndWithTheirNumbers(t *testing.T) {
	for name, give := range commands() {
		h := group(t).leads("a1")
		h.q.Snapshot.Control = exists(cluster.Control{Last: cluster.MaxRequest, Pause: &cluster.Pause{Request: ann(1)}, Cordons: []cluster.Cordon{{Request: ann(2), Node: "b2"}}})
		h.q.Snapshot.Elected.Record.Exclusions = []cluster.Exclusion{{Node: "b1", Served: true, Term: 3}}
		if _, err := h.gives(give); err == nil || !strings.Contains(err.Error(), "'zkelectd repair control' empties") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestThereIsAnEndToCordons(t *testing.T) {
	full := func() *house {
		h := group(t).leads("a1")
		c := h.control()
		for !c.Full() {
			c.Cordons = append(c.Cordons, cluster.Cordon{Request: c.Next(ann(0)), Node: fmt.Sprintf("gone%d", len(c.Cordons))})
		}
		h.q.Snapshot.Elected.Record.Exclusions = []cluster.Exclusion{{Node: "b1", Served: true, Term: 3}}
		return h
	}
	for name, give := range map[string]command{
		"cordon": cordon(bob(), "a2", "", false), "drain": cordon(bob(), "a1", "", true), "step-down": stepDown(bob()), "clear-strikes": clearStrikes(bob(), ""),
	} {
		if _, err := full().gives(give); err == nil || !strings.Contains(err.Error(), "too many") || !strings.Contains(err.Error(), "'zkelectd uncordon' some first") {
			t.Errorf("%s: %v", name, err)
		}
	}
	h := full()
	h.control().Cordons[17].Node = "a2"
	plan, err := h.gives(cordon(bob(), "a2", "", true))
	if err != nil || len(plan.Control.Cordons) != len(h.control().Cordons) {
		t.Errorf("in place of another one: %v, %d cordons", err, len(plan.Control.Cordons))
	}
	for name, give := range map[string]command{"move": move(bob(), "a2", ""), "uncordon": uncordon(bob(), "gone3", "", false), "pause": pause(bob(), true), "reelect": reelect(bob())} {
		if _, err := full().gives(give); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
