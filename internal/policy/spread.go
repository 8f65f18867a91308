package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"zkelectd/internal/cluster"
)

const (
	spreadName = "spread"
	fewestName = "fewest"
)

// spreadFraction is the number of fractional bits of [spreadLog].
const spreadFraction = 32

// spreadHash returns the hash of a group and a node (docs/policies.md, Spread).
func spreadHash(group, node string) uint64 {
	sum := sha256.Sum256([]byte(group + "\x00" + node))
	return binary.BigEndian.Uint64(sum[:8])
}

// spreadLog returns -log2(h / 2^64) in units of 2^-32, at least 1. It computes with integers only, so that it is the
// same on every machine: floating-point logarithms are not.
func spreadLog(h uint64) uint64 {
	h = max(h, 1)
	n := bits.Len64(h) - 1
	m, fraction := h<<(63-n), uint64(0) // m is h / 2^n, between 1 and 2, in units of 2^-63
	for range spreadFraction {
		high, low := bits.Mul64(m, m)
		fraction <<= 1
		if high >= 1<<63 { // the square is 2 or more: a one, and the square is halved
			fraction |= 1
			m = high
		} else {
			m = high<<1 | low>>63
		}
	}
	return uint64(64-n)<<spreadFraction - fraction
}

// spreadScore returns the score of a node for a group. Its only rounding is that of one division.
func spreadScore(group, node string, weight float64) float64 {
	return weight * (1 << spreadFraction) / float64(spreadLog(spreadHash(group, node)))
}

// spreadBy is what shares groups: hosts, each as its weight says, or sites, all equally.
type spreadBy struct{ site bool }

// label returns the name of a ranker.
func (b spreadBy) label(name string) string {
	if b.site {
		return "site-" + name
	}
	return name
}

// subject begins what a ranker says of a member.
func (b spreadBy) subject(m *cluster.Member) string {
	if b.site {
		return "site " + m.Node.Record.Site + ": "
	}
	return ""
}

// key returns which of those that share a member belongs to.
func (b spreadBy) key(m *cluster.Member) string {
	if b.site {
		return m.Node.Record.Site
	}
	return m.ID
}

func (b spreadBy) weight(m *cluster.Member) float64 {
	if b.site {
		return 1
	}
	return m.Node.Record.SpreadWeight()
}

// order returns the position of each of those that share in the order that spread gives them for a group, the first 0.
func (b spreadBy) order(in Input) map[string]int {
	scores := make(map[string]float64, len(in.Members))
	for i := range in.Members { // a member is large
		if m := &in.Members[i]; !m.Superseded {
			key := b.key(m)
			scores[key] = spreadScore(in.Group, key, b.weight(m))
		}
	}
	keys := slices.SortedFunc(maps.Keys(scores), func(x, y string) int {
		return cmp.Or(cmp.Compare(scores[y], scores[x]), cluster.CompareNodes(x, y))
	})
	return positions(keys)
}

// spreadRanker ranks by weighted rendezvous hashing: hosts, or sites.
func spreadRanker(by spreadBy) ranker {
	return ranker{by.label(spreadName), func(in Input) scorer {
		position := by.order(in)
		return func(m *cluster.Member) (float64, string) {
			n := position[by.key(m)]
			return 0 - float64(n), fmt.Sprintf("%s%d. by spread", by.subject(m), n+1)
		}
	}}
}
