package transition

import (
	"fmt"
	"time"

	"zkelectd/internal/cluster"
)

// decide looks at everything the machine knows and does what is due. It is level-triggered, so an event that is missed
// or comes late delays it at most until the next one.
func (m *Machine) decide() {
	m.entrust() // before anything is released: post_stop may have failed
	m.lease()
	if m.held && m.seen {
		m.judge()
	}
	if !m.held && m.seen {
		m.recover()
	}
	if m.held && m.quit != nil {
		m.giveUp(*m.quit)
	}
	if m.held && m.stop == nil && m.ended == "" {
		m.progress()
	}
	if m.stop != nil || m.ended != "" {
		m.windDown()
	}
	m.renew()
	m.acquire()
	if m.quit != nil && m.ended == "" && m.Idle() {
		m.end(m.quit.Reason)
	}
	m.entrust()
}

// entrust hands over LEAVE for what is held, whenever that has changed. The versions are those of the last transaction that is
// known to have taken effect: where another has as well, LEAVE is refused and the successor waits. With the session over it
// stays entrusted, since nothing else can release any more.
func (m *Machine) entrust() {
	var next leave
	switch {
	case m.held:
		next = leave{m.holding, m.term, m.fence.Owed, m.ready}
	case m.ended != "":
		return
	}
	if next == m.left {
		return
	}
	m.left = next
	if next == (leave{}) {
		m.do(Entrust{})
		return
	}
	f := m.ending(Stop{Reason: "its daemon died or lost its session as the leader"})
	f.Lost = true
	m.do(Entrust{Ops: m.opt.Paths.LeaveTx(m.holding, f)})
}

// end marks the session as over and has it closed.
func (m *Machine) end(reason string) {
	if m.ended == "" {
		m.ended = reason
		m.do(EndSession{Reason: reason})
	}
}

// lease stops the work in time, and kills it when time is up, whatever else is going on (S1).
func (m *Machine) lease() {
	if m.ended != "" && m.working() && !m.killed {
		m.killed = true
		m.do(KillTask{})
		return
	}
	if !m.held {
		return
	}
	switch {
	case m.now >= m.deadline && m.working() && !m.killed:
		m.killed = true
		m.do(KillTask{})
		m.giveUp(Stop{Reason: "the lease ended: ZooKeeper did not renew it in time"})
	case m.now >= m.deadline-m.opt.Budget.Grace:
		if m.stop == nil && m.working() {
			m.do(Note{Text: "ZooKeeper does not answer, and the lease runs out: stopping the work before it ends"})
		}
		m.giveUp(Stop{Reason: "the lease could not be renewed: no answer from ZooKeeper"})
	}
}

// judge compares what is held with what was read.
func (m *Machine) judge() {
	e := m.snap.Elected
	switch {
	case !m.snap.HoldsCurrent() && m.task == taskDone && !m.prepared:
		// RELEASE went through although its reply was lost, or current was taken away: there is nothing to release.
		m.released()
		return
	case !m.snap.HoldsCurrent():
		m.replaced = true
		m.giveUp(Stop{Reason: "current was taken away"})
	case !e.Readable():
		m.replaced = true
		m.giveUp(Stop{Reason: "the decision was deleted or damaged"})
	case e.Record.Incarnation != m.opt.Self.Name || e.Record.Term != m.term || e.Stat.Version != m.holding.Elected:
		m.replaced = true
		// An unchanged decision that was written again is no request: a daemon that lets go on request is not elected again, and
		// there may be no other.
		m.giveUp(Stop{
			Reason:    fmt.Sprintf("replaced by %s in term %d: %s", e.Record.Node, e.Record.Term, e.Record.Reason),
			Requested: e.Record.Incarnation != m.opt.Self.Name || e.Record.Term != m.term,
		})
	}
	if m.unknown == TxNone {
		return
	}
	// The outcome of READY or RELEASE is in what was read: take the versions from there.
	m.unknown = TxNone
	m.holding.Fence, m.holding.Current = m.snap.Fence.Stat.Version, m.snap.Current.Stat.Version
	if !m.ready && m.task == taskUp && m.snap.Ready() && m.snap.Elected.Record.Term == m.term {
		m.declared()
	}
}

// recover deals with a current of this session that the machine doesn't know it holds.
func (m *Machine) recover() {
	unknown := m.unknown
	m.unknown = TxNone
	if !m.snap.HoldsCurrent() || m.pending != TxNone || m.ended != "" || m.working() {
		return
	}
	if unknown == TxAcquire && m.snap.Acquired() && m.snap.Fence.Record.Term == m.fence.Term &&
		m.snap.Fence.Record.Incarnation == m.opt.Self.Name && m.now < m.sending+m.opt.Budget.Lease {
		m.acquired(m.snap.Fence.Stat.Version, m.snap.Current.Stat.Version)
		return
	}
	// Left over from an ACQUIRE that came too late: give it back.
	m.held, m.task, m.replaced = true, taskDone, true
	m.term = m.snap.Current.Record.Term
	m.last = max(m.last, m.term)
	if m.snap.Fence.Readable() {
		m.fence = m.snap.Fence.Record
	}
	m.holding = cluster.Holding{Self: m.opt.Self.Name, Fence: m.snap.Fence.Stat.Version, Current: m.snap.Current.Stat.Version}
	m.giveUp(Stop{Reason: "left over from an attempt that came too late"})
}

// progress takes the takeover one step further (docs/protocol.md, Taking over).
func (m *Machine) progress() {
	switch m.task {
	case taskNone, taskWait:
		if m.now < m.waitOver {
			m.task = taskWait
			return
		}
		m.fence.Owed = 0 // served
		m.task, m.prepared = taskPrepare, true
		m.do(RunPreStart{Term: m.term, Deadline: m.deadline})
	case taskLaunch:
		m.task = taskStart
		m.do(StartChild{Term: m.term})
	case taskUp:
		if m.ready || m.pending != TxNone || m.unknown != TxNone || m.now < m.again {
			return
		}
		fence, current := m.fence, m.current
		fence.State, current.State = cluster.FenceReady, cluster.CurrentReady
		fence.Time = m.opt.Wall()
		current.Time = fence.Time
		m.send(TxReady, m.opt.Paths.ReadyTx(m.holding, fence, current), m.deadline)
	case taskRestart:
		if m.now >= m.restart {
			m.task = taskStart
			m.do(StartChild{Term: m.term})
		}
	}
}

// windDown gets the work stopped, then post_stop run, then leadership released, in this order (S1).
func (m *Machine) windDown() {
	if m.working() {
		if m.hurry && !m.killed {
			m.killed = true
			m.do(KillTask{})
		}
		if !m.stopped && !m.killed {
			m.stopped = true
			m.do(StopTask{Grace: max(0, min(m.opt.Budget.Stop, m.deadline-m.now))})
		}
		return
	}
	if m.task == taskClean {
		return
	}
	m.task = taskDone
	if m.prepared {
		m.prepared, m.task = false, taskClean
		m.do(RunPostStop{Term: m.term})
		return
	}
	if m.held && m.quit != nil && m.pending == TxNone && m.now >= m.unheard() {
		m.do(Note{Text: "leadership could not be released, as ZooKeeper does not answer: it ends with the session"})
		m.end(m.quit.Reason)
	}
	if m.ended != "" {
		if m.held {
			m.released()
		}
		return
	}
	if !m.held {
		m.reset()
		return
	}
	if err := m.snap.Fence.Newer(); err != nil && m.seen && m.pending == TxNone {
		// A newer daemon has decided. Releasing would overwrite its record, so current ends with the session instead.
		m.end("leadership is not released: " + err.Error())
		m.released()
		return
	}
	if m.pending == TxNone && m.unknown == TxNone && m.now >= m.again {
		m.send(TxRelease, m.opt.Paths.ReleaseTx(m.holding, m.ending(*m.stop)), m.now+m.opt.Budget.Lease)
	}
}

// unheard is when a daemon that is to end no longer waits for ZooKeeper to take its RELEASE: its work is dead, and the
// session that it leaves behind is about to expire.
func (m *Machine) unheard() time.Duration { return m.deadline + m.opt.Budget.Session }

// ending is the fence to leave behind: RELEASED only if nothing is owed any more.
func (m *Machine) ending(s Stop) cluster.Fence {
	f := m.fence
	_, fenced := m.snap.Terms() // higher where the fence was lost and made anew
	f.Term, f.Node, f.Site, f.Incarnation = max(f.Term, m.term, fenced), m.opt.Self.ID, m.opt.Site, m.opt.Self.Name
	f.State = cluster.FenceReleased
	if f.Owed > 0 {
		f.State = cluster.FenceUnclean
	}
	f.Reason, f.Requested, f.Led, f.Lost, f.Time = s.Reason, s.Requested, m.ready, false, m.opt.Wall()
	return f
}

// renew keeps the lease. Once it is over it is never renewed: only a newer term brings a new one.
func (m *Machine) renew() {
	if !m.held || m.replaced || m.cut != 0 || m.ended != "" || m.pending != TxNone || m.unknown != TxNone ||
		m.now >= m.deadline || m.now < m.renewed+m.opt.Budget.Renew || m.now < m.again {
		return
	}
	m.renewed = m.now
	m.send(TxRenew, m.opt.Paths.RenewTx(m.holding), m.deadline)
}

// acquire sends ACQUIRE when this incarnation is elected and nobody holds current any more. Its own child is dead: the
// machine is in standby.
func (m *Machine) acquire() {
	s := &m.snap
	if m.held || m.stop != nil || m.ended != "" || m.quit != nil || m.pending != TxNone || m.task != taskNone || !m.seen {
		return
	}
	if s.Elected.Readable() && s.Elected.Record.Incarnation == m.opt.Self.Name && s.Elected.Record.Term < m.last {
		// The records were wiped, and whoever made them anew knows no better: this incarnation can never acquire (L1).
		m.end(fmt.Sprintf("elected in term %d after it has led in term %d", s.Elected.Record.Term, m.last))
		return
	}
	if !m.elected() || !s.Leadership || s.Current.Exists || !s.Fence.Readable() {
		return // a fence that cannot be read is written anew by the elector, which knows how long to wait
	}
	if m.now < m.again && m.tried == (attempt{s.Elected.Stat.Version, s.Fence.Stat.Version}) {
		return
	}
	b := m.opt.Budget
	wall := m.opt.Wall()
	owed, why := s.Owed(cluster.Trust{WaitOut: b.WaitOut, SessionEnd: m.opt.TrustSessionEnd})
	m.fence = cluster.Fence{
		Header: s.Fence.Record.Header,
		Term:   s.Elected.Record.Term, Node: m.opt.Self.ID, Site: m.opt.Site, Incarnation: m.opt.Self.Name,
		State: cluster.FenceHeld, Owed: cluster.Duration(owed), WaitOut: cluster.Duration(b.WaitOut),
		Kill: cluster.Duration(b.Kill), Patience: cluster.Duration(b.Patience()), Time: wall,
	}
	if owed > 0 {
		m.fence.Wait = fmt.Sprintf("%s, as %s", owed.Round(10*time.Millisecond), why)
	}
	m.current = cluster.Current{
		Term: m.fence.Term, Node: m.opt.Self.ID, Site: m.opt.Site, Incarnation: m.opt.Self.Name,
		State: cluster.CurrentProgress, API: m.opt.API, Time: wall,
	}
	m.holding = cluster.Holding{Self: m.opt.Self.Name, Elected: s.Elected.Stat.Version}
	m.moving = s.Fence.Stat.Version
	m.send(TxAcquire, m.opt.Paths.AcquireTx(*s, m.fence, m.current), m.now+b.Lease)
}

func (m *Machine) send(tx Tx, ops []cluster.Op, deadline time.Duration) {
	m.pending, m.sending = tx, m.now
	m.do(Send{Tx: tx, Ops: ops, Deadline: deadline})
}

// acquired begins a term. The lease counts from the sending (docs/protocol.md, Leading, and the lease).
func (m *Machine) acquired(fence, current int32) {
	m.held, m.term, m.unknown = true, m.fence.Term, TxNone
	m.last = m.term
	m.holding.Fence, m.holding.Current = fence, current
	m.renewed = m.sending
	m.waitOver = m.now + time.Duration(m.fence.Owed)
	m.deadline = m.leaseEnd()
	m.do(Lease{Deadline: m.deadline})
	if m.cut != 0 {
		m.giveUp(*m.quit)
	}
	reason := "elected"
	if m.seen || m.snap.Elected.Readable() {
		reason = m.snap.Elected.Record.Reason
	}
	phase := Preparing
	if m.fence.Owed > 0 {
		phase = WaitOut
		reason += "; waiting " + m.fence.Wait
	}
	m.do(Announce{Phase: phase, Term: m.term, Reason: reason})
}

// leaseEnd returns the end of the lease that the last transaction has brought.
func (m *Machine) leaseEnd() time.Duration {
	return cluster.Earlier(m.sending+m.opt.Budget.Lease, m.cut)
}

func (m *Machine) extend() {
	if m.held && m.now < m.deadline {
		m.deadline = m.leaseEnd()
		m.do(Lease{Deadline: m.deadline})
	}
}

func (m *Machine) declared() {
	m.ready = true
	m.do(Announce{Phase: Leading, Term: m.term, Reason: "the takeover is complete"})
}

// released ends the term; nothing of it runs any more.
func (m *Machine) released() {
	reason := m.ended
	if m.stop != nil {
		reason = m.stop.Reason
	}
	m.do(Lease{})
	m.do(Announce{Phase: Standby, Term: m.term, Reason: reason})
	m.reset()
}

// reset returns to standby; what was read and what is known of transactions stays.
func (m *Machine) reset() {
	*m = Machine{
		opt: m.opt, out: m.out, now: m.now,
		snap: m.snap, seen: m.seen, settled: m.settled, pending: m.pending, sending: m.sending,
		tried: m.tried, again: m.again, last: m.last, doubt: m.doubt, quit: m.quit, asked: m.asked, hurry: m.hurry,
		cut: m.cut, ended: m.ended, left: m.left,
	}
}

// childExited starts a child again that has exited by itself, or gives leadership up when it does so too often.
func (m *Machine) childExited(status string) {
	since := m.now - m.opt.RestartWindow
	recent := m.exits[:0]
	for _, at := range append(m.exits, m.now) {
		if at > since {
			recent = append(recent, at)
		}
	}
	m.exits = recent
	if len(recent) > m.opt.RestartMax {
		m.task = taskDone
		m.giveUp(Stop{Reason: fmt.Sprintf("the child %s, %d times within %s", status, len(recent), m.opt.RestartWindow)})
		return
	}
	m.task = taskRestart
	m.restart = m.now + m.opt.RestartBackoff
	m.do(Note{Text: fmt.Sprintf("the child %s: starting it again in %s (%d of %d within %s)",
		status, m.opt.RestartBackoff, len(recent), m.opt.RestartMax, m.opt.RestartWindow)})
}
