package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"zkelectd/internal/cluster"
)

// aboveMean is how far above the mean a node's load may be before fewest prefers others.
const aboveMean = 1.1

// fewestRanker ranks the incumbent first, then the hosts below the mean load in spread's order, then the others by
// their load. It ranks sites likewise, and then the hosts of each by the mean of their site: within is set if that is
// the mean, not that of all.
func fewestRanker(by spreadBy, within bool) ranker {
	return ranker{by.label(fewestName), func(in Input) scorer { return by.fewest(in, within) }}
}

func (b spreadBy) fewest(in Input, within bool) scorer {
	position, shares, leads := b.order(in), b.usable(in), b.total(in, in.Load)
	pools := pools(in, within)
	leaders, weight := make(map[string]float64), make(map[string]float64)
	for _, key := range slices.Sorted(maps.Keys(shares)) { // in an order, since the sum is rounded
		leaders[pools[key]] += float64(leads[key])
		weight[pools[key]] += shares[key]
	}
	incumbent, holds := b.incumbent(in)
	pool := pools[incumbent]
	improves := func(float64) bool { return true }
	keep := 2.0 // fewest never preempts
	if own := float64(leads[incumbent]+1) / shares[incumbent]; holds && in.Reelect &&
		own > aboveMean*(leaders[pool]+1)/weight[pool] {
		keep = 0.5
		improves = func(load float64) bool { return load < own }
	}
	return func(m *cluster.Member) (float64, string) {
		key := b.key(m)
		if holds && key == incumbent {
			return keep, b.subject(m) + "incumbent"
		}
		own, share := leads[key], b.weight(m)
		words := b.subject(m) + "leads " + strconv.Itoa(own)
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

// pools returns which pool each host belongs to, whose mean counts: within sites its site, else one that all are in.
func pools(in Input, within bool) map[string]string {
	pools := make(map[string]string)
	for i := range in.Members {
		if m := &in.Members[i]; within && !m.Superseded {
			pools[m.ID] = m.Node.Record.Site
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

// total returns the sum of the numbers of nodes for each of those that share.
func (b spreadBy) total(in Input, of map[string]int) map[string]int {
	all := make(map[string]int)
	for i := range in.Members {
		if m := &in.Members[i]; !m.Superseded {
			all[b.key(m)] += of[m.ID]
		}
	}
	return all
}

const fullName = "full"

// fullFilter refuses nodes that lead as much as they may. It never ends a leadership.
var fullFilter = memberFilter(fullName, func(m *cluster.Member, in *Input) string {
	limit, leaders := m.Node.Record.MaxLeaders, in.Load[m.ID]
	if limit <= 0 || leaders < limit || m.Name == in.Incumbent {
		return ""
	}
	return fmt.Sprintf("it leads %d, and node.max_leaders is %d", leaders, limit)
})
