package daemon

import (
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
)

// Prometheus sees no increase of a counter that begins with 1.
func TestEveryTransitionIsCountedFromZero(t *testing.T) {
	tally := newTally()
	kind := status.Transition{Cause: "failure", Result: "ready"}
	if n, ok := tally.totals.Transitions[kind]; n != 0 || !ok || len(tally.totals.Transitions) != 2*len(cluster.Causes) {
		t.Fatalf("at the start: %v", tally.totals.Transitions)
	}
	tally.transition(cluster.PastTerm{Cause: cluster.CauseFailure, Outcome: string(cluster.CurrentReady)})
	if n := tally.totals.Transitions[kind]; n != 1 || len(tally.totals.Transitions) != 2*len(cluster.Causes) {
		t.Errorf("after one: %v", tally.totals.Transitions)
	}
}
