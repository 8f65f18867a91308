package operator

import (
	"context"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/policy"
)

// Without its name, a group would be ranked by spread in another order than its elector uses.
func TestQuestionsKnowTheirGroupAndOthers(t *testing.T) {
	p, err := policy.New(cluster.Policy{Rules: cluster.Rules{Rank: []string{"with:billing", "spread"}}})
	if err != nil {
		t.Fatal(err)
	}
	n := Neighbors{Group: "ingest/1", Others: func(_ context.Context, r policy.Relations) elector.Placement {
		return elector.Placement{Peers: map[string]string{r.Peers()[0]: "n2"}}
	}}
	slot := whatif.Question{Policy: p, Snapshot: cluster.Snapshot{Slot: "3"}}
	q := whatif.Question{Policy: p, Slots: []whatif.Question{slot}}
	n.place(t.Context(), &q)
	if q.Options.Group != "ingest" || q.Slots[0].Options.Group != "ingest/3" || q.Slots[0].Placement.Peers["billing"] != "n2" || q.Placement.Peers["billing"] != "n2" {
		t.Errorf("%+v", q)
	}
	Neighbors{}.place(t.Context(), &slot)
}
