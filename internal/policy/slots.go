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

// slotsRanker ranks the node with the fewest other slots first, so that a slot moves for balance exactly when two nodes differ by
// two slots or more.
var slotsRanker = memberRanker{"slots", func(m *cluster.Member, in *Input) (float64, string) {
	switch held := in.Held[m.ID]; held {
	case 0:
		return 0, "no other slot"
	case 1:
		return -1, "1 other slot"
	default:
		return -float64(held), fmt.Sprintf("%d other slots", held)
	}
}}
