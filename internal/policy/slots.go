package policy

import (
	"fmt"

	"zkelectd/internal/cluster"
)

// perNodeFilter refuses a node that is elected for as many other slots as it may have. It applies to the target of a forced move,
// too.
var perNodeFilter = memberFilter("per-node", func(m *cluster.Member, in *Input) string {
	if held := in.Held[m.ID]; held >= in.PerNode {
		return fmt.Sprintf("it leads %d of at most %d slots", held, in.PerNode)
	}
	return ""
})

// bySite reports whether sites share what is spread, and then the hosts of each.
func bySite(rules cluster.Rules) bool { return rules.SpreadBy == cluster.SpreadBySite }

// slotsRanker ranks the host, or the site, with the fewest other slots first, so that a slot moves for balance exactly when two of them
// differ by two slots or more.
type slotsRanker struct{ spreadBy }

func (r slotsRanker) name() string { return r.label("slots") }

func (r slotsRanker) bind(in Input) func(*cluster.Member) (float64, string) {
	held := make(map[string]int)
	for i := range in.Members {
		if m := &in.Members[i]; !m.Superseded {
			held[r.key(m)] += in.Held[m.ID]
		}
	}
	return func(m *cluster.Member) (float64, string) {
		switch n := held[r.key(m)]; n {
		case 0:
			return 0, r.subject(m) + "no other slot"
		case 1:
			return -1, r.subject(m) + "1 other slot"
		default:
			return -float64(n), fmt.Sprintf("%s%d other slots", r.subject(m), n)
		}
	}
}
