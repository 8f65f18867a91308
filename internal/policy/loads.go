package policy

import (
	"slices"
	"strings"

	"zkelectd/internal/cluster"
)

// rankedByLoads are the types and rankers that rank by what hosts publish in their loads. An expression, or a program, may.
var rankedByLoads = []string{"latency", "score", "fewest", execType}

// UsesLoads reports whether a decision by these rules, for these members, may depend on what hosts publish in their loads: latency,
// score and how much they lead.
func UsesLoads(rules cluster.Rules, members []cluster.Member) bool {
	if slices.ContainsFunc(members, func(m cluster.Member) bool { return m.Node.Record.MaxLeaders > 0 }) {
		return true
	}
	if len(rules.Filter) > 0 || len(rules.Strategies) > 0 {
		return true // expressions may use any field
	}
	if len(rules.Rank) == 0 {
		return slices.Contains(rankedByLoads, rules.Type)
	}
	return slices.ContainsFunc(rules.Rank, func(name string) bool {
		return slices.Contains(rankedByLoads, name) || strings.HasPrefix(name, exprPrefix)
	})
}
