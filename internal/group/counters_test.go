package group

import (
	"fmt"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// Prometheus does not see an increase if a counter starts at 1.
func TestEveryTransitionIsCountedFromZero(t *testing.T) {
	counters := NewCounters(nil)
	kind, kinds := status.Transition{Cause: "failure", Result: "ready"}, 2*(len(cluster.Causes)+1)
	if n, ok := counters.totals.Transitions[kind]; n != 0 || !ok || len(counters.totals.Transitions) != kinds {
		t.Fatalf("at the start: %v", counters.totals.Transitions)
	}
	counters.term(cluster.PastTerm{Cause: cluster.CauseFailure, Outcome: string(cluster.CurrentReady)})
	if n := counters.totals.Transitions[kind]; n != 1 || len(counters.totals.Transitions) != kinds {
		t.Errorf("after one: %v", counters.totals.Transitions)
	}
	for i := range 1000 { // forged
		counters.term(cluster.PastTerm{Cause: cluster.Cause(fmt.Sprint("cause ", i))})
	}
	other := status.Transition{Cause: status.CauseOther, Result: status.ResultFailed}
	if n := counters.totals.Transitions[other]; n != 1000 || len(counters.totals.Transitions) != kinds {
		t.Errorf("%d of other causes, %d kinds", n, len(counters.totals.Transitions))
	}
}
