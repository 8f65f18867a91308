package group

import (
	"sync/atomic"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/transition"
)

// Limiter bounds how many groups of this host do something at once. It is safe for concurrent use.
type Limiter interface {
	// Request asks for a permit. granted is called when it is granted, possibly before Request returns, and must not block. release
	// gives the permit, or the request for it, back.
	Request(granted func()) (release func())
}

// Limits are the limits that this group shares with the other groups of the host. Each may be nil.
type Limits struct {
	// Starts is for takeovers that start their work, Moves for preemptions that this host decides on as the elector.
	Starts, Moves Limiter
}

// permit is a request to a Limiter.
type permit struct {
	granted atomic.Bool
	release func()
}

func newPermit(l Limiter, wake func()) *permit {
	p := new(permit)
	p.release = l.Request(func() {
		p.granted.Store(true)
		wake()
	})
	return p
}

// takeover is a takeover that needs a permit to start its work.
type takeover struct {
	permit *permit // nil if there is none
	term   int64
	queued bool // the node's record says that it waits
}

// wake makes the loop look at its permits. It is safe for concurrent use.
func (m *Member) wake() {
	select {
	case m.permits <- struct{}{}:
	default:
	}
}

// askToStart requests a permit for a takeover.
func (m *Member) askToStart(a transition.AskToStart) {
	m.leaveQueue()
	m.takeover = takeover{permit: newPermit(m.opt.Limits.Starts, m.wake), term: a.Term}
	m.admit()
	if !m.takeover.permit.granted.Load() {
		m.group.log.Info("waiting to start the work: as many other takeovers as this host starts at once are under way", "term", a.Term)
		m.setQueued(true)
	}
}

// admit tells the machine if its takeover may start the work.
func (m *Member) admit() {
	if t := &m.takeover; t.permit != nil && t.permit.granted.Load() {
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
		m.takeover.permit.release()
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

// noRoom is why a preemption waits.
const noRoom = "as many groups as this host moves at once already move by its decision"

// decideWithLimits makes a decision. A preemption needs a permit, which is kept until its new leader is READY.
func (e *electorRole) decideWithLimits(in elector.Input) elector.Decision {
	in.Succeeded = e.succeeded
	if e.moves == nil {
		return e.core.Decide(in)
	}
	if s := &in.Snapshot; e.moving != 0 && (s.Ready() || !s.Elected.Readable() || s.Elected.Record.Term != e.moving) {
		e.endMove()
	}
	if e.move == nil || !e.move.granted.Load() {
		in.NoRoom = noRoom
	}
	d := e.core.Decide(in)
	if d.AwaitsRoom && e.move == nil {
		if e.move = newPermit(e.moves, e.wake); e.move.granted.Load() {
			in.NoRoom = ""
			d = e.core.Decide(in)
		}
	}
	switch {
	case d.Elect != nil && d.Elect.Cause == cluster.CausePreempt:
		e.moving = d.Elect.Term
	case !d.AwaitsRoom && e.moving == 0:
		e.endMove() // no longer wanted
	}
	return d
}

func (e *electorRole) endMove() {
	if e.move != nil {
		e.move.release()
	}
	e.move, e.moving = nil, 0
}
