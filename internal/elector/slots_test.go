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

// Nothing is decided unless the group is open and all slots are known.
func TestNoElectionInASlot(t *testing.T) {
	for want, change := range map[string]func(*group) []cluster.SlotState{
		"1 of 2 slots have not been read yet": func(*group) []cluster.SlotState { return nil },
		"resize to 3 slots requested by ann": func(g *group) []cluster.SlotState {
			g.Slots.Record.Next = &cluster.SlotSize{Count: 3, PerNode: 3}
			return []cluster.SlotState{other("1", "b")}
		},
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
		"requested": func(f *cluster.Fence) { f.Requested = true },
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

// A daemon has read control as its slot sees it. The elector carries out the slot's requests, and keeps those of the others.
func TestRequestsAsASlotSeesThem(t *testing.T) {
	reelect, pause := by(1, 0), by(3, time.Minute)
	reelect.Slot, pause.Remaining = "0", 0
	move := cluster.Move{Request: by(2, 0), Node: "a"}
	move.Slot = "1"
	g := newGroup("a", "b").slot(2, 2).leads("a", 7).control(cluster.Control{
		Last: 3, Reelections: []cluster.Request{reelect}, Moves: []cluster.Move{move}, Pause: &cluster.Pause{Request: pause},
	})
	g.Control.Record = g.Control.Record.OfSlot("0")
	d := g.decide(t, other("1", "b"))
	if d.Control == nil {
		t.Fatal("nothing is written")
	}
	if whole := d.Control.Whole(); len(whole.Reelections) != 0 || len(whole.Moves) != 1 || len(whole.Done) != 2 {
		t.Errorf("%+v", whole)
	}
}

// resizing drives a resize of 2 slots.
type resizing struct {
	t *testing.T
	r *Resizer
	g *group
	*ResizeInput
}

func newResizing(t *testing.T, next cluster.SlotSize) *resizing {
	g := newGroup("a", "b").slot(2, 2)
	r := NewResizer(g.Slots.Record)
	g.Slots.Record.Next = &next
	in := &ResizeInput{Paths: cluster.Paths{Root: "/c"}, Snapshot: g.Snapshot, LeaseWait: 4 * time.Second, Now: time.Hour, Wall: wall}
	in.Table = []cluster.SlotState{other("0", "a"), other("1", "b")}
	for i := range in.Table {
		in.Table[i].Fence.Record.RevokeTimeout = cluster.Duration(10 * time.Second)
	}
	return &resizing{t, r, g, in}
}

// change changes a slot, as a write does.
func (r *resizing) change(slot int, state cluster.FenceState, current bool) {
	s := &r.Table[slot]
	s.Fence.Record.State, s.Current.Exists = state, current
	s.Fence.Stat.Version++
}

func (r *resizing) next(step ResizeStep, slot, note string) ResizeDecision {
	r.t.Helper()
	d := r.r.Resize(*r.ResizeInput)
	if d.Step != step || d.Slot != slot || !strings.Contains(d.Note, note) || (step == ResizeNone) != (len(d.Ops) == 0) {
		r.t.Fatalf("step %q of slot %q, note %q; want %q of %q, note %q", d.Step, d.Slot, d.Note, step, slot, note)
	}
	if d.Wake != 0 && d.Wake <= r.Now {
		r.t.Fatalf("wakes at %s, it is %s", d.Wake, r.Now)
	}
	return d
}

func TestAResizeAfterCleanReleases(t *testing.T) {
	r := newResizing(t, cluster.SlotSize{Count: 1, PerNode: 1})
	r.next(ResizeNone, "", "slot 1 has a leader that is stopping")
	r.change(0, cluster.FenceReleased, false)
	r.next(ResizeNone, "", "slot 1 has a leader")
	r.change(1, cluster.FenceReleased, false)
	d := r.next(ResizeCommit, "", "")
	rec := cluster.ReadSlots("/c/slots", d.Ops[len(d.Ops)-1].Data, cluster.Stat{}, true).Record
	if rec.Epoch != epoch+1 || rec.Count != 1 || rec.PerNode != 1 || rec.Next != nil {
		t.Errorf("%+v", rec)
	}
	r.Snapshot.Slots.Record = rec
	r.next(ResizeNone, "", "")
}

// A holder that does not release is revoked, and its successors in any slot wait for its lease.
func TestAResizeRevokesAHolder(t *testing.T) {
	r := newResizing(t, cluster.SlotSize{Count: 2, PerNode: 1})
	r.change(0, cluster.FenceReleased, false)
	if d := r.next(ResizeNone, "", "slot 1"); d.Wake != time.Hour+10*time.Second {
		t.Errorf("wakes at %s", d.Wake)
	}
	r.Now += 10 * time.Second
	d := r.next(ResizeRevoke, "1", "did not release leadership within 10s")
	f := cluster.ReadFence("", d.Ops[2].Data, cluster.Stat{}, true).Record
	if f.State != cluster.FenceRevoked || f.Requested || d.Ops[3].Kind != cluster.OpDelete {
		t.Errorf("%+v %+v", f, d.Ops)
	}
	r.change(1, cluster.FenceRevoked, false)
	if d := r.next(ResizeNone, "", "waiting 4s"); d.Wake != r.Now+4*time.Second {
		t.Errorf("wakes at %s", d.Wake)
	}
	r.Now += 4*time.Second - 1
	r.next(ResizeNone, "", "waiting 4s")
	r.Now++
	r.next(ResizeCommit, "", "")
	// A new elector measures it again.
	r.r = NewResizer(r.Snapshot.Slots.Record)
	r.next(ResizeNone, "", "waiting 4s")
}

// A fence without current is revoked: its holder may still be alive.
func TestAResizeRevokesAFenceWithoutCurrent(t *testing.T) {
	r := newResizing(t, cluster.SlotSize{Count: 3, PerNode: 1})
	r.Table = append(r.Table, cluster.SlotState{Slot: "2"})
	r.Table[1].Fence.Record.LeaseWait = cluster.Duration(6 * time.Second) // longer than the elector's own
	r.change(0, cluster.FenceReleased, false)
	r.change(1, cluster.FenceHeld, false)
	d := r.next(ResizeRevoke, "1", "before the group was resized")
	if f := cluster.ReadFence("", d.Ops[2].Data, cluster.Stat{}, true).Record; len(d.Ops) != 3 || f.State != cluster.FenceRevoked || !f.Requested {
		t.Errorf("%+v %+v", f, d.Ops)
	}
	g := newGroup("b", "a").elected("b", 3).fence("b", 3, cluster.FenceRevoked)
	g.Fence.Record.Requested = true
	if end := checkAttempt(g.input(t), 3); !end.ended || end.strike {
		t.Errorf("a strike for it: %+v", end)
	}
	r.change(1, cluster.FenceRevoked, false)
	r.next(ResizeNone, "", "waiting 6s")
	r.Now += 6 * time.Second
	r.next(ResizeCommit, "", "")
}

// Absent, damaged and unclean fences prove nothing.
func TestAResizeWaitsForWhatIsNotClean(t *testing.T) {
	for name, change := range map[string]func(s *cluster.SlotState){
		"absent":  func(s *cluster.SlotState) { s.Fence = cluster.Stored[cluster.Fence]{} },
		"damaged": func(s *cluster.SlotState) { s.Fence.Err, s.Fence.Record = cluster.ErrNeverWritten, cluster.Fence{} },
		"unclean": func(s *cluster.SlotState) { s.Fence.Record.State = cluster.FenceUnclean },
		"revoked": func(s *cluster.SlotState) { s.Fence.Record.State = cluster.FenceRevoked },
	} {
		r := newResizing(t, cluster.SlotSize{Count: 2, PerNode: 1})
		r.change(0, cluster.FenceReleased, false)
		r.change(1, cluster.FenceReleased, false)
		change(&r.Table[1])
		if d := r.next(ResizeNone, "", "waiting 4s"); d.Wake != r.Now+4*time.Second {
			t.Errorf("%s: wakes at %s", name, d.Wake)
		}
		r.Now += time.Second
		r.Table[1].Fence.Stat.Version++ // something has happened
		if d := r.next(ResizeNone, "", "waiting 4s"); d.Wake != r.Now+4*time.Second {
			t.Errorf("%s: wakes at %s", name, d.Wake)
		}
		r.Now += 4 * time.Second
		r.next(ResizeCommit, "", "")
	}
	// A damaged fence with a current is revoked as well.
	r := newResizing(t, cluster.SlotSize{Count: 2, PerNode: 1})
	r.change(0, cluster.FenceReleased, false)
	r.Table[1].Fence.Err, r.Table[1].Fence.Record = cluster.ErrNoNode, cluster.Fence{}
	r.next(ResizeNone, "", "slot 1")
	r.Now += 8 * time.Second
	d := r.next(ResizeRevoke, "1", "")
	if f := cluster.ReadFence("", d.Ops[2].Data, cluster.Stat{Time: wall}, true); f.Record.State != cluster.FenceRevoked || f.Record.Term != wall.Unix()+3 {
		t.Errorf("%+v", f)
	}
}

// Nothing is done while something is unknown, or by who is not the elector of this epoch.
func TestAResizeThatCannotGoOn(t *testing.T) {
	r := newResizing(t, cluster.SlotSize{Count: 3, PerNode: 1})
	r.next(ResizeNone, "", "not all slots have been read yet")
	r.Table = append(r.Table, cluster.SlotState{Slot: "7"})
	r.next(ResizeNone, "", "not all slots have been read yet")
	r.Table[2] = cluster.SlotState{Slot: "2", Fence: cluster.Stored[cluster.Fence]{Exists: true, Err: &cluster.NewerVersionError{Version: 9}}}
	r.next(ResizeNone, "", "upgrade this host")
	r.Table[2] = cluster.SlotState{Slot: "2"}
	r.change(0, cluster.FenceReleased, false)
	r.change(1, cluster.FenceReleased, false)
	for name, change := range map[string]func(s *cluster.Snapshot){
		"not the elector": func(s *cluster.Snapshot) { s.Elector = false },
		"another epoch":   func(s *cluster.Snapshot) { s.Slots.Record.Epoch++ },
		"open":            func(s *cluster.Snapshot) { s.Slots.Record.Next = nil },
		"newer":           func(s *cluster.Snapshot) { s.Slots.Err = &cluster.NewerVersionError{Version: 9} },
	} {
		in := *r.ResizeInput
		change(&in.Snapshot)
		if d := r.r.Resize(in); d.Step != ResizeNone || d.Note != "" {
			t.Errorf("%s: %+v", name, d)
		}
	}
	r.next(ResizeCommit, "", "")
}

// A record that was deleted or damaged is written again, closed: nobody could acquire without it (L1).
func TestARecordOfSlotsIsRepaired(t *testing.T) {
	r := newResizing(t, cluster.SlotSize{Count: 2, PerNode: 1})
	r.Snapshot.Slots = cluster.Stored[cluster.Slots]{}
	d := r.next(ResizeClose, "", "the znode was deleted")
	rec := cluster.ReadSlots("/c/slots", d.Ops[len(d.Ops)-1].Data, cluster.Stat{}, true).Record
	if write := d.Ops[1]; write.Kind != cluster.OpCreate || rec.Epoch <= epoch+1 || rec.Count != 2 || rec.Next == nil || rec.Next.PerNode != 2 {
		t.Errorf("%+v %+v", d.Ops, rec)
	}
	r.Snapshot.Slots = cluster.ReadSlots("/c/slots", []byte("garbage"), cluster.Stat{Version: 4}, true)
	if d := r.next(ResizeClose, "", "not a zkelectd record"); d.Ops[1].Kind != cluster.OpSet || d.Ops[1].Version != 4 {
		t.Errorf("%+v", d.Ops)
	}
	r.r = NewResizer(cluster.Slots{})
	r.next(ResizeNone, "", "is not known")
}

// This instance may have missed a COMMIT before the record was damaged: there may be instances of the next epoch, with more slots
// than this one knows (S1).
func TestARecordIsRepairedByAnOlderEpoch(t *testing.T) {
	for _, at := range []time.Time{wall, {}} { // or the clock is wrong
		r := newResizing(t, cluster.SlotSize{Count: 2, PerNode: 1})
		known := r.Snapshot.Slots.Record
		r.Snapshot.Slots = cluster.Stored[cluster.Slots]{}
		r.Wall, r.Table = at, append(r.Table, other("2", "a"), other("3", "b"))
		r.Table[3].Fence.Record.RevokeTimeout = cluster.Duration(10 * time.Second)
		r.change(2, cluster.FenceReleased, false)
		d := r.next(ResizeClose, "", "the znode was deleted")
		repaired := cluster.ReadSlots("/c/slots", d.Ops[len(d.Ops)-1].Data, cluster.Stat{Time: wall}, true)
		if missed := known.Committed(at); !repaired.Readable() || repaired.Record.Epoch <= missed.Epoch || repaired.Record.Count != 4 {
			t.Fatalf("%+v", repaired)
		}
		r.Snapshot.Slots = repaired
		r.next(ResizeNone, "", "") // this instance ends
		r.r = NewResizer(repaired.Record)
		r.next(ResizeNone, "", "slot 3 has a leader")
		for i := range r.Table {
			r.change(i, cluster.FenceReleased, false)
		}
		d = r.next(ResizeCommit, "", "")
		if rec := cluster.ReadSlots("/c/slots", d.Ops[len(d.Ops)-1].Data, cluster.Stat{Time: wall}, true).Record; rec.Epoch != repaired.Record.Epoch+1 || rec.Count != 2 {
			t.Errorf("%+v", rec)
		}
	}
}
