package policy

import (
	"fmt"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// If no member is eligible, the reasons of the first five are listed, and how many more there are.
func TestRefusals(t *testing.T) {
	for n, want := range map[int]string{
		0: "no member is registered",
		1: "m0: it is ineligible",
		5: "m4: it is ineligible",
		6: "; and 1 more",
		7: "; and 2 more",
	} {
		var r Ranking
		for i := range n {
			r.Entries = append(r.Entries, Entry{
				Member:   &cluster.Member{Incarnation: cluster.Incarnation{ID: fmt.Sprintf("m%d", i)}},
				Refusals: []Refusal{{Reason: "it is ineligible"}},
			})
		}
		got := r.Refusals()
		if !strings.HasSuffix(got, want) || strings.Count(got, ": ") != min(n, 5) || strings.Contains(got, "more") != (n > 5) {
			t.Errorf("%d: %q", n, got)
		}
	}
}
