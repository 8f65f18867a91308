package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"
	"strconv"

	"zkelectd/internal/cluster"
)

// spreadFraction is the number of fractional bits of [spreadLog].
const spreadFraction = 32

// spreadHash returns the hash of a group and a node (docs/policies.md, Spread).
func spreadHash(group, node string) uint64 {
	sum := sha256.Sum256([]byte(group + "\x00" + node))
	return binary.BigEndian.Uint64(sum[:8])
}

// spreadLog returns -log2(h / 2^64) in units of 2^-32, at least 1. It computes with integers only, so that it is the same on every
// machine: floating-point logarithms are not.
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

// spreadOrder returns the position of each node in the order that spread gives them for a group, the first 0.
func spreadOrder(in Input) map[string]int {
	type node struct {
		id    string
		score float64
	}
	nodes := make([]node, 0, len(in.Members))
	for i := range in.Members { // a member is large
		if m := &in.Members[i]; !m.Superseded {
			nodes = append(nodes, node{m.ID, spreadScore(in.Group, m.ID, m.Node.Record.SpreadWeight())})
		}
	}
	slices.SortFunc(nodes, func(a, b node) int {
		if c := cmp.Compare(b.score, a.score); c != 0 {
			return c
		}
		return cluster.CompareNodes(a.id, b.id)
	})
	position := make(map[string]int, len(nodes))
	for i, n := range nodes {
		position[n.id] = i
	}
	return position
}

// spreadRanker ranks by weighted rendezvous hashing.
type spreadRanker struct{}

func (spreadRanker) name() string { return "spread" }

func (spreadRanker) bind(in Input) func(*cluster.Member) (float64, string) {
	position := spreadOrder(in)
	return func(m *cluster.Member) (float64, string) {
		return 0 - float64(position[m.ID]), strconv.Itoa(position[m.ID]+1) + ". by spread"
	}
}
