package cluster

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestNodesInNaturalOrder(t *testing.T) {
	sorted := []string{"", "0", "1", "2", "10", "a", "db-2.eu", "db-10.eu", "n", "n0", "n01", "n1", "n1-a", "n2", "n10", "n10a2", "n10a10", "n99999999999999999999", "n100000000000000000000", "na", "é"}
	shuffled := slices.Clone(sorted)
	slices.Reverse(shuffled)
	if slices.SortFunc(shuffled, CompareNodes); !slices.Equal(shuffled, sorted) {
		t.Errorf("%q", shuffled)
	}
}

// It is a total order: antisymmetric, transitive, and only equal ids are equal.
func TestNodeOrderIsTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[0129an.\-é]{0,6}`)
		a, b, c := id.Draw(t, "a"), id.Draw(t, "b"), id.Draw(t, "c")
		ab, bc, ac := cmp.Compare(CompareNodes(a, b), 0), cmp.Compare(CompareNodes(b, c), 0), cmp.Compare(CompareNodes(a, c), 0)
		if ba := cmp.Compare(CompareNodes(b, a), 0); ba != -ab || (ab == 0) != (a == b) {
			t.Fatalf("%q and %q: %d, %d", a, b, ab, ba)
		}
		if ab <= 0 && bc <= 0 && ac > 0 {
			t.Fatalf("%q <= %q <= %q, but not %q <= %q", a, b, c, a, c)
		}
	})
}
