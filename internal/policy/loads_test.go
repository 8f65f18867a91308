package policy

import (
	"testing"

	"zkelectd/internal/cluster"
)

func TestUsesLoads(t *testing.T) {
	limited := []cluster.Member{{}, {Node: cluster.Stored[cluster.Node]{Exists: true, Record: cluster.Node{MaxLeaders: 3}}}}
	for name, c := range map[string]struct {
		rules   cluster.Rules
		members []cluster.Member
		want    bool
	}{
		"the default":        {cluster.Rules{Type: "priority"}, nil, false},
		"latency":            {cluster.Rules{Type: "latency"}, nil, true},
		"exec":               {cluster.Rules{Type: "exec"}, nil, true},
		"a list":             {cluster.Rules{Rank: []string{"site", "with:billing", "apart:web", "newest:v", "oldest:v", "spread"}}, nil, false},
		"a list with fewest": {cluster.Rules{Rank: []string{"incumbent", "fewest"}}, nil, true},
		"an expression":      {cluster.Rules{Rank: []string{"expr:score"}}, nil, true},
		"a filter":           {cluster.Rules{Type: "priority", Filter: []string{"latency < 5"}}, nil, true},
		"strategies":         {cluster.Rules{Type: "priority", Strategies: []cluster.Strategy{{Use: "latency"}}}, nil, true},
		"a limit":            {cluster.Rules{Type: "priority"}, limited, true},
	} {
		if got := UsesLoads(c.rules, c.members); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	for _, known := range Types() {
		if known == "latency" || known == "score" || known == "exec" || known == "fewest" {
			continue
		}
		if UsesLoads(cluster.Rules{Type: known}, nil) {
			t.Errorf("type %s", known)
		}
	}
}
