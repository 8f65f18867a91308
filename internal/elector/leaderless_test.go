package elector

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// The time since when there is no READY leader outlives takeovers that fail, and begins anew after a leader.
func TestFailedTakeoversKeepTheTimeWithoutALeader(t *testing.T) {
	h := newGroup("a", "b").scenario(t)
	h.in.Wall = time.Unix(1000, 0)
	h.write(h.decide())
	first := h.terms[0]
	if !first.LeaderlessSince.Equal(h.in.Wall) {
		t.Fatalf("without a leader since %s", first.LeaderlessSince)
	}
	h.in.Wall, h.in.Overdue = time.Unix(1090, 0), "it was not ready in time"
	h.write(h.decide())
	if n := len(h.terms); n != 2 || !h.terms[1].LeaderlessSince.Equal(first.LeaderlessSince) {
		t.Fatalf("after a failed takeover: %+v", h.terms[n-1])
	}
	h.lead()
	h.control(cluster.Control{Move: &cluster.Move{Node: first.Node, Request: cluster.Request{ID: 1, By: "ann@host"}}})
	if h.write(h.decide()); len(h.terms) == 3 && !h.terms[2].LeaderlessSince.IsZero() {
		t.Errorf("while a leader is READY: %s", h.terms[2].LeaderlessSince)
	}
}
