package operator

import (
	"context"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/policy"
)

// Neighbors says which group questions are about, and what is known of other groups. The zero value is a group without a name, of
// which nothing else is known.
type Neighbors struct {
	// Group is the name of the group, or of a slot.
	Group string
	// Others returns what elections take into account of other groups, see [elector.Placement]; nil for nothing.
	Others func(context.Context, policy.Relations) elector.Placement
}

// place completes a question.
func (n Neighbors) place(ctx context.Context, q *whatif.Question) {
	var p elector.Placement
	if n.Others != nil {
		p = n.Others(ctx, policy.RelationsOf(q.Policy.Rules))
	}
	set := func(q *whatif.Question) {
		q.Placement, q.Options.Group = p, cluster.SlotName(cluster.GroupOf(n.Group), q.Snapshot.Slot)
	}
	set(q)
	for i := range q.Slots {
		set(&q.Slots[i])
	}
}
