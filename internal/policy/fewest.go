package policy

import (
	"fmt"

	"zkelectd/internal/cluster"
)

// NodeLoad is how much a node leads.
type NodeLoad struct {
	// Leaders is the number of leaderships, without that of the group that is ranked. Each slot counts as one.
	Leaders int
}

// aboveMean is how far above the mean a node's load may be before fewest prefers others.
const aboveMean = 1.1

// fewestRanker ranks the incumbent first, then the nodes below the mean load in spread's order, then the others by their load.
type fewestRanker struct{}

func (fewestRanker) name() string { return "fewest" }

func (fewestRanker) bind(in Input) func(*cluster.Member) (float64, string) {
	position := spreadOrder(in)
	leaders, weight := 0.0, 0.0
	for _, m := range in.Members {
		if CheckMember(m, in.Cordons) == nil && !in.Silent[m.Name] {
			leaders += float64(in.Load[m.ID].Leaders)
			weight += m.Node.Record.SpreadWeight()
		}
	}
	mean := 0.0
	if weight > 0 {
		mean = leaders / weight
	}
	improves := func(*cluster.Member) bool { return true }
	keep := 2.0 // fewest never preempts
	if own, reelect := incumbentLoad(in); reelect && own > aboveMean*(leaders+1)/weight {
		keep = 0.5
		improves = func(m *cluster.Member) bool {
			return float64(in.Load[m.ID].Leaders+1)/m.Node.Record.SpreadWeight() < own
		}
	}
	return func(m *cluster.Member) (float64, string) {
		if m.Name == in.Incumbent {
			return keep, "incumbent"
		}
		own := in.Load[m.ID].Leaders
		if !improves(m) {
			return -1e6 - float64(own), fmt.Sprintf("leads %d, so a move would not help", own)
		}
		load, words := float64(own)/m.Node.Record.SpreadWeight(), fmt.Sprintf("leads %d", own)
		if own == 0 || load < aboveMean*mean {
			return 1 + 1/float64(2+position[m.ID]), words
		}
		return -load, words + ", above the mean"
	}
}

// incumbentLoad returns the load of the incumbent with this group, and whether a reelection may replace it.
func incumbentLoad(in Input) (own float64, reelect bool) {
	for _, m := range in.Members {
		if m.Name == in.Incumbent && in.Reelect {
			return float64(in.Load[m.ID].Leaders+1) / m.Node.Record.SpreadWeight(), true
		}
	}
	return 0, false
}

const fullName = "full"

// fullFilter refuses nodes that lead as much as they may. It never ends a leadership.
var fullFilter = memberFilter(fullName, func(m *cluster.Member, in *Input) string {
	limit, leaders := m.Node.Record.MaxLeaders, in.Load[m.ID].Leaders
	if limit <= 0 || leaders < limit || m.Name == in.Incumbent {
		return ""
	}
	return fmt.Sprintf("it leads %d, and node.max_leaders is %d", leaders, limit)
})
