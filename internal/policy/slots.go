package policy

import (
	"fmt"

	"zkelectd/internal/cluster"
)

// perNodeFilter refuses a node that is elected for as many other slots as it may have. It applies to the target of a
// forced move, too.
var perNodeFilter = memberFilter("per-node", func(m *cluster.Member, in *Input) string {
	if held := in.Held[m.ID]; held >= in.PerNode {
		return fmt.Sprintf("it leads %d of at most %d slots", held, in.PerNode)
	}
	return ""
})

// bySite reports whether sites share what is spread, and then the hosts of each.
func bySite(rules cluster.Rules) bool { return rules.SpreadBy == cluster.SpreadBySite }

// slotsRanker ranks the host, or the site, with the fewest other slots first, so that a slot moves for balance exactly
// when two of them differ by two slots or more.
func slotsRanker(by spreadBy) ranker {
	return ranker{by.label("slots"), func(in Input) scorer {
		held := by.total(in, in.Held)
		return func(m *cluster.Member) (float64, string) {
			switch n := held[by.key(m)]; n {
			case 0:
				return 0, by.subject(m) + "no other slot"
			case 1:
				return -1, by.subject(m) + "1 other slot"
			default:
				return -float64(n), fmt.Sprintf("%s%d other slots", by.subject(m), n)
			}
		}
	}}
}
