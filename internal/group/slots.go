package group

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
)

// slotTable is what the members of an instance know of each other's slots. It is safe for concurrent use. A nil table is that of a
// group without slots.
type slotTable struct {
	slots cluster.Stored[cluster.Slots] // as the instance was registered for
	poke  []chan struct{}

	mu      sync.Mutex
	rows    []slotRow
	writer  int           // the member that may write as the elector; -1 for none
	decided time.Duration // [cluster.Snapshot.At] of the newest snapshot by which a member has decided
}

// slotRow is the row of one slot.
type slotRow struct {
	state   cluster.SlotState
	known   bool // state was read by the elector
	live    bool // the member runs work in this slot, or may start some
	waiting bool // the member wants to write as the elector
}

func newSlotTable(slots cluster.Stored[cluster.Slots], members int) *slotTable {
	t := &slotTable{slots: slots, rows: make([]slotRow, members), writer: -1}
	for range members {
		t.poke = append(t.poke, make(chan struct{}, 1))
	}
	return t
}

// pokes returns the channel that receives when the n-th member must look at the table again.
func (t *slotTable) pokes(n int) <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.poke[n]
}

func (t *slotTable) wake(n int) {
	select {
	case t.poke[n] <- struct{}{}:
	default:
	}
}

// wakeAll makes all members look at the table again.
func (t *slotTable) wakeAll() {
	if t == nil {
		return
	}
	for n := range t.poke {
		t.wake(n)
	}
}

// update records what the n-th member has read of its slot.
func (t *slotTable) update(n int, snap *cluster.Snapshot) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	row, next := &t.rows[n], snap.SlotState()
	known := snap.Elector && snap.Leadership && !snap.SelfLost
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
	return a.Elected.Exists == b.Elected.Exists && a.Elected.Stat == b.Elected.Stat && a.Fence.Exists == b.Fence.Exists && a.Fence.Stat == b.Fence.Stat &&
		a.Current.Exists == b.Current.Exists && a.Current.Stat == b.Current.Stat
}

// others returns the slots other than the n-th, as far as they are known.
func (t *slotTable) others(n int) []cluster.SlotState {
	if t == nil {
		return nil
	}
	return t.known(func(i int) bool { return i != n })
}

// complete reports whether all slots are known.
func (t *slotTable) complete() bool {
	return t == nil || len(t.known(func(int) bool { return true })) == len(t.rows)
}

// known returns the wanted slots, as far as they are known, in their order.
func (t *slotTable) known(want func(i int) bool) []cluster.SlotState {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []cluster.SlotState
	for i, row := range t.rows {
		if row.known && want(i) {
			all = append(all, row.state)
		}
	}
	return all
}

// begin reports whether the n-th member may write as the elector: only one does at a time, so that it decides by what the one before
// has written. If not, the member is woken when it may try again.
func (t *slotTable) begin(n int) bool {
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

// end lets the other members write. The n-th member must have read what it has written last.
func (t *slotTable) end(n int) {
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
func (t *slotTable) decide(at time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.decided = max(t.decided, at)
}

// outdated reports whether a member has decided by a newer snapshot than one of that time. Who goes by that decision must have read as
// much: it may have been made because a node is leaving, which without its slot looks like the best one for the others.
func (t *slotTable) outdated(at time.Duration) bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return at < t.decided
}

// admit reports whether the n-th member may take over its slot: per_node works at most run on a host. From then on it counts as
// live. If not, the member is woken when it may try again.
func (t *slotTable) admit(n int) bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows[n].live {
		return true
	}
	live := 0
	for _, row := range t.rows {
		if row.live {
			live++
		}
	}
	t.rows[n].live = live < t.slots.Record.PerNode
	return t.rows[n].live
}

// leave records that the n-th member runs no work, and will start none before it is admitted again.
func (t *slotTable) leave(n int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.rows[n].live {
		return
	}
	t.rows[n].live = false
	for i := range t.rows {
		if i != n {
			t.wake(i)
		}
	}
}

// see gives a snapshot to the machine, unless the host has as many works of the group as it may have: then an idle machine gets it
// when one of them has ended.
func (m *Member) see(snap cluster.Snapshot) {
	elected := snap.Elected.Readable() && snap.Elected.Record.Incarnation == m.self.Name && !snap.Ended()
	before := m.gated
	m.gated = elected && !snap.SelfLost && m.machine.Idle() && !m.table().admit(m.number)
	if m.gated && !before {
		m.group.log.Info("elected, but this host already runs as many slots of the group as per_node allows: waiting until the work of one has ended",
			"per_node", m.table().slots.Record.PerNode)
	}
	if m.gated != before { // the time does not count against this candidate: its host ends other work first
		m.setQueued(m.gated)
	}
	if m.gated {
		m.step(transition.Tick{})
	} else {
		m.step(transition.Saw{Snapshot: snap})
	}
}

// checkLive lets another member take over if this one runs nothing and is not elected.
func (m *Member) checkLive() {
	s := &m.snap
	elected := s.Elected.Readable() && s.Elected.Record.Incarnation == m.self.Name && !s.Ended()
	if m.machine.Idle() && (!elected || m.gated || m.machine.Phase() == transition.Ended) {
		m.table().leave(m.number)
	}
}

// poked looks at the table again.
func (m *Member) poked() {
	if m.gated && m.table().admit(m.number) {
		m.see(m.snap)
		return
	}
	m.step(transition.Tick{})
}

// checkEpoch ends the instance if the record of slots is not the one that it was registered for: its members are no longer those of the
// group. While it is registered, that happens only after the record was deleted.
func (m *Member) checkEpoch(snap *cluster.Snapshot) {
	t, read := m.table(), snap.Slots
	if t == nil || !read.Exists || errors.Is(read.Err, cluster.ErrNoSlots) {
		return
	}
	known := t.slots
	if read.Stat.Created != known.Stat.Created || read.Readable() && (read.Record.Epoch != known.Record.Epoch || read.Record.SlotSize != known.Record.SlotSize) {
		m.instance.stopRest("the record of the group's slots was replaced")
	}
}

func (m *Member) table() *slotTable { return m.instance.table }

// repairSlots writes the record of slots again if it was deleted or damaged, and reports whether it is not readable. Slot 0 does it.
func (e *electorRole) repairSlots(snap cluster.Snapshot) bool {
	if e.table == nil || e.number > 0 || snap.Slots.Readable() || snap.Slots.Newer() != nil {
		return false
	}
	if ops, err := e.paths.RepairSlotsTx(snap.Self.Name, snap.Slots, e.table.slots, time.Now()); err == nil {
		e.log.Warn("the record of slots was deleted or damaged: writing it again", "znode", e.paths.Slots(), "err", snap.Slots.Err)
		e.write("SLOTS", snap, false, func() {}, ops...)
	} // else this instance is about to end
	return true
}

// slotsText says how the slots of this configuration differ from those in force; empty if they do not.
func slotsText(own cluster.SlotSize, inForce cluster.Stored[cluster.Slots], name string) string {
	if !inForce.Readable() || inForce.Record.SlotSize == own {
		return ""
	}
	return fmt.Sprintf("%s are in force, those of this configuration are %s; %s changes them",
		inForce.Record.SlotSize, own, cluster.InGroup("'zkelectd slots %s --per-node %s'", name, own.Count, own.PerNode))
}
