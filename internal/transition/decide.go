package transition

import (
	"fmt"
	"time"

	"zkelectd/internal/cluster"
)

// decide does whatever is due, given everything that the machine knows. It is level-triggered: a missed or late event
// delays it only until the next one.
func (m *Machine) decide() {
	m.entrust() // before anything is released: a failed post_stop changes the remaining lease wait
	m.enforceLease()
	if m.term.held && m.fresh {
		m.checkHeld()
	}
	if !m.term.held && m.fresh {
		m.recover()
	}
	if m.term.held && m.fresh && m.snap.Slots.Readable() {
		if err := m.snap.CheckSlots(m.opt.Epoch); err != nil {
			m.giveUp(Stop{Reason: err.Error(), Requested: true})
		}
	}
	if m.term.held && m.quit != nil && !m.awaitsSuccessor() {
		m.giveUp(*m.quit)
	}
	if m.term.held && m.term.stop == nil && m.ended == "" {
		m.progress()
	}
	if m.term.stop != nil || m.ended != "" {
		m.windDown()
	}
	m.setMembers()
	m.sendValue()
	m.renew()
	m.holdRounds()
	m.acquire()
	m.veto()
	if m.toRemember != 0 {
		m.remembers(m.toRemember)
	}
	m.toRemember = 0 // it is asked for again as long as the holder is silent
	if m.quit != nil && m.ended == "" && m.Idle() {
		m.end(m.quit.Reason)
	}
	m.entrust()
}

// awaitsSuccessor reports whether the work of a leader that is about to end goes on, because its successor may be
// elected meanwhile. It announces the end first: only then may another member be elected. The wait gives no rights: the
// lease goes on as before, and its end or the successor's election ends the wait (docs/protocol.md, Stopping).
func (m *Machine) awaitsSuccessor() bool {
	t, wait := &m.term, m.opt.Budget.Handover
	if t.stop != nil || m.ended != "" || !m.quit.Requested || m.hurry || wait == 0 || t.task != taskUp || !t.ready {
		return false
	}
	if m.noHeir() {
		return false
	}
	if !t.leaving.announced {
		t.leaving = leaving{announced: true, began: m.now}
		m.do(PublishLeaving{Reason: m.quit.Reason})
	}
	return !t.leaving.pointless && !m.due(t.leaving.began+wait)
}

// noHeir reports whether the elector has published that it would elect nobody in place of this member. A member that is
// the elector itself knows better: what it has published may be older than what it knows.
func (m *Machine) noHeir() bool {
	heir, known := m.snap.NextLeader()
	return known && heir.Incarnation == "" && !m.snap.Elector
}

// stopGrace returns how long the work has for its end. A wait for a successor was part of it. Without a child, those
// who have application leases may use what is left of them.
func (m *Machine) stopGrace() time.Duration {
	grace, left := m.opt.Budget.Stop, m.term.lease.deadline-m.now
	switch {
	case grace == 0:
		grace = left
	case m.term.leaving.announced:
		grace -= m.now - m.term.leaving.began
	}
	return max(0, min(grace, left))
}

// entrust hands FINAL over for the term that is held, whenever it has changed (docs/protocol.md, Transactions). Its
// versions are those of the last transaction that is known to have taken effect. If another one took effect as well,
// FINAL is refused and the successor waits. After the end of the session FINAL stays entrusted: nothing else can
// release any more.
func (m *Machine) entrust() {
	var next final
	switch {
	case m.term.held:
		next = final{m.term.holding, m.term.number, m.remainingWait(), len(m.term.fence.Fencing), m.term.ready}
	case m.ended != "":
		return
	}
	if next == m.entrusted {
		return
	}
	m.entrusted = next
	if next == (final{}) {
		m.do(Entrust{})
		return
	}
	f := m.ending(Stop{Reason: "its daemon died or lost its session as the leader"})
	// It is not known when it will be sent, nor whether the work runs by then: a child that has exited is started again.
	f.Lost, f.Idle = true, f.Idle.OrMore()
	f.Stopping = "" // it ends the incarnation, or that is lost
	if m.term.ready {
		f.Idle = cluster.AtLeast(0)
	}
	m.do(Entrust{Ops: m.opt.Paths.FinalTx(m.term.holding, f)})
}

// end marks the membership as over.
func (m *Machine) end(reason string) {
	if m.ended == "" {
		m.ended = reason
		m.do(End{Reason: reason})
	}
}

// enforceLease stops the work before the lease ends, and has it killed when the lease ends, whatever else is going on
// (the guard does so by itself, too: S1; docs/protocol.md, Leading, and the lease).
func (m *Machine) enforceLease() {
	if m.ended != "" && m.working() && !m.term.killSent {
		m.term.killSent = true
		m.do(KillTask{})
		return
	}
	if !m.term.held {
		return
	}
	switch {
	case m.now >= m.term.lease.deadline && m.working() && !m.term.killSent:
		m.term.killSent = true
		m.do(KillTask{})
		m.giveUp(Stop{Reason: "the lease ended: ZooKeeper did not renew it in time", Lapsed: true})
	case m.now >= m.term.lease.deadline-m.grace():
		if m.term.stop == nil && m.working() {
			m.do(Note{Text: "ZooKeeper does not answer: stopping the work before the lease ends"})
		}
		m.giveUp(Stop{Reason: "the lease could not be renewed: no answer from ZooKeeper", Lapsed: true})
	}
}

// checkHeld compares what is held with what was read.
func (m *Machine) checkHeld() {
	e := m.snap.Elected
	switch {
	case !m.snap.HoldsCurrent() && m.term.task == taskDone && !m.term.prepared:
		// RELEASE took effect although its reply was lost, or current was deleted: there is nothing to release.
		m.released()
		return
	case !m.snap.HoldsCurrent():
		m.lose(Stop{Reason: "leader/current was deleted"})
	case !e.Readable():
		m.lose(Stop{Reason: "the decision was deleted or damaged"})
	case e.Record.Incarnation != m.opt.Self.Name || e.Record.Term != m.term.number ||
		e.Stat.Version != m.term.holding.Elected:
		m.lose(replaced(e.Record.Node, e.Record.Term, e.Record.Reason))
	}
	unresolved, refused := m.term.unresolved, m.term.refused
	m.term.unresolved, m.term.refused = TxNone, nil
	switch unresolved {
	case TxNone:
		return
	case TxSetMembers:
		m.readMembersBack(refused)
		return
	case TxValue:
		m.readValueBack(refused)
		return
	}
	// The snapshot shows the outcome of READY or RELEASE: take the versions from it, unless they may be a successor's
	// (S1).
	f := &m.snap.Fence
	own := f.Readable() && f.Record.Incarnation == m.opt.Self.Name && f.Record.Term == m.term.number
	if own || m.snap.HoldsCurrent() {
		m.term.holding.Fence, m.term.holding.Current = f.Stat.Version, m.snap.Current.Stat.Version
	}
	switch {
	case m.term.ready || !own || f.Record.State != cluster.FenceReady && !f.Record.Led:
	case m.term.task == taskUp && m.snap.Ready() && m.snap.Elected.Record.Term == m.term.number:
		m.declared()
	default: // it has led, but is being replaced, or its work has ended
		m.term.ready = true
		m.noteLastWork()
	}
}

// replaced says that another decision has replaced the holder.
func replaced(node string, term int64, reason string) Stop {
	return Stop{Reason: fmt.Sprintf("replaced by %s in term %d: %s", node, term, reason), Requested: true}
}

// recover handles a current of this session that the machine does not know it holds.
func (m *Machine) recover() {
	unknown := m.term.unresolved
	m.term.unresolved = TxNone
	if !m.snap.HoldsCurrent() || m.tx.pending != TxNone || m.ended != "" || m.working() {
		return
	}
	// The ACQUIRE that took effect may be an earlier one than the last: the lease counts from the first (S1).
	sent := m.pendingAcquire.sent
	if unknown == TxAcquire && m.snap.Acquired() && m.snap.Fence.Record.Term == m.term.fence.Term &&
		m.term.fence.Term == m.pendingAcquire.term && m.snap.Fence.Record.Incarnation == m.opt.Self.Name &&
		m.now < sent+m.opt.Budget.Lease {
		m.acquired(sent, m.snap.Fence.Stat.Version, m.snap.Current.Stat.Version)
		return
	}
	m.term.held, m.term.task, m.term.replaced = true, taskDone, true
	m.term.lease.deadline = m.now
	m.term.number = m.snap.Current.Record.Term
	m.lastTerm = max(m.lastTerm, m.term.number)
	if m.snap.Fence.Readable() {
		m.term.fence = m.snap.Fence.Record
	}
	m.term.idle = idle{before: m.term.fence.LeastIdle(), since: m.now} // it is not known how long ago ACQUIRE was prepared
	m.term.holding = cluster.HeldVersions{Self: m.opt.Self.Name, Fence: m.snap.Fence.Stat.Version,
		Current: m.snap.Current.Stat.Version}
	// no strike: nothing is known to be wrong with the work
	late := Stop{Reason: "an ACQUIRE took effect too late", Requested: true}
	m.giveUp(late)
	if m.snap.Elected.Record.Incarnation == m.opt.Self.Name {
		m.quit = &late // else it might be elected again and again, and be late each time
	}
}

// progress takes the next step of the takeover (docs/protocol.md, Taking over).
func (m *Machine) progress() {
	switch m.term.task {
	case taskNone, taskWait:
		m.fenceNext()
		if m.term.stop != nil || m.awaitsEarlier() {
			m.term.task = taskWait
			return
		}
		m.term.fence.Owed, m.term.fence.Earlier = 0, nil // the wait is over
		if m.opt.Admission {
			m.term.task = taskQueue
			m.do(AskToStart{Term: m.term.number})
			return
		}
		m.prepare()
	case taskLaunch:
		m.term.task = taskStart
		m.do(StartChild{Term: m.term.number})
	case taskUp:
		if m.term.ready || !m.maySend() {
			return
		}
		fence, current := m.term.fence, m.term.current
		fence.State, current.State, current.Value = cluster.FenceReady, cluster.CurrentReady, m.term.value.wanted
		m.term.fence.Idle = m.gap()
		fence.Idle, fence.Time = m.term.fence.Idle, m.opt.Wall()
		current.Time = fence.Time
		m.term.sending = current
		m.send(TxReady, m.opt.Paths.ReadyTx(m.term.holding, fence, current), m.term.lease.deadline)
	case taskRestart:
		if m.due(m.term.restartAt) {
			m.term.task = taskStart
			m.do(StartChild{Term: m.term.number})
		}
	}
}

// prepare starts the work with its pre_start hook.
func (m *Machine) prepare() {
	m.term.task, m.term.prepared = taskPrepare, true
	m.do(RunPreStart{Term: m.term.number})
}

// windDown stops the work, then runs post_stop, then releases, in this order (S1; docs/protocol.md, Leading, and the
// lease).
func (m *Machine) windDown() {
	if m.working() {
		if m.hurry && !m.term.killSent {
			m.term.killSent = true
			m.do(KillTask{})
		}
		if !m.term.stopSent && !m.term.killSent {
			grace := m.stopGrace()
			m.term.stopSent, m.term.stopAt = true, m.now+grace
			m.do(StopTask{Grace: grace})
		}
		if m.term.held && m.due(m.overdueAt()) && m.snap.HoldsCurrent() {
			// else it was replaced, and the end would cost the other slots of the host
			m.end("its work, or its fencing, has not ended in time")
		}
		return
	}
	if m.term.task == taskClean {
		return
	}
	m.term.task = taskDone
	if m.term.prepared {
		m.term.prepared, m.term.task = false, taskClean
		m.do(RunPostStop{Term: m.term.number})
		return
	}
	if m.term.held && m.quit != nil && m.tx.pending == TxNone && m.due(m.releaseTimeout()) {
		m.do(Note{Text: "could not release leadership because ZooKeeper does not answer: it ends with the session"})
		m.end(m.quit.Reason)
	}
	if m.ended != "" {
		if m.term.held {
			m.released()
		}
		return
	}
	if !m.term.held {
		m.reset()
		return
	}
	if err := m.snap.Fence.Newer(); err != nil && m.fresh && m.tx.pending == TxNone {
		// A newer version of zkelectd wrote the fence. RELEASE would overwrite that record, so current ends with the
		// membership instead.
		m.end("leadership is not released: " + err.Error())
		m.released()
		return
	}
	if m.quit == nil && m.term.releasing != 0 && m.due(m.sickAt()) { // else it ends in any case
		m.term.releasing = m.now
		m.do(EndSession{Reason: fmt.Sprintf("no RELEASE was answered for %s, although its work is dead",
			2*m.opt.Budget.Session)})
		return
	}
	if m.maySend() {
		if m.term.releasing == 0 {
			m.term.releasing = m.now
		}
		m.send(TxRelease, m.opt.Paths.ReleaseTx(m.term.holding, m.ending(*m.term.stop)), m.now+m.opt.Budget.Lease)
	}
}

// overdueAt returns when the work of a leadership that is being given up counts as work that cannot be killed. Others
// would notice a lease that is not renewed, but only if they can watch it, and this one may be: then nothing but the
// end of the membership replaces a holder whose session goes on. The end of the lease was set by the time at which its
// work began to stop, or is earlier.
func (m *Machine) overdueAt() time.Duration {
	return cluster.Earliest(m.term.lease.deadline, m.term.stopBy) + m.opt.Budget.Session
}

// sickAt returns when the session counts as sick: what keeps RELEASE from being answered concerns all of its groups,
// and while those renew their leases, no deputy can know that this one holds its leadership for nothing. By then the
// client knows whether it is connected.
func (m *Machine) sickAt() time.Duration { return m.term.releasing + 2*m.opt.Budget.Session }

// releaseTimeout returns when a member that is to end stops waiting for its RELEASE: its work is dead, and if ZooKeeper
// still does not answer, the session is about to expire.
func (m *Machine) releaseTimeout() time.Duration { return m.term.lease.deadline + m.opt.Budget.Session }

// ending returns the fence to leave behind: RELEASED only if no lease wait remains.
func (m *Machine) ending(s Stop) cluster.Fence {
	f := m.term.fence
	_, fenced := m.snap.Terms() // higher if the fence was lost and rewritten
	f.Term, f.Node, f.Site, f.Incarnation = max(f.Term, m.term.number, fenced), m.opt.Self.ID, m.opt.Site, m.opt.Self.Name
	f.State, f.Owed = cluster.FenceReleased, m.remainingWait()
	if f.Owed > 0 || len(f.Earlier) > 0 { // an earlier holder without a wait may still have to be fenced
		f.State = cluster.FenceUnclean
	}
	f.Reason, f.Requested, f.Lapsed, f.Led, f.Lost, f.Time = s.Reason, s.Requested, s.Lapsed, m.term.ready, false,
		m.opt.Wall()
	f.Stopping = ""
	if m.quit != nil && (m.quit.Requested || s.Requested) {
		f.Stopping = f.Incarnation
	}
	f.Idle = m.gap()
	if s.Lapsed { // ZooKeeper does not answer: nobody knows when this arrives
		f.Idle = f.Idle.OrMore()
	}
	return f
}

// renew posts the next RENEW, or withdraws it. A lease that is over is never renewed: only a new term brings a new
// lease. Nor is one that nothing depends on any more: if RELEASE does not arrive, the deputies take over.
func (m *Machine) renew() {
	if !m.term.held || m.term.replaced || m.leaseLimit != 0 || m.ended != "" || m.tx.pending != TxNone ||
		m.term.unresolved != TxNone ||
		m.now >= m.term.lease.deadline || m.term.stop != nil && m.term.task == taskDone {
		m.withdraw()
		return
	}
	next := renewal{m.term.number, m.term.holding}
	if m.posted == next && !m.due(m.postedUntil) {
		return
	}
	m.posted, m.postedUntil = next, m.term.lease.deadline
	m.do(Renew{
		Term: next.term, Held: next.held, Ops: m.opt.Paths.RenewTx(next.held),
		Due: max(m.term.lease.renewed+m.opt.Budget.Renew, m.retryAt), Deadline: m.term.lease.deadline,
	})
}

// withdraw withdraws the RENEW that is posted.
func (m *Machine) withdraw() {
	if m.posted != (renewal{}) {
		m.posted = renewal{}
		m.do(Renew{})
	}
}

// maySend reports whether a transaction of the term may be sent: none is under way, nor must be read back, nor has
// just failed.
func (m *Machine) maySend() bool {
	return m.tx.pending == TxNone && m.term.unresolved == TxNone && m.due(m.retryAt)
}

// send sends a transaction. Until its outcome is known there is no RENEW, whose versions it may change.
func (m *Machine) send(tx Tx, ops []cluster.Op, deadline time.Duration) {
	m.withdraw()
	m.tx = transaction{pending: tx, sent: m.now}
	m.do(Send{Tx: tx, Ops: ops, Deadline: deadline, Lapsed: tx == TxRelease && m.term.stop.Lapsed})
}

// leaseEnd returns the end of the lease that a transaction has granted.
func (m *Machine) leaseEnd(sent time.Duration) time.Duration {
	return cluster.Earliest(sent+m.opt.Budget.Lease, m.leaseLimit)
}

// extend extends the lease after a RENEW, unless it was over already.
func (m *Machine) extend(sent time.Duration) {
	if m.now < m.term.lease.deadline {
		m.term.lease.took = m.now - sent
		m.term.lease.renewed, m.term.lease.deadline = sent, max(m.leaseEnd(sent), m.term.failsafe.extended)
		m.term.failsafe.failing = false
		m.do(Lease{Deadline: m.term.lease.deadline})
	}
}

// declared notes that READY took effect.
func (m *Machine) declared() {
	m.term.ready = true
	m.noteLastWork()
	m.noteCurrent(m.term.sending, m.term.holding.Current)
	m.do(Announce{Phase: Leading, Term: m.term.number, Reason: "the takeover is complete", Fencing: m.term.fence.Fencing})
}

// noteLastWork notes when the work of a leader has ended, once all of it has.
func (m *Machine) noteLastWork() {
	if t := &m.term; t.ready && t.idle.ended != 0 && !t.lent {
		m.last = LastWork{t.number, t.idle.ended}
	}
}

// released ends the term, once nothing of it runs any more.
func (m *Machine) released() {
	reason := m.ended
	if m.term.stop != nil {
		reason = m.term.stop.Reason
	}
	m.owed = m.remainingWait()
	m.do(Lease{})
	gaveUp := m.term.stop != nil && !m.term.stop.Requested
	m.do(Announce{Phase: Standby, Term: m.term.number, Reason: reason, Fencing: m.term.fence.Fencing, GaveUp: gaveUp})
	m.reset()
}

// reset returns to standby. What belongs to the membership stays.
func (m *Machine) reset() { m.term = termState{} }

// childExited restarts a child that has exited by itself, or gives leadership up if that happens too often.
func (m *Machine) childExited(status string) {
	since := m.now - m.opt.RestartWindow
	recent := m.term.exits[:0]
	for _, at := range append(m.term.exits, m.now) {
		if at > since {
			recent = append(recent, at)
		}
	}
	m.term.exits = recent
	if len(recent) > m.opt.RestartMax {
		m.term.task = taskDone
		m.giveUp(Stop{Reason: fmt.Sprintf("the child %s, %d times within %s", status, len(recent), m.opt.RestartWindow)})
		return
	}
	m.term.task = taskRestart
	m.term.restartAt = m.now + m.opt.RestartBackoff
	m.do(Note{Text: fmt.Sprintf("the child %s: restarting it in %s (%d of %d within %s)",
		status, m.opt.RestartBackoff, len(recent), m.opt.RestartMax, m.opt.RestartWindow)})
}
