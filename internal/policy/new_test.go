package policy

import (
	"math"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

func TestErrorsNameTheSetting(t *testing.T) {
	for name, c := range map[string]struct {
		rules cluster.Rules
		want  []string
	}{
		"an unknown type":                   {cluster.Rules{Type: "coin"}, []string{`policy.type: "coin" is not a policy`, "other-site"}},
		"no type":                           {cluster.Rules{}, []string{"policy.type"}},
		"a list that is not there":          {cluster.Rules{Type: "rank"}, []string{"policy.type: rank needs a list in policy.rank"}},
		"an unknown ranker":                 {cluster.Rules{Rank: []string{"site", "coin"}}, []string{`policy.rank[1]: "coin" is not a ranker`, "round-robin", "expr:EXPRESSION"}},
		"exec is no ranker of a list":       {cluster.Rules{Rank: []string{"exec"}}, []string{`policy.rank[0]: "exec" is not a ranker`}},
		"an expression in a list":           {cluster.Rules{Rank: []string{"site", "expr: member.coin"}}, []string{"policy.rank[1]: ", "coin", "(1:8)"}},
		"an expression that does not parse": {cluster.Rules{Rank: []string{"expr:member.priority +", "incumbent"}}, []string{"policy.rank[0]: ", "(1:17)"}},
		"a mistyped field":                  {cluster.Rules{Rank: []string{"expr:member.prio"}}, []string{"member has no field prio; did you mean priority?"}},
		"a mistyped name":                   {cluster.Rules{Type: "first", Filter: []string{"membr.site == 'a'"}}, []string{"unknown name membr; did you mean member?"}},
		"an expression of the wrong type":   {cluster.Rules{Rank: []string{"expr:member.id", "incumbent"}}, []string{"policy.rank[0]: ", "string"}},
		"a filter of the wrong type":        {cluster.Rules{Type: "first", Filter: []string{"true", "member.priority"}}, []string{"policy.filter[1]: ", "int"}},
		"a strategy that is not there":      {cluster.Rules{Type: "first", Strategies: []cluster.Strategy{{Use: "first"}, {Use: "coin"}}}, []string{`policy.strategies[1].use: "coin" is not a policy`}},
		"a condition of the wrong type":     {cluster.Rules{Type: "first", Strategies: []cluster.Strategy{{When: "cause", Use: "first"}}}, []string{"policy.strategies[0].when: ", "string"}},
		"a condition about one member":      {cluster.Rules{Type: "first", Strategies: []cluster.Strategy{{When: "member.id == 'a'", Use: "first"}}}, []string{"policy.strategies[0].when: ", "unknown name member", "(1:1)"}},
	} {
		_, err := New(cluster.Policy{Rules: c.rules})
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %q, want %q in one line", name, err, want)
			}
		}
	}
}

func TestAFailedExpressionAffectsOnlyItsMember(t *testing.T) {
	for name, c := range map[string]struct {
		rules cluster.Rules
		want  string
		words string // of b
	}{
		"conversion":        {cluster.Rules{Rank: []string{"expr:int(member.labels.rack)", "incumbent"}}, "c a b", "int(member.labels.rack) failed: "},
		"behind all others": {cluster.Rules{Rank: []string{"expr:-int(member.labels.rack)", "incumbent"}}, "a c b", "-int(member.labels.rack) failed: "},
		"out of range":      {cluster.Rules{Rank: []string{"expr:[1, 2][len(member.labels) == 0 ? 9 : 0]", "incumbent"}}, "a c b", "failed: "},
		"no number":         {cluster.Rules{Rank: []string{"expr:member.id == 'b' ? 0.0 / member.score : 1", "incumbent"}}, "a c b", "is not a number"},
		"all of them can":   {cluster.Rules{Rank: []string{"expr:len(member.labels)", "incumbent"}}, "a c b", "len(member.labels) = 0"},
	} {
		in := Input{Members: []cluster.Member{member("a", "dc1", 1, 2, label("rack", "3")), member("b", "dc1", 1, 1), member("c", "dc1", 1, 3, label("rack", "7"))}}
		r := policyOf(t, c.rules).Rank(in)
		if got := places(r); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if words := entry(t, r, "b").words(); !strings.Contains(words, c.words) || strings.Contains(words, "\n") {
			t.Errorf("%s: %q, want %q", name, words, c.words)
		}
		for _, s := range entry(t, r, "b").Scores {
			if math.IsNaN(s.Value) {
				t.Errorf("%s: %s scores NaN", name, s.Ranker)
			}
		}
	}
}
