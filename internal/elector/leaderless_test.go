package elector

import (
	"reflect"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// A decision, and the end of a leadership by the elector, say how long no leader's work has run.
func TestDecisionsSayHowLongNoLeaderWorked(t *testing.T) {
	h := newGroup("a", "b").scenario(t)
	h.in.Leaderless = cluster.AtMost(3 * time.Second)
	h.write(h.decide())
	if got := h.terms[0].Leaderless; !reflect.DeepEqual(got, h.in.Leaderless) {
		t.Errorf("elected after %+v", got)
	}
	h.lead()
	h.in.Leaderless = nil
	h.control(cluster.Control{Move: &cluster.Move{Node: h.terms[0].Node, Request: cluster.Request{ID: 1, By: "ann@host"}}})
	if h.write(h.decide()); len(h.terms) == 2 && h.terms[1].Leaderless != nil {
		t.Errorf("while a leader is READY: %+v", h.terms[1].Leaderless)
	}
}
