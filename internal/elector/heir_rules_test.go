package elector

import (
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// Only a strike ends by itself.
func TestWhichDecisionAwaitsARetry(t *testing.T) {
	struck, other := policy.Refusal{Filter: policy.ExcludedFilter}, policy.Refusal{Filter: policy.ExcludedFilter + "x"}
	elected := cluster.Snapshot{Elected: cluster.Stored[cluster.Elected]{Exists: true}}
	for name, c := range map[string]struct {
		refusals [][]policy.Refusal
		s        cluster.Snapshot
		want     bool
	}{
		"a strike":                  {[][]policy.Refusal{{struck}}, elected, true},
		"a strike, and a cordon":    {[][]policy.Refusal{{struck, other}}, elected, false},
		"a cordon":                  {[][]policy.Refusal{{other}}, elected, false},
		"one of two has a strike":   {[][]policy.Refusal{{other}, {struck}}, elected, true},
		"another one is eligible":   {[][]policy.Refusal{{}, {struck}}, elected, false},
		"nobody":                    {nil, elected, false},
		"a strike, but no decision": {[][]policy.Refusal{{struck}}, cluster.Snapshot{}, false},
	} {
		var d Decision
		for _, r := range c.refusals {
			d.Ranking.Entries = append(d.Ranking.Entries, policy.Entry{Refusals: r})
		}
		if got := d.AwaitsRetry(c.s); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
