package group

import (
	"log/slog"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// A policy that differs does not hide slots that differ.
func TestDriftOfPolicyAndSlots(t *testing.T) {
	stored := func(c cluster.Slots) cluster.Stored[cluster.Slots] {
		return cluster.Stored[cluster.Slots]{Exists: true, Record: c}
	}
	var log strings.Builder
	g := &Group{log: slog.New(slog.NewTextHandler(&log, nil)), opt: Options{Placement: noPlacement{}, Resource: "ingest"}}
	g.drift.Store(new(drift))
	g.settings.Slots = cluster.SlotSize{Count: 2, PerNode: 1}
	other := cluster.Stored[cluster.Policy]{Exists: true, Record: cluster.Policy{Revision: 7, Rules: cluster.Rules{Type: "fewest"}}}
	same := cluster.Stored[cluster.Policy]{Exists: true, Record: cluster.Policy{Rules: g.settings.Rules}}
	three := cluster.Slots{SlotSize: cluster.SlotSize{Count: 3, PerNode: 1}}

	g.checkDrift(other, stored(three))
	if seen := g.driftSeen(); !strings.Contains(seen.policy, "revision 7") || !strings.Contains(seen.slots, "3 slots") {
		t.Errorf("both differ: %+v", seen)
	}
	if !strings.Contains(log.String(), "policy --apply --dry-run --config /etc/zkelectd.yaml -g ingest'") {
		t.Errorf("the hint does not name the group: %s", &log)
	}
	g.checkDrift(same, stored(cluster.Slots{SlotSize: g.settings.Slots}))
	if seen := g.driftSeen(); seen != (drift{}) {
		t.Errorf("nothing differs: %+v", seen)
	}
}
