package policy

import (
	"testing"

	"zkelectd/internal/cluster"
)

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
