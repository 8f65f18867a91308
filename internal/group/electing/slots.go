package electing

import (
	"sync"
	"time"

	"zkelectd/internal/cluster"
)

// Slots is what the members of an instance know of each other's slots. It is safe for concurrent use. nil is for a
// group without slots.
type Slots struct {
	wake func(n int) // makes the n-th member look again

	mu      sync.Mutex
	rows    []slotRow
	writer  int           // the member that may write as the elector; -1 for none
	decided time.Duration // [cluster.Snapshot.At] of the newest snapshot by which a member has decided
}

// slotRow is the row of one slot.
type slotRow struct {
	state   cluster.SlotState
	known   bool // state was read by the elector
	waiting bool // the member wants to write as the elector
}

// NewSlots returns what members know that have read nothing yet. wake makes the n-th one look again; it must not block.
func NewSlots(members int, wake func(n int)) *Slots {
	return &Slots{rows: make([]slotRow, members), wake: wake, writer: -1}
}

// Update records what the n-th member has read of its slot.
func (t *Slots) Update(n int, snap *cluster.Snapshot) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	row, next := &t.rows[n], snap.SlotState()
	known := snap.Elector && snap.HolderRead && !snap.SelfLost
	changed := known != row.known || known && !sameState(row.state, next)
	row.known, row.state = known, next
	if !changed {
		return
	}
	for i := range t.rows {
		if i != n {
			t.wake(i)
		}
	}
}

// sameState reports whether two readings of a slot are of the same versions.
func sameState(a, b cluster.SlotState) bool {
	return a.Elected.Exists == b.Elected.Exists && a.Elected.Stat == b.Elected.Stat &&
		a.Fence.Exists == b.Fence.Exists && a.Fence.Stat == b.Fence.Stat &&
		a.Current.Exists == b.Current.Exists && a.Current.Stat == b.Current.Stat
}

// others returns the slots other than the n-th, as far as they are known, in their order.
func (t *Slots) others(n int) []cluster.SlotState {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []cluster.SlotState
	for i, row := range t.rows {
		if row.known && i != n {
			all = append(all, row.state)
		}
	}
	return all
}

// complete reports whether all slots are known.
func (t *Slots) complete() bool { return t == nil || len(t.others(-1)) == len(t.rows) }

// Begin reports whether the n-th member may write as the elector: only one does at a time, so that it decides by what
// the one before has written. If not, the member is woken when it may try again.
func (t *Slots) Begin(n int) bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.writer != -1 && t.writer != n {
		t.rows[n].waiting = true
		return false
	}
	t.writer, t.rows[n].waiting = n, false
	return true
}

// End lets the other members write. The n-th member must have read what it has written last.
func (t *Slots) End(n int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.writer != n {
		return
	}
	t.writer = -1
	for i := range t.rows {
		if t.rows[i].waiting {
			t.wake(i)
		}
	}
}

// decide records that a member decides by a snapshot of that time.
func (t *Slots) decide(at time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.decided = max(t.decided, at)
}

// outdated reports whether a member has decided by a newer snapshot than one of that time. Who goes by that decision
// must have read as much: it may have been made because a node is leaving, which without its slot looks like the best
// one for the others.
func (t *Slots) outdated(at time.Duration) bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return at < t.decided
}
