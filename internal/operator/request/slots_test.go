package request

import (
	"strings"
	"testing"

	"zkelectd/internal/elector/whatif"
)

// Requests about one leader need a slot in a group with slots, and those about a whole group refuse one.
func TestScopeOfRequests(t *testing.T) {
	for _, kind := range Kinds() {
		r := Request{Kind: kind, Options: bob()}
		if kind.Takes(FieldNode) {
			r.Node = "a1"
		}
		whole := group(t).leads("a1").q
		whole.Slots = []whatif.Question{}
		slot := group(t).leads("a1").q
		slot.Snapshot.Slot = "3"
		_, err := r.Plan(whole)
		if refused := err != nil && strings.Contains(err.Error(), "needs a slot"); refused != kind.OfSlot() {
			t.Errorf("%s for a whole group: %v", kind, err)
		}
		_, err = r.Plan(slot)
		if refused := err != nil && strings.Contains(err.Error(), "is for the whole group, not for slot 3"); refused == kind.OfSlot() {
			t.Errorf("%s for a slot: %v", kind, err)
		}
	}
}
