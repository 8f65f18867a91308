package daemon

import (
	"fmt"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
)

// Prometheus sees no increase of a counter that begins with 1.
func TestEveryTransitionIsCountedFromZero(t *testing.T) {
	tally := newTally()
	kind, kinds := status.Transition{Cause: "failure", Result: "ready"}, 2*(len(cluster.Causes)+1)
	if n, ok := tally.totals.Transitions[kind]; n != 0 || !ok || len(tally.totals.Transitions) != kinds {
		t.Fatalf("at the start: %v", tally.totals.Transitions)
	}
	tally.transition(cluster.PastTerm{Cause: cluster.CauseFailure, Outcome: string(cluster.CurrentReady)})
	if n := tally.totals.Transitions[kind]; n != 1 || len(tally.totals.Transitions) != kinds {
		t.Errorf("after one: %v", tally.totals.Transitions)
	}
	for i := range 1000 { // as somebody forges them
		tally.transition(cluster.PastTerm{Cause: cluster.Cause(fmt.Sprint("cause ", i))})
	}
	other := status.Transition{Cause: status.CauseOther, Result: status.ResultFailed}
	if n := tally.totals.Transitions[other]; n != 1000 || len(tally.totals.Transitions) != kinds {
		t.Errorf("%d of other causes, %d kinds", n, len(tally.totals.Transitions))
	}
}
