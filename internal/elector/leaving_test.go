package elector

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// leaver is a scenario in which a leads and has announced that it is about to end.
func leaver(t *testing.T, ids ...string) *scenario {
	t.Helper()
	h := newGroup(ids...).leads("a", 7).scenario(t, cluster.Rules{Type: "priority"})
	h.leader("a", "")
	h.group().node("a").Leaving = "asked to stop"
	return h
}

func TestALeaverIsReplacedWhileItWorks(t *testing.T) {
	h := leaver(t, "a", "b", "c")
	d := h.decide()
	if d.NoSuccessor || d.Elect == nil {
		t.Fatalf("%+v", d)
	}
	const reason = "a is no longer eligible: it is leaving: asked to stop"
	if rec := d.Elect; rec.Node != "b" || rec.Cause != cluster.CauseStopped || rec.Reason != reason || len(rec.Preemptions) != 0 {
		t.Errorf("%+v", rec)
	}
	h.leader("b", cluster.CauseStopped)
	h.group().node("a").Priority = 1000
	h.leader("b", "") // whatever its rank
}

func TestOnlyALeaverNeedsASuccessor(t *testing.T) {
	h := newGroup("a", "b").leads("a", 7).scenario(t)
	h.group().node("b").Leaving = "asked to stop"
	if d := h.decide(); d.NoSuccessor || d.Elect != nil {
		t.Errorf("%+v", d)
	}
}

// The member that left as announced is no loss: preemptions need not wait.
func TestALeaverIsNotLost(t *testing.T) {
	h := mover(t)
	h.in.Snapshot.Members = append(h.in.Snapshot.Members, newGroup("x", "y", "c").Members[2])
	h.group().node("c").Leaving = "asked to stop"
	h.decide()
	h.remove("c")
	h.in.Now += jitter("billing", 7, time.Minute)
	if d := h.decide(); strings.Contains(d.Blocked.Reason, "vanished") {
		t.Errorf("blocked: %s", d.Blocked)
	}
}
