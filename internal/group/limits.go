package group

import (
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
		m.group.log.Info("waiting to start the work: as many other takeovers as this host starts at once are under way",
			"term", a.Term)
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
