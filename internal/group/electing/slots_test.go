package electing

import (
	"slices"
	"testing"

	"zkelectd/internal/cluster"
)

// woken are the members of slots that were woken.
type woken []int

func newSlots(members int) (*Slots, *woken) {
	w := new(woken)
	return NewSlots(members, func(n int) { *w = append(*w, n) }), w
}

// expect reports an error unless these were woken since the last call.
func (w *woken) expect(t *testing.T, want ...int) {
	t.Helper()
	if !slices.Equal(*w, want) {
		t.Errorf("woken: %v, want %v", *w, want)
	}
	*w = nil
}

// One member writes as the elector at a time. Those that wait are woken.
func TestOneMemberWritesAtATime(t *testing.T) {
	slots, woken := newSlots(3)
	if !slots.Begin(0) {
		t.Error("none may write")
	}
	if !slots.Begin(0) || slots.Begin(1) {
		t.Error("not only the first may write")
	}
	slots.End(1)
	woken.expect(t)
	slots.End(0)
	woken.expect(t, 1)
	if !slots.Begin(2) {
		t.Error("the next one must wait")
	}
	slots.End(2)
	woken.expect(t, 1)
	if !slots.Begin(1) {
		t.Error("the one that has waited must wait again")
	}
	slots.End(1)
	woken.expect(t)
}

// What one member reads of its slot as the elector wakes the others, if it is new.
func TestWhatIsKnownOfOtherSlots(t *testing.T) {
	slots, woken := newSlots(2)
	snap := cluster.Snapshot{Slot: "1", Elector: true, HolderRead: true}
	slots.Update(1, &snap)
	woken.expect(t, 0)
	if o := slots.others(0); len(o) != 1 || o[0].Slot != "1" || len(slots.others(1)) != 0 {
		t.Errorf("%+v", o)
	}
	slots.Update(1, &snap)
	woken.expect(t)
	snap.Elected.Stat.Version = 1
	slots.Update(1, &snap)
	woken.expect(t, 0)
	snap.Elector = false
	slots.Update(1, &snap)
	woken.expect(t, 0)
	if len(slots.others(0)) != 0 {
		t.Error("what only a follower reads counts")
	}
	var none *Slots
	none.Update(0, &snap)
	none.End(0)
	none.decide(1)
	if !none.Begin(0) || none.others(0) != nil || none.outdated(0) {
		t.Error("a group without slots is affected")
	}
}

// Who preempts must have read as much as those who have decided for other slots.
func TestOutdatedSnapshots(t *testing.T) {
	slots, _ := newSlots(2)
	if slots.outdated(0) {
		t.Error("nobody has decided")
	}
	slots.decide(7)
	slots.decide(5)
	if !slots.outdated(6) || slots.outdated(7) {
		t.Error("the newest decision does not count")
	}
}

func TestLimit(t *testing.T) {
	l := NewLimit(2)
	var granted []string
	a, b := l.NewShare(), l.NewShare()
	request := func(s *Share, name string) *Permit {
		return s.Request(func() { granted = append(granted, name) })
	}
	expect := func(want ...string) {
		t.Helper()
		if !slices.Equal(granted, want) {
			t.Errorf("granted %v, want %v", granted, want)
		}
		granted = nil
	}
	first := request(a, "first")
	request(b, "stuck")
	expect("first", "stuck")
	second := request(a, "second")
	request(b, "third, of a closed instance")
	withdrawn := request(a, "withdrawn")
	request(a, "fourth")
	expect()
	withdrawn.Release()
	expect()
	if !first.Granted() || second.Granted() {
		t.Error("not only the first has a permit")
	}
	first.Release()
	first.Release()
	expect("second")
	b.Close() // gives back a permit and a request
	expect("fourth")
	request(b, "of a closed instance")
	request(a, "fifth")
	expect()
	second.Release()
	expect("fifth")
	if len(l.held) != 2 || len(l.queue) != 0 {
		t.Errorf("%d held, %d queued", len(l.held), len(l.queue))
	}
	a.Close()
	if len(l.held) != 0 {
		t.Errorf("%d are held in the end", len(l.held))
	}
}
