package elector

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

const epoch = 5

// slot makes the group that of slot 0 of a number of slots.
func (g *group) slot(count, perNode int) *group {
	g.Slot = "0"
	g.Slots = cluster.Stored[cluster.Slots]{Exists: true, Record: cluster.Slots{SlotSize: cluster.SlotSize{Count: count, PerNode: perNode}, Epoch: epoch, By: "ann"}}
	return g
}

// other returns another slot, led by a member.
func other(slot, id string) cluster.SlotState {
	g := newGroup(id).leads(id, 3)
	g.Slot = slot
	return g.SlotState()
}

func (g *group) decide(t *testing.T, others ...cluster.SlotState) Decision {
	t.Helper()
	in := g.input(t)
	in.Others = others
	return New(Options{Exclusion: time.Minute, ExclusionMax: time.Hour, Epoch: epoch}).Decide(in)
}

func elects(t *testing.T, what string, d Decision, want string) {
	t.Helper()
	got := ""
	if d.Elect != nil {
		got = d.Elect.Node
	}
	if got != want {
		t.Errorf("%s: elects %q, want %q (note %q, blocked %q)", what, got, want, d.Note, d.Blocked)
	}
}

func TestElectionsInASlot(t *testing.T) {
	fresh := func() *group { return newGroup("a", "b", "c").slot(3, 2) }
	elects(t, "the best", fresh().decide(t, other("1", "b"), other("2", "b")), "a")
	elects(t, "the fewest slots", fresh().decide(t, other("1", "a"), other("2", "c")), "b")
	d := newGroup("a").slot(3, 2).decide(t, other("1", "a"), other("2", "a"))
	elects(t, "per_node", d, "")
	if !strings.Contains(d.Note, "it leads 2 of at most 2 slots") {
		t.Errorf("note %q", d.Note)
	}
	// A slot whose attempt has ended, or whose elected incarnation is gone, does not count.
	ended := other("1", "a")
	ended.Fence.Record.State = cluster.FenceRevoked
	elects(t, "ended", newGroup("a").slot(3, 1).decide(t, ended, other("2", "gone")), "a")
	// Balance: a difference of one is none, a difference of two is.
	led := newGroup("b", "a").slot(3, 3).leads("b", 7)
	elects(t, "a difference of one", led.decide(t, other("1", "a"), other("2", "b")), "")
	elects(t, "a difference of two", newGroup("a", "b").slot(3, 3).leads("a", 7).decide(t, other("1", "a"), other("2", "a")), "b")
	elects(t, "too many", newGroup("a", "b").slot(2, 1).leads("a", 7).decide(t, other("1", "a")), "b")
}

// Nothing is decided unless the record of slots is that of this epoch and all slots are known.
func TestNoElectionInASlot(t *testing.T) {
	for want, change := range map[string]func(*group) []cluster.SlotState{
		"1 of 2 slots have not been read yet": func(*group) []cluster.SlotState { return nil },
		"epoch 5 has ended": func(g *group) []cluster.SlotState {
			g.Slots.Record.Epoch++
			return []cluster.SlotState{other("1", "b")}
		},
		"the number of slots was deleted": func(g *group) []cluster.SlotState {
			g.Slots = cluster.Stored[cluster.Slots]{}
			return []cluster.SlotState{other("1", "b")}
		},
	} {
		g := newGroup("a", "b").slot(2, 2)
		others := change(g)
		if d := g.decide(t, others...); d.Elect != nil || !strings.Contains(d.Note, want) {
			t.Errorf("%+v, note %q, want %q", d.Elect, d.Note, want)
		}
		g = newGroup("b", "a").slot(2, 2).leads("b", 7) // a is better
		others = change(g)
		if d := g.decide(t, others...); d.Elect != nil || d.Note != "" {
			t.Errorf("%s: replaces the leader: %+v, note %q", want, d.Elect, d.Note)
		}
	}
	newer := other("1", "b")
	newer.Elected = cluster.Stored[cluster.Elected]{Exists: true, Err: &cluster.NewerVersionError{Path: "/c/slots/1/elected", Version: 9}}
	if d := newGroup("a").slot(2, 2).decide(t, newer); d.Elect != nil || !strings.Contains(d.Note, "upgrade this host") {
		t.Errorf("%+v", d)
	}
	// A REVOKE does not depend on the other slots.
	g := newGroup("a", "b").slot(2, 2).elected("a", 8).fence("b", 7, cluster.FenceReady).current("b")
	in := g.input(t)
	in.Revoke = "why"
	if d := New(Options{Epoch: epoch}).Decide(in); d.Revoke == nil {
		t.Errorf("%+v", d)
	}
}

// FINAL leaves the incarnation to the end of the session. Until then nobody elects it in any slot.
func TestAMemberThatIsGoneByFINAL(t *testing.T) {
	for name, change := range map[string]func(f *cluster.Fence){
		"lost":      func(f *cluster.Fence) { f.Lost, f.Reason = true, "its daemon died" },
		"requested": func(f *cluster.Fence) { f.Requested, f.Stopping = true, f.Incarnation },
	} {
		o := other("1", "a")
		o.Fence.Record.State = cluster.FenceReleased
		change(&o.Fence.Record)
		elects(t, name, newGroup("a", "b").slot(2, 2).decide(t, o), "b")
		g := newGroup("a", "b").slot(2, 2).leads("a", 3)
		g.Fence.Record.State = cluster.FenceReleased
		change(&g.Fence.Record)
		d := g.decide(t, other("1", "b"))
		elects(t, name+", its own slot", d, "b")
		if name == "lost" && d.Elect.Cause != cluster.CauseFailure {
			t.Errorf("cause %s", d.Elect.Cause)
		}
	}
}

// The requests of the whole group are written by the elector of slot 0 only, those of a slot by its own.
func TestRequestsOfSlots(t *testing.T) {
	request := func(id int64, slot string) cluster.Request {
		r := by(id, time.Minute)
		r.Slot, r.Remaining = slot, 0
		return r
	}
	g := newGroup("a", "b").slot(2, 2).leads("a", 7).control(cluster.Control{
		Last: 9, Pause: &cluster.Pause{Request: request(1, "")}, Cordons: []cluster.Cordon{{Request: request(2, "1"), Node: "b"}},
		ClearedStrikes: []cluster.ClearedStrikes{{Request: request(3, "1"), Term: 6}},
	})
	d := g.decide(t, other("1", "b"))
	if d.Control == nil {
		t.Fatal("slot 0 does not end the pause")
	}
	if whole := d.Control.Whole(); whole.Pause != nil || len(whole.Cordons) != 1 || len(whole.ClearedStrikes) != 1 || len(whole.Done) != 1 {
		t.Errorf("%+v", whole)
	}
	g.Slot = "1"
	d = g.decide(t, other("0", "b"))
	if d.Control == nil {
		t.Fatal("slot 1 does not end its own requests")
	}
	if whole := d.Control.Whole(); len(whole.Cordons) != 0 || len(whole.ClearedStrikes) != 0 {
		t.Errorf("%+v", whole)
	}
	g.Control.Record.Cordons, g.Control.Record.ClearedStrikes = nil, nil
	if d = g.decide(t, other("0", "b")); d.Control != nil {
		t.Errorf("slot 1 ends the pause of the group: %+v", d.Control)
	}
}
