package request

import (
	"slices"
	"strings"
	"testing"
)

func unhealthy(h *testGroup, ids ...string) *testGroup {
	for _, id := range ids {
		h.node(id).Unhealthy = "no disk"
	}
	return h
}

func TestRequestsWithoutALeader(t *testing.T) {
	plan, err := group(t).planFor(move(bob(), "", "dc2"))
	if err != nil || !slices.Equal(plan.Messages, []string{"there is no leader; b1 takes over and stays first"}) {
		t.Errorf("move: %v, %q", err, plan.Messages)
	}
	plan, err = group(t).planFor(cordon(bob(), "", "dc1", false))
	if err != nil || !slices.Equal(plan.Messages, []string{"site dc1 will not be elected"}) {
		t.Errorf("cordon: %v, %q", err, plan.Messages)
	}
	plan, err = unhealthy(group(t), "a1", "a2", "b1", "b2").planFor(cordon(bob(), "", "dc1", true))
	if err != nil || !slices.Equal(plan.Messages, []string{"site dc1 will not be elected; leadership does not move"}) {
		t.Errorf("drain: %v, %q", err, plan.Messages)
	}
}

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
