package cli

import (
	"strings"
	"testing"

	"zkelectd/internal/elector/whatif"
)

// A group with slots is skipped, and that is said.
func TestRebalanceSkipsGroupsWithSlots(t *testing.T) {
	c := &groupChange{Group: "ingest"}
	var out strings.Builder
	r := rollout{out: &out, changes: []*groupChange{c, {Group: "other", Error: "it cannot be read"}}}
	r.planReelections([]whatif.Question{{Slots: []whatif.Question{}}, {}})
	if err := r.showBalance(); err != nil {
		t.Fatal(err)
	}
	want := "ingest: skipped, because it has slots: to move the first one, run 'zkelectd reelect -g ingest/0'"
	if got := out.String(); !c.NotAffected || !strings.Contains(got, want) || strings.Contains(got, "other") {
		t.Errorf("%+v\n%s", c, got)
	}
}
