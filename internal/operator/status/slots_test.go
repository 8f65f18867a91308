package status

import (
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// slotsOf returns what the slots of a group share, and a snapshot for each: slot 0 is led by a, slot 1 has no leader, and in slot 2
// the member b takes over.
func slotsOf() (shared cluster.Snapshot, all []cluster.Snapshot) {
	record := cluster.Stored[cluster.Slots]{Exists: true, Record: cluster.Slots{SlotSize: cluster.SlotSize{Count: 3, PerNode: 2}, Epoch: 4}}
	shared = cluster.Snapshot{Members: snapshot().Members, Slots: record}
	first, none, third := ready(snapshot()), shared, ready(snapshot())
	for i := range first.Elected.Record.Exclusions {
		first.Elected.Record.Exclusions[i].Expired = true
	}
	third.Elected.Record.Exclusions = nil
	third.Elected.Record.Node, third.Elected.Record.Incarnation = "b", "b-1"
	third.Current.Record.Node, third.Current.Record.Incarnation, third.Current.Record.State = "b", "b-1", cluster.CurrentProgress
	third.Fence.Record.Node, third.Fence.Record.Incarnation, third.Fence.Record.State = "b", "b-1", cluster.FenceHeld
	all = []cluster.Snapshot{first, none, third}
	for i := range all {
		all[i].Slots, all[i].Slot = record, string(rune('0'+i))
	}
	return shared, all
}

func TestOfSlots(t *testing.T) {
	shared, all := slotsOf()
	g := OfSlots("c", "/own/x", shared, all)
	if g.Root != "/own/x" || g.Count != 3 || g.PerNode != 2 || g.Epoch != 4 || len(g.Slots) != 3 || len(g.Members) != 2 {
		t.Fatalf("%+v", g)
	}
	for i, want := range []struct{ state, leader string }{{"READY", "a"}, {StateNone, ""}, {"PROGRESS", "b"}} {
		if s := g.Slots[i]; s.State != want.state || s.Leader != want.leader {
			t.Errorf("slot %d: %+v", i, s)
		}
	}
	for _, m := range g.Members {
		want, role := []string{"0"}, "leader"
		if m.Node == "b" {
			want, role = []string{"2"}, "candidate"
		}
		if !slices.Equal(m.Leads, want) || !slices.Contains(m.Roles, role) || m.Spare {
			t.Errorf("%+v", m)
		}
	}
	for _, text := range []string{"1 of 3 have a READY leader; epoch 4", "Spares   none: every member that can lead leads a slot", "b (taking over)", "elector, candidate  1 of 2  2 "} {
		if !strings.Contains(g.Table(), text) {
			t.Errorf("no %q in\n%s", text, g.Table())
		}
	}
}

func TestSpare(t *testing.T) {
	shared, all := slotsOf()
	all[2] = all[1] // b leads nothing
	all[2].Slot = "2"
	if g := OfSlots("c", "/own/x", shared, all); !slices.Equal(g.Spares(), []string{"b"}) || !strings.Contains(g.Table(), "Spares   b\n") {
		t.Errorf("%q\n%s", g.Spares(), g.Table())
	}
	all[0].Elected.Record.Exclusions = []cluster.Exclusion{{Node: "b", Strikes: 2, Reason: "stalled"}}
	g := OfSlots("c", "/own/x", shared, all)
	if len(g.Spares()) != 0 || !strings.Contains(g.Table(), "Excluded b in slot 0, strike 2") || !strings.Contains(g.Table(), "('zkelectd clear-strikes b -g c' clears it)") {
		t.Errorf("a member that is excluded in a slot is a spare, or the hint does not name the whole group: %q\n%s", g.Spares(), g.Table())
	}
}

// An unreadable record of slots is a problem that names the znode.
func TestDamagedRecordOfSlotsIsShown(t *testing.T) {
	shared, _ := slotsOf()
	for data, want := range map[string]string{
		`{"v":1,`:  "znode /c/slots is not a zkelectd record: unexpected end of JSON input: the elector writes it again; if no daemon runs, start one",
		`{"v":99}`: "znode /c/slots has format version 99, this zkelectd reads up to 1: upgrade this host: until then no slot gets another leader; leaders keep working",
	} {
		shared.Slots = cluster.ReadSlots("/c/slots", []byte(data), cluster.Stat{Version: 3}, true)
		g := OfSlots("c", "/own/x", shared, nil) // without a record nobody knows the slots
		table := g.Table()
		if !slices.Contains(g.Problems, want) || len(g.Spares()) > 0 || !strings.Contains(table, "Slots    not known, see Problem\n") || strings.Contains(table, "no slots yet") {
			t.Errorf("%q\n%s", g.Problems, table)
		}
	}
}
