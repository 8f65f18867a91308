package policy

import (
	"testing"

	"zkelectd/internal/cluster"
)

func TestExpressionsCannotDependOnTheOrderOfLabels(t *testing.T) {
	for _, text := range []string{"keys(member.labels)[0] == 'a'", "values(member.labels)[0] == '1'", "toPairs(member.labels)[0][0] == 'a'"} {
		p, err := New(cluster.Policy{Rules: cluster.Rules{Rank: []string{"expr:" + text, "incumbent"}}})
		if err != nil {
			continue
		}
		m := member("a", "dc1", 1, 1, func(n *cluster.Node) { n.Labels = map[string]string{"a": "1", "b": "2", "c": "3"} })
		seen := map[float64]bool{}
		for range 100 {
			seen[p.Rank(Input{Members: []cluster.Member{m}}).Entries[0].Scores[1].Value] = true
		}
		if len(seen) > 1 {
			t.Errorf("%s has varying values", text)
		}
	}
}

func TestAForcedMoveOverridesTheProgram(t *testing.T) {
	in := Input{Members: []cluster.Member{member("a", "dc1", 1, 1), member("b", "dc1", 1, 2)}, Answer: &Answer{Ranking: []string{"a"}}, Move: &cluster.Move{Node: "b", Force: true}}
	if best, _ := policyOf(t, cluster.Rules{Type: "exec"}).Rank(in).Best(); best.ID != "b" {
		t.Errorf("%s leads", best.ID)
	}
}

func TestExpressionsSeeMembersInAFixedOrder(t *testing.T) {
	p := policyOf(t, cluster.Rules{Rank: []string{"expr:member.id == members[0].id", "incumbent"}})
	a, b := member("a", "dc1", 1, 1), member("b", "dc1", 1, 2)
	if x, y := places(p.Rank(Input{Members: []cluster.Member{a, b}})), places(p.Rank(Input{Members: []cluster.Member{b, a}})); x != y {
		t.Errorf("%s, then %s", x, y)
	}
}

func TestValuesAreChecked(t *testing.T) {
	for _, r := range []cluster.Rules{{Type: "coin", Rank: []string{"site"}}, {Type: "first", Failback: "sometimes"}, {Type: "first", MaxPreemptions: -1}, {Type: "first", Hysteresis: -5}} {
		if _, err := New(cluster.Policy{Rules: r}); err == nil {
			t.Errorf("accepted: %+v", r)
		}
	}
}
