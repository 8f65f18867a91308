package group

import (
	"errors"
	"fmt"
	"sync"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
)

// room is what a host has room for: per_node works of a group at most. It is safe for concurrent use. nil is for a
// group without slots.
type room struct {
	perNode int
	wake    func(n int) // makes the n-th member look again

	mu   sync.Mutex
	live []bool // the member runs work in its slot, or may start some
}

// admit reports whether the n-th member may take over its slot. From then on it counts as live. If not, the member is
// woken when it may try again.
func (r *room) admit(n int) bool {
	if r == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live[n] {
		return true
	}
	live := 0
	for _, l := range r.live {
		if l {
			live++
		}
	}
	r.live[n] = live < r.perNode
	return r.live[n]
}

// leave records that the n-th member runs no work, and will start none before it is admitted again.
func (r *room) leave(n int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.live[n] {
		return
	}
	r.live[n] = false
	for i := range r.live {
		if i != n {
			r.wake(i)
		}
	}
}

// checkLive lets another member take over if this one runs nothing and is not elected.
func (m *Member) checkLive() {
	s := &m.snap
	elected := s.Elected.Readable() && s.Elected.Record.Incarnation == m.self.Name && !s.Ended()
	if m.machine.Idle() && (!elected || m.overLimit || m.machine.Phase() == transition.Ended) {
		m.instance.room.leave(m.number)
	}
}

// lookAgain follows a change of what the members of an instance share.
func (m *Member) lookAgain() {
	if m.overLimit && m.instance.room.admit(m.number) {
		m.giveToMachine(m.snap)
		return
	}
	m.step(transition.Tick{})
}

// checkEpoch ends the instance if the record of slots is not the one that it was registered for: its members are no
// longer those of the group. While it is registered, that happens only after the record was deleted.
func (m *Member) checkEpoch(snap *cluster.Snapshot) {
	known, read := m.instance.slots, snap.Slots
	if m.instance.room == nil || !read.Exists || errors.Is(read.Err, cluster.ErrNoSlots) {
		return
	}
	if read.Stat.Created != known.Stat.Created || read.Readable() && (read.Record.Epoch != known.Record.Epoch ||
		read.Record.SlotSize != known.Record.SlotSize) {
		m.instance.stopRest("the record of the group's slots was replaced")
	}
}

// slotsText says how the slots of this configuration differ from those in force; empty if they do not.
func slotsText(own cluster.SlotSize, inForce cluster.Stored[cluster.Slots], name string) string {
	if !inForce.Readable() || inForce.Record.SlotSize == own {
		return ""
	}
	return fmt.Sprintf("%s are in force, those of this configuration are %s; %s changes them",
		inForce.Record.SlotSize, own, cluster.InGroup("'zkelectd slots %s --per-node %s'", name, own.Count, own.PerNode))
}
