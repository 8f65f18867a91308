package policy

import (
	"slices"
	"strings"

	"zkelectd/internal/cluster"
)

// Types and rankers that rank without what hosts publish in their loads.
var (
	typesWithoutLoads = []string{"priority", "first", "node-id", "highest-node-id", "round-robin",
		"other-site", "spread"}
	rankersWithoutLoads = []string{"site", "priority", "incumbent", "oldest", "node-id", "highest-node-id",
		"round-robin", "other-site", "spread"}
)

// UsesLoads reports whether a decision by these rules, for these members, may depend on what hosts publish in their
// loads: latency, score and how much they lead.
func UsesLoads(rules cluster.Rules, members []cluster.Member) bool {
	if slices.ContainsFunc(members, func(m cluster.Member) bool { return m.Node.Record.MaxLeaders > 0 }) {
		return true
	}
	if len(rules.Filter) > 0 || len(rules.Strategies) > 0 || rules.Confirm != "" {
		return true // expressions may use any field
	}
	if len(rules.Rank) == 0 {
		return !slices.Contains(typesWithoutLoads, rules.Type)
	}
	return slices.ContainsFunc(rules.Rank, func(name string) bool {
		return !slices.Contains(rankersWithoutLoads, name) &&
			!slices.ContainsFunc([]string{withPrefix, apartPrefix, newestPrefix, oldestPrefix},
				func(p string) bool { return strings.HasPrefix(name, p) })
	})
}
