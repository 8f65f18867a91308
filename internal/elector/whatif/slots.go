package whatif

import (
	"slices"

	"zkelectd/internal/cluster"
)

// maxRounds bounds how often all slots are decided in turn: more than settles a group with all slots on one node.
const maxRounds = 2 * cluster.MaxSlots

// RunSlots answers the questions about all slots of a group, in their order: the slots are decided in turn until none changes, as
// what one slot decides counts for the others.
func RunSlots(questions []Question) []Outcome {
	qs := slices.Clone(questions)
	outcomes := make([]Outcome, len(qs))
	for i := range qs {
		qs[i].Snapshot = qs[i].applyChange()
	}
	for range maxRounds {
		changed := false
		for i := range qs {
			qs[i].Others = others(qs, i)
			steps := outcomes[i].Steps
			outcomes[i], qs[i].Snapshot = settle(qs[i])
			changed = changed || len(outcomes[i].Steps) > 0
			outcomes[i].Steps = append(steps, outcomes[i].Steps...)
		}
		if !changed {
			break
		}
	}
	return outcomes
}

// others returns the state of all slots but the i-th.
func others(qs []Question, i int) []cluster.SlotState {
	all := make([]cluster.SlotState, 0, len(qs))
	for j := range qs {
		if j != i {
			all = append(all, qs[j].Snapshot.SlotState())
		}
	}
	return all
}
