package request

import (
	"strings"
	"testing"
)

// Every refusal has a reason.
func TestMoveDuringAReelection(t *testing.T) {
	h := group(t).leads("b1")
	o := ann(1)
	h.control().Reelect, h.control().Last = &o, 1
	plan, err := h.planFor(move(bob(), "b2", ""))
	if err != nil && strings.HasSuffix(err.Error(), ": ") {
		t.Errorf("refused without a reason: %v", err)
	}
	if err == nil && h.after(plan).Leader.ID != "b2" {
		t.Errorf("planned, but %q leads", h.after(plan).Leader.ID)
	}
}
