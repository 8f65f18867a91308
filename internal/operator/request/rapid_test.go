package request

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
)

func drawGroup(t *rapid.T) *testGroup {
	rules := cluster.Rules{
		Type: rapid.SampledFrom([]string{"priority", "first", "node-id", "round-robin", "other-site"}).Draw(t, "type"), Filter: rapid.SliceOfN(rapid.SampledFrom([]string{"member.priority >= 1", "member.priority >= 2"}), 0, 1).Draw(t, "filter"),
		Failback: rapid.SampledFrom([]string{"", cluster.FailbackManual, "1m"}).Draw(t, "failback"),
	}
	h := group(t, rules)
	s := &h.q.Snapshot
	s.Members = nil
	var ids []string
	for i := range rapid.IntRange(1, 5).Draw(t, "members") {
		id := fmt.Sprintf("n%d", i)
		m := member(id, rapid.SampledFrom([]string{"dc1", "dc2", "dc3"}).Draw(t, "site"), int32(i+1), rapid.IntRange(0, 3).Draw(t, "priority"))
		if rapid.IntRange(0, 4).Draw(t, "unhealthy") == 0 {
			m.Node.Record.Unhealthy = "no disk"
		}
		s.Members, ids = append(s.Members, m), append(ids, id)
	}
	s.Self = s.Members[0].Incarnation
	switch who := rapid.SampledFrom(ids).Draw(t, "leader"); rapid.SampledFrom([]string{"leads", "elected", "gone", "nobody"}).Draw(t, "state") {
	case "leads":
		h.leads(who)
	case "elected":
		h.elects(who)
	case "gone":
		s.Elected = exists(cluster.Elected{Term: 7, Node: "gone", Site: "dc1", Incarnation: "gone-0000000000000001-n_0000000000", Cause: cluster.CauseFirst})
	}
	if s.Elected.Exists {
		for _, id := range ids {
			if rapid.IntRange(0, 3).Draw(t, "struck") == 0 {
				s.Elected.Record.Exclusions = append(s.Elected.Record.Exclusions, cluster.Exclusion{
					Node: id, Strikes: rapid.IntRange(1, 7).Draw(t, "strikes"), For: cluster.Duration(time.Hour), Term: rapid.Int64Range(1, 6).Draw(t, "term"),
				})
			}
		}
	}
	drawRequests(t, h.control(), ids)
	return h
}

func drawRequest(t *rapid.T) cluster.Request {
	lasts := cluster.Duration(rapid.SampledFrom([]time.Duration{0, 0, time.Minute, time.Hour}).Draw(t, "for"))
	return cluster.Request{By: "ann@host", For: lasts, Time: wall}
}

func drawRequests(t *rapid.T, c *cluster.Control, ids []string) {
	if rapid.IntRange(0, 2).Draw(t, "pause") == 0 {
		c.Pause = &cluster.Pause{Request: c.Next(drawRequest(t)), Hard: rapid.Bool().Draw(t, "hard")}
	}
	if rapid.IntRange(0, 2).Draw(t, "move") == 0 {
		c.Move = &cluster.Move{Request: c.Next(drawRequest(t)), Node: rapid.SampledFrom(ids).Draw(t, "before"), Force: rapid.Bool().Draw(t, "by force")}
	}
	if rapid.IntRange(0, 4).Draw(t, "reelect") == 0 {
		o := c.Next(drawRequest(t))
		c.Reelect = &o
	}
	for _, id := range ids {
		if rapid.IntRange(0, 4).Draw(t, "cordon") == 0 {
			c.Cordons = append(c.Cordons, cluster.Cordon{Request: c.Next(drawRequest(t)), Node: id, Drain: rapid.Bool().Draw(t, "drain")})
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "cleared") == 0 {
		c.ClearedStrikes = append(c.ClearedStrikes, cluster.ClearedStrikes{Request: c.Next(drawRequest(t)), Term: 7})
	}
}

func drawOptions(t *rapid.T) Options {
	o := bob()
	o.For = rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "lasting")
	o.Force = rapid.Bool().Draw(t, "force")
	return o
}

// settles lets the real elector decide until nothing changes any more, and returns the leader. It waits for the retry after a
// strike, but not for the end of a request.
func (h *testGroup) settles(plan Plan) string {
	s := h.q.Snapshot
	s.Control = exists(plan.Control)
	e := elector.New(h.q.Options)
	const limit = 50 * time.Second
	var passed time.Duration
	for range 60 {
		rec := s.Elected.Record
		d := e.Decide(elector.Input{Snapshot: s, Policy: h.q.Policy, Now: time.Hour + passed, Wall: wall, Exclusions: rec.Exclusions})
		switch {
		case d.Elect != nil:
			led := &testGroup{t: h.t, q: h.q}
			led.q.Snapshot = s
			led.leads(d.Elect.Node)
			s = led.q.Snapshot
			s.Elected.Record = *d.Elect
			s.Fence.Record.Term, s.Current.Record.Term = d.Elect.Term, d.Elect.Term
		case d.Control != nil:
			s.Control.Record = *d.Control
		case d.Note != "" && d.Wake > time.Hour+passed && d.Wake < time.Hour+limit:
			passed = d.Wake - time.Hour
		default:
			m, _ := s.Member(rec.Incarnation)
			return m.ID
		}
	}
	h.t.Fatal("does not settle")
	return ""
}

func TestPlannedMoveHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawGroup(t)
		m := rapid.SampledFrom(h.q.Snapshot.Members).Draw(t, "to")
		node, site := m.ID, ""
		if rapid.Bool().Draw(t, "to the site") {
			node, site = "", m.Node.Record.Site
		}
		plan, err := h.planFor(move(drawOptions(t), node, site))
		if err != nil {
			return
		}
		out := h.after(plan)
		if !out.HasLeader() || !plan.Control.Move.Matches(out.Leader.ID, out.Leader.Node.Record.Site) {
			t.Fatalf("planned for %s, but the forecast is %q: %q", plan.Control.Move.Target(), out.Leader.ID, plan.Messages)
		}
		leader := h.settles(plan)
		if leader == "" || !plan.Control.Move.Matches(leader, h.node(leader).Site) {
			t.Fatalf("planned for %s, but %q leads: %q", plan.Control.Move.Target(), leader, plan.Messages)
		}
	})
}

func TestDrainedLeaderIsReplaced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawGroup(t)
		m := rapid.SampledFrom(h.q.Snapshot.Members).Draw(t, "of")
		o := drawOptions(t)
		o.Force = false
		plan, err := h.planFor(cordon(o, m.ID, "", true))
		if err != nil {
			return
		}
		if leader := h.settles(plan); leader == m.ID {
			t.Fatalf("drained, %s leads: %q", m.ID, plan.Messages)
		}
	})
}
