package policy

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
)

// Electors of different versions and architectures must have the same order, so the vectors must never change.
func TestSpreadVectors(t *testing.T) {
	for _, v := range []struct {
		group, node string
		weight      float64
		hash, log   uint64
		score       float64
	}{
		{"billing", "n1", 1, 0x42c56fcebea0546f, 8327276430, 0.5157709524961692},
		{"billing", "n2", 1, 0xc682ccba1989c1cd, 1575932248, 2.7253502182284173},
		{"billing", "n3", 1, 0x21f168c0fceeca65, 12519647673, 0.3430581601160047},
		{"billing", "n3", 2.5, 0x21f168c0fceeca65, 12519647673, 0.8576454002900118},
		{"ingest/0", "n1", 1, 0x0c9ddb3835aa2b21, 18651950861, 0.23026906557964902},
		{"ingest/1", "n1", 1, 0xd0388fec9a7c799a, 1280023115, 3.355382606508633},
		{"ingest/3", "db-7.example.com", 0.001, 0xde1213c080a9e74b, 881006513, 0.004875068722675834},
		{"a", "é", 1000, 0xe7308e4f6aa65075, 631647372, 6799.628220411562},
	} {
		h := spreadHash(v.group, v.node)
		if got := spreadLog(h); h != v.hash || got != v.log {
			t.Errorf("%s on %s: %016x %d, want %016x %d", v.group, v.node, h, got, v.hash, v.log)
		}
		if got := spreadScore(v.group, v.node, v.weight); got != v.score {
			t.Errorf("%s on %s with %g: %v, want %v", v.group, v.node, v.weight, got, v.score)
		}
	}
}

func TestSpreadLogIsALogarithm(t *testing.T) {
	for h, want := range map[uint64]uint64{0: 64 << 32, 1: 64 << 32, 2: 63 << 32, 1 << 63: 1 << 32, math.MaxUint64: 1} {
		if got := spreadLog(h); got != want {
			t.Errorf("of %d: %d, want %d", h, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		h := rapid.Uint64Min(1).Draw(t, "h") >> rapid.IntRange(0, 63).Draw(t, "shift")
		h = max(h, 1)
		f, _ := new(big.Float).SetUint64(h).Float64()
		want := (64 - math.Log2(f)) * (1 << 32)
		if got := float64(spreadLog(h)); math.Abs(got-want) > 2+want*1e-9 {
			t.Fatalf("of %x: %f, want %f", h, got, want)
		}
		if h > 1 && spreadLog(h-1) < spreadLog(h) {
			t.Fatalf("of %x less than of %x", h-1, h)
		}
	})
}

// world is a set of hosts that are members of all groups.
func world(hosts int, weight func(i int) float64) []cluster.Member {
	var members []cluster.Member
	for i := range hosts {
		members = append(members, member(fmt.Sprintf("host-%d", i), "dc1", 100, int32(i), func(n *cluster.Node) { n.Weight = weight(i) }))
	}
	return members
}

func equal(int) float64 { return 1 }

// elect returns who leads each group if all groups elect, one after the other.
func elect(p *Policy, members []cluster.Member, groups []string) map[string]string {
	leads, load := make(map[string]string), make(map[string]int)
	for _, g := range groups {
		best, ok := p.Rank(Input{Members: members, Group: g, Load: load}).Best()
		if !ok {
			continue
		}
		leads[g] = best.ID
		load[best.ID] = load[best.ID] + 1
	}
	return leads
}

func names(set, groups int) []string {
	var list []string
	prefix := []string{"service-%d-%d", "team%d-app%d", "g%d-%d", "x%d-partition-%04d"}[set%4]
	for i := range groups {
		list = append(list, fmt.Sprintf(prefix, set, i))
	}
	return list
}

func TestWeightsGetTheirShare(t *testing.T) {
	weight := func(i int) float64 { return []float64{0.5, 1, 2, 4}[i] }
	for _, policyType := range []string{"spread", "fewest"} {
		counts := make(map[string]int)
		for _, id := range elect(policyOf(t, cluster.Rules{Type: policyType}), world(4, weight), names(1, 3000)) {
			counts[id]++
		}
		for i := range 4 {
			share := weight(i) / 7.5 * 3000
			if got := float64(counts[fmt.Sprintf("host-%d", i)]); math.Abs(got-share) > 0.12*share+3*math.Sqrt(share) {
				t.Errorf("%s: weight %g leads %g of 3000, want about %.0f", policyType, weight(i), got, share)
			}
		}
	}
}

// The loss of a host moves only what it led; its return moves only that back.
func TestSpreadMovesOnlyWhatTheLostHostLed(t *testing.T) {
	p := policyOf(t, cluster.Rules{Type: "spread"})
	rapid.Check(t, func(t *rapid.T) {
		for range 5 { // 500 worlds
			members := world(rapid.IntRange(2, 12).Draw(t, "hosts"), func(int) float64 { return rapid.SampledFrom([]float64{0, 0.5, 1, 3}).Draw(t, "weight") })
			groups := names(rapid.IntRange(0, 1<<20).Draw(t, "set"), rapid.IntRange(1, 50).Draw(t, "groups"))
			before := elect(p, members, groups)
			lost := rapid.IntRange(0, len(members)-1).Draw(t, "lost")
			left := slices.Delete(slices.Clone(members), lost, lost+1)
			for g, id := range elect(p, left, groups) {
				if was := before[g]; was != members[lost].ID && was != id {
					t.Fatalf("%s moves from %s to %s when %s is lost", g, was, id, members[lost].ID)
				}
			}
		}
	})
}

// A reelection moves a group off a node far above the mean, to one where that helps, and not back and forth.
func TestFewestMovesOnlyInAReelection(t *testing.T) {
	p := policyOf(t, cluster.Rules{Type: "fewest"})
	members := three()
	for _, c := range []struct {
		a, b, c int // what they lead, with the group itself, which a leads
		moves   bool
	}{
		{6, 0, 0, true}, {5, 4, 3, true}, {4, 3, 3, false}, {3, 3, 3, false}, {1, 0, 0, false}, {2, 0, 0, true}, {4, 5, 5, false},
	} {
		load := map[string]int{"a": c.a - 1, "b": c.b, "c": c.c}
		in := Input{Members: members, Group: "billing", Incumbent: members[0].Name, Load: load}
		if best, _ := p.Rank(in).Best(); best.ID != "a" {
			t.Errorf("%+v: preempted by %s", c, best.ID)
		}
		in.Reelect = true
		best, _ := p.Rank(in).Best()
		if (best.ID != "a") != c.moves || best.ID != "a" && load[best.ID]+1 >= c.a {
			t.Errorf("%+v: %s is elected", c, best.ID)
		}
	}
}

// Slots are spread before the policy's own rankers count, and no node gets more than it may have.
func TestSlotsAreSpread(t *testing.T) {
	p := policyOf(t, cluster.Rules{Type: "node-id"})
	in := Input{PerNode: 2, Held: map[string]int{"a": 1, "b": 2}, Members: three()}
	r := p.Rank(in)
	if got := places(r); got != "c a (b)" {
		t.Errorf("order %s", got)
	}
	if got := r.Difference("c", "a"); got != "no other slot against 1 other slot" {
		t.Error(got)
	}
	if b, _ := r.Find("b"); b.RefusalReason() != "it leads 2 of at most 2 slots" || len(b.Refusals) != 1 || b.Scores[1].Words != "2 other slots" {
		t.Errorf("%+v", b)
	}
	// A forced move does not exempt from it; a move comes before the balance.
	in.Move = &cluster.Move{Node: "b", Force: true}
	if b, _ := p.Rank(in).Find("b"); b.Eligible() {
		t.Error("a forced move exceeds per_node")
	}
	in.Move = &cluster.Move{Node: "a"}
	if got := places(p.Rank(in)); got != "a c (b)" {
		t.Errorf("order %s", got)
	}
	in.Move, in.PerNode = nil, 0
	if got := places(p.Rank(in)); got != "a b c" {
		t.Errorf("without slots the order is %s", got)
	}
}
