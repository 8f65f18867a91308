package whatif

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
)

func TestLossesHaveEachNodeAndSiteOnce(t *testing.T) {
	s := four()
	slices.Reverse(s.Members)
	old := member("a2", "dc3", 0, 99)
	old.Superseded = true
	s.Members = append([]cluster.Member{old}, s.Members...)
	q := question(t, led(s, "a1"))
	q.Change.Without = make([]string, 0, 8)
	q.Change.WithoutSites = make([]string, 0, 8)
	before := cloneSnapshot(q.Snapshot)
	var got []string
	for _, l := range Losses(q) {
		got = append(got, fmt.Sprintf("%s%s: %s", l.Node, l.Site, l.Outcomes[0].Leader.ID))
	}
	want := []string{"a1: a2", "a2: a1", "b1: a1", "b2: a1", "dc1: b1", "dc2: a1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if !reflect.DeepEqual(before, q.Snapshot) || len(q.Change.Without)+len(q.Change.WithoutSites) != 0 {
		t.Error("modified its input")
	}
}

func TestLossesAreAddedToAChange(t *testing.T) {
	q := question(t, led(four(), "a1"))
	q.Change = Change{Without: []string{"a2"}, Cordon: []string{"b1"}}
	for _, l := range Losses(q) {
		want := "a1"
		if l.Node == "a1" || l.Site == "dc1" {
			want = "b2"
		}
		if l.Outcomes[0].Leader.ID != want {
			t.Errorf("without %s%s %q leads, want %q", l.Node, l.Site, l.Outcomes[0].Leader.ID, want)
		}
	}
	if all := Losses(question(t, cluster.Snapshot{})); len(all) != 0 {
		t.Errorf("of an empty group: %+v", all)
	}
}

func drawSnapshot(t *rapid.T) cluster.Snapshot {
	var s cluster.Snapshot
	var ids []string
	for i := range rapid.IntRange(1, 5).Draw(t, "members") {
		m := member(fmt.Sprintf("n%d", i), rapid.SampledFrom([]string{"dc1", "dc2", "dc3"}).Draw(t, "site"), int32(i+1), rapid.IntRange(0, 3).Draw(t, "priority"))
		if rapid.IntRange(0, 5).Draw(t, "unhealthy") == 0 {
			m.Node.Record.Unhealthy = "no disk"
		}
		score := float64(rapid.IntRange(0, 4).Draw(t, "score"))
		m.Node.Record.Score, m.Node.Record.Latency = &score, &score
		s.Members = append(s.Members, m)
		ids = append(ids, m.ID)
	}
	if rapid.Bool().Draw(t, "led") {
		s = led(s, rapid.SampledFrom(ids).Draw(t, "leader"))
		for _, id := range ids {
			if rapid.IntRange(0, 3).Draw(t, "struck") == 0 {
				s.Elected.Record.Exclusions = append(s.Elected.Record.Exclusions, cluster.Exclusion{
					Node: id, Strikes: rapid.IntRange(1, 7).Draw(t, "strikes"), For: cluster.Duration(time.Hour), Term: rapid.Int64Range(1, 6).Draw(t, "term"),
				})
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "over") == 0 {
			s.Current, s.Fence.Record.State = cluster.Stored[cluster.Current]{}, rapid.SampledFrom([]cluster.FenceState{cluster.FenceReleased, cluster.FenceRevoked}).Draw(t, "state")
		}
	}
	s.Control = exists(drawControl(t, ids))
	if len(s.Elected.Record.Exclusions) > 0 {
		s.Control.Record.Move = nil // one whose target is excluded ends, and what tries again then is not moved to
	}
	return s
}

// drawControl submits requests without an end: a forecast does not forecast one.
func drawControl(t *rapid.T, ids []string) cluster.Control {
	var c cluster.Control
	by := cluster.Request{By: "ann@host"}
	if rapid.IntRange(0, 3).Draw(t, "pause") == 0 {
		c.Pause = &cluster.Pause{Request: c.Next(by), Hard: rapid.Bool().Draw(t, "hard")}
	}
	if rapid.IntRange(0, 2).Draw(t, "move") == 0 {
		c.Move = &cluster.Move{Request: c.Next(by), Node: rapid.SampledFrom(ids).Draw(t, "target"), Force: rapid.Bool().Draw(t, "force")}
	}
	if rapid.IntRange(0, 4).Draw(t, "reelect") == 0 {
		o := c.Next(by)
		c.Reelect = &o
	}
	for _, id := range ids {
		if rapid.IntRange(0, 4).Draw(t, "cordon") == 0 {
			c.Cordons = append(c.Cordons, cluster.Cordon{Request: c.Next(by), Node: id, Drain: rapid.Bool().Draw(t, "drain")})
		}
	}
	return c
}

func drawRules(t *rapid.T) cluster.Rules {
	return cluster.Rules{
		Type:  rapid.SampledFrom([]string{"priority", "first", "node-id", "round-robin", "other-site", "latency", "score"}).Draw(t, "type"),
		Sites: map[string]int{"dc2": rapid.IntRange(-1, 1).Draw(t, "dc2")}, Hysteresis: 20, Filter: rapid.SliceOfN(rapid.SampledFrom([]string{"member.priority >= 1", "member.priority >= 2"}), 0, 1).Draw(t, "filter"),
		Failback: rapid.SampledFrom([]string{"", cluster.FailbackManual}).Draw(t, "failback"),
	}
}

func TestForecastSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := question(t, drawSnapshot(t), drawRules(t))
		if rapid.Bool().Draw(t, "lost") {
			q.Change.Without = []string{q.Snapshot.Members[0].ID}
		}
		out := forecast(t, q)
		if len(out.Steps) >= maxSteps {
			t.Fatalf("does not settle: %q", causes(out))
		}
		then := q
		then.Snapshot = q.applyChange()
		then.Change = Change{}
		for _, step := range out.Steps {
			then.Snapshot = then.Snapshot.AfterElection(step)
		}
		again := forecast(t, then)
		if len(again.Steps) != 0 || again.Leader.Name != out.Leader.Name {
			t.Fatalf("%q leads after %q, but then %q after %q (%s)", out.Leader.ID, causes(out), again.Leader.ID, causes(again), again.Last.Note)
		}
		if out.HasLeader() && !out.Last.Ranking.Entries[0].Eligible() && len(out.Steps) > 0 && out.Steps[len(out.Steps)-1].Cause == cluster.CausePreempt {
			t.Fatalf("policy moved it to %q, which is not eligible", out.Leader.ID)
		}
	})
}
