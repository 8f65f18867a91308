package policy

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
)

var (
	anySite = rapid.SampledFrom([]string{"dc1", "dc2", "dc3"})
	anyExpr = rapid.SampledFrom([]string{
		"member.priority", "member.site == previous.site", "int(member.labels.rack)", "member.latency / member.score",
		"member.incumbent ? 2 : member.score", "count(members, .site == member.site)", "member.site in failed_sites", "member.id == members[0].id",
		"site.healthy",
	})
	anyFilter = rapid.SampledFrom([]string{"member.priority > 0", "int(member.labels.rack) < 3", "site.healthy > 0.5", "!previous.failed || member.site != previous.site", "cause != 'failure' || member.site != previous.site"})
	anyWhen   = rapid.SampledFrom([]string{"", "cause == 'failure'", "len(failed_sites) > 0", "int(previous.site) > 0", "any(members, .priority == 2)"})
	anyNumber = rapid.SampledFrom([]float64{-2, -1, 0, 0.95, 1, 1.05, 2})
)

func anyMembers(t *rapid.T) []cluster.Member {
	var members []cluster.Member
	for i := range rapid.IntRange(1, 8).Draw(t, "members") {
		m := member(string(rune('a'+i)), anySite.Draw(t, "site"), rapid.IntRange(0, 2).Draw(t, "priority"), int32(i*7%8))
		n := &m.Node.Record
		for _, value := range []**float64{&n.Score, &n.Latency} {
			if rapid.Bool().Draw(t, "measured") {
				v := anyNumber.Draw(t, "value")
				*value = &v
			}
		}
		n.Weight, n.MaxLeaders = rapid.SampledFrom([]float64{0, 1, 3}).Draw(t, "weight"), rapid.IntRange(0, 3).Draw(t, "max_leaders")
		switch rapid.IntRange(0, 9).Draw(t, "state") {
		case 0:
			n.Unhealthy = "sick"
		case 1:
			n.Ineligible = "full"
		case 2:
			m.Superseded = true
		case 3, 4, 5:
			n.Labels = map[string]string{"rack": fmt.Sprint(rapid.IntRange(1, 4).Draw(t, "rack"))}
		}
		members = append(members, m)
	}
	return members
}

func anyRules(t *rapid.T, policyType string) cluster.Rules {
	rules := cluster.Rules{
		Type: policyType, Sites: map[string]int{"dc1": 1, "dc2": rapid.IntRange(0, 2).Draw(t, "dc2")},
		SpreadBy:    rapid.SampledFrom([]string{"", cluster.SpreadByHost, cluster.SpreadBySite}).Draw(t, "spread_by"),
		Hysteresis:  rapid.SampledFrom([]int{0, 10, 50}).Draw(t, "hysteresis"),
		Filter:      rapid.SliceOfN(anyFilter, 0, 1).Draw(t, "filter"),
		ApartStrict: rapid.SliceOfN(rapid.SampledFrom([]string{"g1", "g3"}), 0, 1).Draw(t, "apart"),
	}
	if policyType == listType {
		rules.Rank = rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(append(Rankers(), "with:g1", "apart:g1", "with:g3", "apart:g3", "newest:rack", "oldest:rack")), rapid.Map(anyExpr, func(s string) string { return exprPrefix + s })), 1, 4).Draw(t, "rank")
	}
	return rules
}

func anyInput(t *rapid.T) Input {
	members := anyMembers(t)
	id := rapid.Map(rapid.SampledFrom(members), func(m cluster.Member) string { return m.ID })
	in := Input{
		Members: members,
		Circumstances: cluster.Circumstances{
			Cause: rapid.SampledFrom([]cluster.Cause{cluster.CauseFirst, cluster.CauseFailure}).Draw(t, "cause"),
			Node:  id.Draw(t, "previous"), Site: anySite.Draw(t, "previous site"), Failed: rapid.SliceOfN(anySite, 0, 2).Draw(t, "failed"),
		},
	}
	in.Group, in.Peers, in.Load = "g2", make(map[string]string), make(map[string]int)
	for _, peer := range []string{"g1", "g3"} {
		if rapid.Bool().Draw(t, "known") {
			in.Peers[peer] = rapid.OneOf(id, rapid.SampledFrom([]string{"", "x"})).Draw(t, peer)
		}
		if rapid.Bool().Draw(t, "in a circle") {
			in.Relations = Graph{peer: {Apart: []string{"g2"}}}
		}
	}
	for _, m := range members {
		in.Load[m.ID] = rapid.IntRange(0, 4).Draw(t, "leaders")
	}
	if rapid.Bool().Draw(t, "excluded") {
		in.Excluded = map[string]string{id.Draw(t, "node"): "struck"}
	}
	switch rapid.IntRange(0, 5).Draw(t, "requests") {
	case 0:
		in.Cordons = []cluster.Cordon{{Node: id.Draw(t, "cordoned"), Drain: rapid.Bool().Draw(t, "drain")}}
	case 1:
		in.Cordons = []cluster.Cordon{{Site: anySite.Draw(t, "cordoned"), Drain: rapid.Bool().Draw(t, "drain")}}
	case 2:
		in.Move = &cluster.Move{Node: id.Draw(t, "moved to"), Force: rapid.Bool().Draw(t, "force")}
	case 3:
		in.Move = &cluster.Move{Site: anySite.Draw(t, "moved to"), Force: rapid.Bool().Draw(t, "force")}
	}
	if rapid.Bool().Draw(t, "answered") {
		in.Answer = &Answer{Ranking: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "x"}), 0, 5, rapid.ID).Draw(t, "answer")}
	}
	return in
}

func TestRankingDoesNotDependOnTheOrderOfMembers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := anyRules(t, rapid.SampledFrom(append(Types(), listType)).Draw(t, "policyType"))
		rules.Strategies = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) cluster.Strategy {
			return cluster.Strategy{When: anyWhen.Draw(t, "when"), Use: rapid.SampledFrom(Types()).Draw(t, "use")}
		}), 0, 3).Draw(t, "strategies")
		p, in := policyOf(t, rules), anyInput(t)
		if rapid.Bool().Draw(t, "led") {
			in.Incumbent = rapid.SampledFrom(in.Members).Draw(t, "incumbent").Name
		}
		r := p.Rank(in)
		for i, e := range r.Entries {
			if i > 0 && e.Eligible() && !r.Entries[i-1].Eligible() {
				t.Fatalf("%s: an ineligible member comes before an eligible one", places(r))
			}
		}
		in.Members = rapid.Permutation(in.Members).Draw(t, "order")
		if again := p.Rank(in); places(again) != places(r) || again.PolicyType != r.PolicyType || len(r.Entries) != len(in.Members) {
			t.Fatalf("%s by %s, then %s by %s", places(r), r.PolicyType, places(again), again.PolicyType)
		}
	})
}

// S3: the best member stays the best once it is the incumbent. So a member that preempts another one is not preempted in turn.
func TestTheBestStaysTheBestOnceItLeads(t *testing.T) {
	for _, policyType := range append(Types(), listType) {
		t.Run(policyType, rapid.MakeCheck(func(t *rapid.T) {
			p, in := policyOf(t, anyRules(t, policyType)), anyInput(t)
			if rapid.Bool().Draw(t, "led") {
				in.Incumbent = rapid.SampledFrom(in.Members).Draw(t, "incumbent").Name
			}
			best, ok := p.Rank(in).Best()
			if !ok {
				return
			}
			in.Incumbent = best.Name
			if again, ok := p.Rank(in).Best(); !ok || again.Name != best.Name {
				t.Fatalf("%s was the best, but is not once it leads: %s", best.ID, places(p.Rank(in)))
			}
		}))
	}
}
