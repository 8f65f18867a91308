package group

import (
	"errors"
	"fmt"
	"sync"

	"zkelectd/internal/cluster"
	"zkelectd/internal/group/electing"
	"zkelectd/internal/transition"
)

// Limits are the limits that this group shares with the other groups of the host. Each may be nil.
type Limits struct {
	// Starts is for takeovers that start their work, Moves for preemptions that this host decides on as the elector.
	Starts, Moves *electing.Share
}

// takeover is a takeover that needs a permit to start its work.
type takeover struct {
	permit *electing.Permit // nil if there is none
	term   int64
	queued bool // the node's record says that it waits
}

// wake makes the loop look at its permits. It is safe for concurrent use.
func (m *Member) wake() { m.group.notices.add(permitGranted) }

// askToStart requests a permit for a takeover.
func (m *Member) askToStart(a transition.AskToStart) {
	m.leaveQueue()
	m.takeover = takeover{permit: m.opt.Limits.Starts.Request(m.wake), term: a.Term}
	m.admit()
	if !m.takeover.permit.Granted() {
		m.group.log.Info("waiting to start the work: as many other takeovers as this host starts at once are under way", "term", a.Term)
		m.setQueued(true)
	}
}

// admit tells the machine if its takeover may start the work.
func (m *Member) admit() {
	if t := &m.takeover; t.permit != nil && t.permit.Granted() {
		m.pendingEvents = append(m.pendingEvents, transition.Admitted{Term: t.term})
		m.setQueued(false)
	}
}

// checkTakeover gives the permit back once the work has started, or will not.
func (m *Member) checkTakeover() {
	switch m.machine.Phase() {
	case transition.Queued, transition.Preparing, transition.Starting, transition.Declaring:
	default:
		m.leaveQueue()
	}
}

func (m *Member) leaveQueue() {
	if m.takeover.permit != nil {
		m.takeover.permit.Release()
		m.setQueued(false)
		m.takeover = takeover{}
	}
}

// setQueued publishes whether the takeover waits, so that the elector's watchdog does not count the time.
func (m *Member) setQueued(queued bool) {
	if m.takeover.queued == queued {
		return
	}
	m.takeover.queued = queued
	if queued {
		m.instance.queued.Add(1)
	} else {
		m.instance.queued.Add(-1)
	}
	m.instance.members[0].group.NodeChanged()
}

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

// see gives a snapshot to the machine, unless the host has as many works of the group as it may have: then an idle
// machine gets it when one of them has ended.
func (m *Member) see(snap cluster.Snapshot) {
	elected := snap.Elected.Readable() && snap.Elected.Record.Incarnation == m.self.Name && !snap.Ended()
	before := m.gated
	m.gated = elected && !snap.SelfLost && m.machine.Idle() && !m.instance.room.admit(m.number)
	if m.gated && !before {
		m.group.log.Info("elected, but this host already runs as many slots of the group as per_node allows: waiting until the work of one has ended",
			"per_node", m.instance.slots.Record.PerNode)
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
		m.instance.room.leave(m.number)
	}
}

// lookAgain follows a change of what the members of an instance share.
func (m *Member) lookAgain() {
	if m.gated && m.instance.room.admit(m.number) {
		m.see(m.snap)
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
	if read.Stat.Created != known.Stat.Created || read.Readable() && (read.Record.Epoch != known.Record.Epoch || read.Record.SlotSize != known.Record.SlotSize) {
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
