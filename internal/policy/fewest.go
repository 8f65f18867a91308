package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"zkelectd/internal/cluster"
)

// NodeLoad is how much a node leads.
type NodeLoad struct {
	// Leaders is the number of leaderships, without that of the group that is ranked. Each slot counts as one.
	Leaders int
}

// aboveMean is how far above the mean a node's load may be before fewest prefers others.
const aboveMean = 1.1

// fewestRanker ranks the incumbent first, then the hosts below the mean load in spread's order, then the others by their load. It ranks
// sites likewise, and then the hosts of each by the mean of their site.
type fewestRanker struct {
	spreadBy
	within bool // the mean is that of the host's site, not that of all
}

func (r fewestRanker) name() string { return r.label(fewestName) }

func (r fewestRanker) bind(in Input) func(*cluster.Member) (float64, string) {
	position, shares, leads := r.order(in), r.usable(in), r.leads(in)
	pools := r.pools(in)
	leaders, weight := make(map[string]float64), make(map[string]float64)
	for _, key := range slices.Sorted(maps.Keys(shares)) { // in an order, since the sum is rounded
		leaders[pools[key]] += float64(leads[key])
		weight[pools[key]] += shares[key]
	}
	incumbent, holds := r.incumbent(in)
	pool := pools[incumbent]
	improves := func(float64) bool { return true }
	keep := 2.0 // fewest never preempts
	if own := float64(leads[incumbent]+1) / shares[incumbent]; holds && in.Reelect && own > aboveMean*(leaders[pool]+1)/weight[pool] {
		keep = 0.5
		improves = func(load float64) bool { return load < own }
	}
	return func(m *cluster.Member) (float64, string) {
		key := r.key(m)
		if holds && key == incumbent {
			return keep, r.subject(m) + "incumbent"
		}
		own, share := leads[key], r.weight(m)
		words := r.subject(m) + "leads " + strconv.Itoa(own)
		if !improves(float64(own+1) / share) {
			return -1e6 - float64(own), words + ", so a move would not help"
		}
		load := float64(own) / share
		if pool := pools[key]; own == 0 || load < aboveMean*(leaders[pool]/weight[pool]) {
			return 1 + 1/float64(2+position[key]), words
		}
		return -load, words + ", above the mean"
	}
}

// pools returns which pool each of those that share belongs to, whose mean counts: its site, or one that all are in.
func (r fewestRanker) pools(in Input) map[string]string {
	pools := make(map[string]string)
	for i := range in.Members {
		if m := &in.Members[i]; r.within && !m.Superseded {
			pools[r.key(m)] = m.Node.Record.Site
		}
	}
	return pools
}

// incumbent returns which of those that share leads now, if any.
func (b spreadBy) incumbent(in Input) (key string, holds bool) {
	for i := range in.Members {
		if m := &in.Members[i]; in.Incumbent != "" && m.Name == in.Incumbent {
			return b.key(m), true
		}
	}
	return "", false
}

// usable returns the weights of those that share and have a member that could lead.
func (b spreadBy) usable(in Input) map[string]float64 {
	weights := make(map[string]float64)
	for i := range in.Members {
		m := &in.Members[i]
		if CheckMember(*m, in.Cordons) == nil && !in.Silent[m.Name] {
			weights[b.key(m)] = b.weight(m)
		}
	}
	return weights
}

// leads returns how much each of those that share leads, without the group that is ranked.
func (b spreadBy) leads(in Input) map[string]int {
	all := make(map[string]int)
	for i := range in.Members {
		if m := &in.Members[i]; !m.Superseded {
			all[b.key(m)] += in.Load[m.ID].Leaders
		}
	}
	return all
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
