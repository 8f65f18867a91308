package policy

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
)

func three() []cluster.Member {
	return []cluster.Member{member("a", "dc1", 1, 1), member("b", "dc1", 1, 2), member("c", "dc1", 1, 3)}
}

func TestRelations(t *testing.T) {
	circle := Graph{"billing": {With: []string{"cache"}}}
	mutual := Graph{"billing": {Apart: []string{"cache"}}}
	later := Graph{"reports": {Apart: []string{"cache"}}}
	for name, c := range map[string]struct {
		rules     cluster.Rules
		peers     map[string]string
		relations Graph
		incumbent string
		want      string
	}{
		"with follows the peer":                  {rules: cluster.Rules{Rank: []string{"with:billing"}}, peers: map[string]string{"billing": "c"}, incumbent: "a", want: "c a b"},
		"with an unknown peer":                   {rules: cluster.Rules{Rank: []string{"with:billing"}}, want: "a b c"},
		"with a peer without a leader":           {rules: cluster.Rules{Rank: []string{"with:billing"}}, peers: map[string]string{"billing": ""}, want: "a b c"},
		"with a peer elsewhere":                  {rules: cluster.Rules{Rank: []string{"with:billing"}}, peers: map[string]string{"billing": "z"}, want: "a b c"},
		"with in a circle is ignored":            {rules: cluster.Rules{Rank: []string{"with:billing"}}, peers: map[string]string{"billing": "c"}, relations: circle, want: "a b c"},
		"with itself is ignored":                 {rules: cluster.Rules{Rank: []string{"with:cache"}}, peers: map[string]string{"cache": "c"}, want: "a b c"},
		"apart avoids the peer":                  {rules: cluster.Rules{Rank: []string{"apart:billing"}}, peers: map[string]string{"billing": "a"}, want: "b c a"},
		"apart preempts":                         {rules: cluster.Rules{Rank: []string{"apart:reports"}}, peers: map[string]string{"reports": "a"}, incumbent: "a", want: "b c a"},
		"apart from an unknown peer":             {rules: cluster.Rules{Rank: []string{"apart:billing"}}, want: "a b c"},
		"of two that are apart the later yields": {rules: cluster.Rules{Rank: []string{"apart:billing"}}, peers: map[string]string{"billing": "a"}, relations: mutual, incumbent: "a", want: "b c a"},
		"and the earlier one stays":              {rules: cluster.Rules{Rank: []string{"apart:reports"}}, peers: map[string]string{"reports": "a"}, relations: later, incumbent: "a", want: "a b c"},
		"but avoids it in an election":           {rules: cluster.Rules{Rank: []string{"apart:reports"}}, peers: map[string]string{"reports": "a"}, relations: later, want: "b c a"},
		"strictly apart":                         {rules: cluster.Rules{Type: "first", ApartStrict: []string{"billing"}}, peers: map[string]string{"billing": "a"}, incumbent: "a", want: "b c (a)"},
		"strictly apart, the earlier one stays":  {rules: cluster.Rules{Type: "first", ApartStrict: []string{"reports"}}, peers: map[string]string{"reports": "a"}, relations: later, incumbent: "a", want: "a b c"},
	} {
		p := policyOf(t, c.rules)
		r := p.Rank(Input{Members: three(), Group: "cache", Peers: c.peers, Relations: c.relations, Incumbent: c.incumbent})
		if got := places(r); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if ignored := strings.Contains(strings.Join(r.Notes, ""), "is ignored: the groups refer to each other in a circle (cache -> "); ignored != strings.Contains(name, "ignored") {
			t.Errorf("%s: notes %q", name, r.Notes)
		}
	}
}

func TestRelationsMustNameGroups(t *testing.T) {
	for want, rules := range map[string]cluster.Rules{
		`policy.rank[1]: "" is not the name of a group`:            {Rank: []string{"site", "with:"}},
		`policy.rank[0]: "Billing" is not the name of a group`:     {Rank: []string{"apart:Billing"}},
		`policy.rank[0]: "a/007" is not the name of a group`:       {Rank: []string{"apart:a/007"}},
		`policy.apart_strict[1]: "a b" is not the name of a group`: {Type: "first", ApartStrict: []string{"a", "a b"}},
	} {
		if _, err := New(cluster.Policy{Rules: rules}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", rules, err, want)
		}
	}
	policyOf(t, cluster.Rules{Rank: []string{"with:ingest/3", "apart:ingest/0", "spread"}})
}

func TestCheckWith(t *testing.T) {
	g := Graph{
		"a": {With: []string{"b"}}, "b": {With: []string{"c", "d"}}, "d": {Apart: []string{"a"}}, // a, b and d
		"e": {With: []string{"a", "e2"}}, "f": {With: []string{"f"}}, "x": {Apart: []string{"y"}}, "y": {Apart: []string{"x"}},
	}
	for group, want := range map[string]string{
		"a": "with:b: the groups refer to each other in a circle (a -> b -> d -> a)", "b": "with:d: the groups refer to each other in a circle (b -> d -> a -> b)",
		"c": "", "d": "", "e": "", "f": "(f -> f)", "x": "", "y": "",
	} {
		err := g.CheckWith(group)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", group, err, want)
		}
	}
}

func TestFullHostsKeepWhatTheyLead(t *testing.T) {
	p := policyOf(t, cluster.Rules{Type: "first"})
	members := three()
	members[0].Node.Record.MaxLeaders = 2
	for name, c := range map[string]struct {
		leaders         int
		incumbent, want string
	}{
		"there is room":      {1, "", "a b c"},
		"full":               {2, "", "b c (a)"},
		"more than full":     {3, "b", "b c (a)"},
		"the incumbent":      {3, "a", "a b c"},
		"nothing is known":   {0, "", "a b c"},
		"another one is led": {2, "c", "b c (a)"},
	} {
		if got := places(p.Rank(Input{Members: members, Incumbent: c.incumbent, Load: map[string]int{"a": c.leaders}})); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	forced := Input{Members: members, Load: map[string]int{"a": 2}, Move: &cluster.Move{Node: "a", Force: true}}
	if got := places(p.Rank(forced)); got != "a b c" {
		t.Errorf("a forced move: %s", got)
	}
}

// groupsWorld is a set of groups whose electors decide one after the other, or all at once, until no leader moves.
type groupsWorld struct {
	members  []cluster.Member
	policies map[string]*Policy
	graph    Graph
	leads    map[string]string
}

// next returns who leads a group after a decision.
func (w groupsWorld) next(group string) string {
	best, ok := w.policies[group].Rank(Input{Members: w.members, Group: group, Incumbent: w.leads[group], Peers: w.leads, Relations: w.graph}).Best()
	if !ok {
		return w.leads[group] // a leader that is not eligible stays if nobody else is
	}
	return best.Name
}

// Whatever groups refer to each other, their leaders stop moving.
func TestRelatedGroupsSettle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := groupsWorld{
			members: world(rapid.IntRange(1, 4).Draw(t, "hosts"), equal), policies: make(map[string]*Policy), graph: make(Graph), leads: make(map[string]string),
		}
		groups := []string{"a", "b", "c", "d", "e"}[:rapid.IntRange(2, 5).Draw(t, "groups")]
		for _, g := range groups {
			relation := rapid.Custom(func(t *rapid.T) string {
				return rapid.SampledFrom([]string{"with:", "apart:"}).Draw(t, "kind") + rapid.SampledFrom(groups).Draw(t, "peer")
			})
			rules := cluster.Rules{Rank: append(rapid.SliceOfN(relation, 0, 2).Draw(t, g), "spread")}
			if rapid.Bool().Draw(t, "strict") {
				rules.ApartStrict = []string{rapid.SampledFrom(groups).Draw(t, "strictly apart")}
			}
			w.policies[g], w.graph[g] = policyOf(t, rules), RelationsOf(rules)
			w.leads[g] = rapid.SampledFrom(w.members).Draw(t, "leader").Name
		}
		atOnce := rapid.Bool().Draw(t, "at once")
		for round := 0; ; round++ {
			before := fmt.Sprint(w.leads)
			decided := make(map[string]string)
			for _, g := range groups {
				if decided[g] = w.next(g); !atOnce {
					w.leads[g] = decided[g]
				}
			}
			if w.leads = decided; fmt.Sprint(w.leads) == before {
				return
			}
			if round > 50 {
				t.Fatalf("still moving: %s, then %v; %v", before, w.leads, w.graph)
			}
		}
	})
}
