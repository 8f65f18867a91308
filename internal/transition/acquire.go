package transition

import (
	"fmt"
	"time"

	"zkelectd/internal/cluster"
)

// acquire sends ACQUIRE when this incarnation is elected and current does not exist (docs/protocol.md, Taking over).
// The member's own child is dead, since the machine is in standby.
func (m *Machine) acquire() {
	if !m.vacant() {
		return
	}
	s := &m.snap
	e := s.Elected
	if t := e.Record.Term; e.Readable() && e.Record.Incarnation == m.opt.Self.Name &&
		(t < m.lastTerm || t <= m.opt.LastTerm) {
		// The records were wiped or restored, and terms come again: this incarnation could never acquire (L1). The next one
		// says which term it knows.
		m.end(fmt.Sprintf("elected in term %d, but this daemon knows term %d", t, m.lastTerm))
		return
	}
	if !m.mayAcquire() || s.Current.Exists {
		return
	}
	if m.refusedAcquire == (attempt{s.Elected.Stat.Version, s.Fence.Stat.Version}) && !m.due(m.retryAt) {
		return
	}
	if !m.maySucceed(&s.Fence.Record) {
		return
	}
	b := m.opt.Budget
	wall := m.opt.Wall()
	owed, why, earlier := m.owes(s)
	m.term.idle = idle{before: m.vacantFor(), since: m.now}
	m.term.fence = cluster.Fence{
		Header: s.Fence.Record.Header,
		Term:   s.Elected.Record.Term, Node: m.opt.Self.ID, Site: m.opt.Site, Host: m.opt.Host, API: m.opt.API,
		Incarnation: m.opt.Self.Name,
		State:       cluster.FenceHeld, Session: s.Session, LeaseZnode: m.opt.LeaseZnode, Owed: cluster.Duration(owed),
		Earlier: earlier, FencingLimit: m.fencingLimit(earlier), LeaseWait: cluster.Duration(b.LeaseWait),
		Kill: cluster.Duration(b.Kill), RevokeTimeout: cluster.Duration(b.RevokeTimeout()), Time: wall,
		Takeover: cluster.Duration(min(m.opt.Takeover, cluster.MaxWait)), Idle: m.term.idle.before,
	}
	m.term.origin = m.origin(len(earlier) == 0) // there is no wait for a silent holder, but it has not released
	if owed > 0 {
		m.term.fence.Wait = fmt.Sprintf("%s because %s", owed.Round(10*time.Millisecond), why)
	}
	m.term.current = cluster.Current{
		Term: m.term.fence.Term, Node: m.opt.Self.ID, Site: m.opt.Site, Incarnation: m.opt.Self.Name,
		State: cluster.CurrentProgress, API: m.opt.API, Cause: m.term.origin.Cause, Reason: s.Elected.Record.Reason,
		PreviousLeader: m.term.origin.Node, PreviousClean: m.term.origin.Clean, Time: wall,
	}
	m.term.holding = cluster.HeldVersions{Self: m.opt.Self.Name, Elected: s.Elected.Stat.Version}
	m.term.fenceBefore = s.Fence.Stat.Version
	m.send(TxAcquire, m.opt.Paths.AcquireTx(*s, m.term.fence, m.term.current), m.now+b.Lease)
}

// noteVacancy notes what a new snapshot says of how long no leader's work has run. It is not known when a record was
// written that the snapshot before did not have.
func (m *Machine) noteVacancy(s *cluster.Snapshot) {
	v, f, e := &m.vacancy, &s.Fence.Record, &s.Elected.Record
	if s.HolderRead && (f.Term != v.term || f.State != v.state) {
		v.term, v.state, v.fence, v.fenceAt = f.Term, f.State, s.Idle(), m.now
		if !v.holderRead {
			v.fence = v.fence.OrMore()
		}
	}
	v.holderRead = s.HolderRead && s.Fence.Readable()
	if e.Term != v.decision {
		first := v.decision == 0
		v.decision, v.elected, v.electedAt = e.Term, e.Leaderless, m.now
		if first {
			v.elected = v.elected.OrMore()
		}
	}
}

// vacantFor returns how long no leader's work has run before the term that is about to be acquired; nil if there was no
// leader. A member that led last knows it better than the records: ZooKeeper may have been away for a part of the time.
func (m *Machine) vacantFor() *cluster.Gap {
	if f := &m.snap.Fence.Record; m.last.Term != 0 && f.Term == m.last.Term && f.Node == m.opt.Self.ID {
		return &cluster.Gap{For: cluster.Duration(m.now - m.last.Ended)}
	}
	v := &m.vacancy
	gap := cluster.LongerGap(v.fence.Plus(m.now-v.fenceAt), v.elected.Plus(m.now-v.electedAt))
	if gap == nil && m.snap.Fence.Record.State == cluster.FenceReady {
		return cluster.AtLeast(0) // it is gone, without a word
	}
	return gap
}

// gap returns how long no leader's work has run, nil if that is not known. The work of a term that has not been READY
// is not that of a leader.
func (m *Machine) gap() *cluster.Gap {
	i := &m.term.idle
	switch {
	case !m.term.ready:
		return i.before.Plus(m.now - i.since)
	case m.term.lent:
		return cluster.AtLeast(0)
	case i.ended == 0:
		return nil
	}
	return &cluster.Gap{For: cluster.Duration(m.now - i.ended)}
}

// vacant reports whether this member holds nothing and does nothing, and knows the group.
func (m *Machine) vacant() bool {
	return !m.term.held && m.term.stop == nil && m.ended == "" && m.quit == nil && m.tx.pending == TxNone &&
		m.term.task == taskNone && m.fresh
}

// mayAcquire reports whether this member is elected and may acquire once current does not exist.
func (m *Machine) mayAcquire() bool {
	s := &m.snap
	if !m.vacant() || !m.elected() || !s.HolderRead || !s.Fence.Readable() {
		return false // the elector rewrites an unreadable fence, with how long to wait
	}
	return s.CheckSlots(m.opt.Epoch) == nil // in the next epoch, another slot may do this work
}

// origin returns what precedes the term that this member is elected for.
func (m *Machine) origin(clean bool) Origin {
	return Origin{Cause: m.snap.Elected.Record.Cause, Node: m.snap.Fence.Record.Node, Clean: clean}
}

// acquired begins a term. The lease counts from when ACQUIRE was sent (docs/protocol.md, Leading, and the lease).
func (m *Machine) acquired(sent time.Duration, fence, current int32) {
	m.term.held, m.term.number, m.term.unresolved = true, m.term.fence.Term, TxNone
	m.lastTerm = m.term.number
	m.term.holding.Fence, m.term.holding.Current = fence, current
	m.term.lease.renewed = sent
	m.term.acquiredAt = m.now
	m.term.lease.deadline = m.leaseEnd(sent)
	m.do(Lease{Deadline: m.term.lease.deadline})
	m.beginRounds()
	if m.leaseLimit != 0 {
		m.giveUp(*m.quit)
	}
	reason := "elected"
	if m.fresh || m.snap.Elected.Readable() {
		reason = m.snap.Elected.Record.Reason
	}
	phase := Preparing
	if m.term.fence.Owed > 0 {
		phase = LeaseWait
		reason += "; waiting " + m.term.fence.Wait
	}
	m.do(Announce{Phase: phase, Term: m.term.number, Reason: reason})
}
