package transition

import (
	"cmp"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition/failsafe"
)

// This file has what failsafe mode adds (docs/protocol.md, Failsafe): how a leader works on without ZooKeeper, and when
// a member may acquire, or lets another one acquire, after a leader that may have done so.

// Failsafe are the options of a member that takes part in failsafe mode.
type Failsafe struct {
	// Key identifies the state directory of the daemon.
	Key string
	// Start is random for each instance.
	Start uint64
	// Passive is set for a member that only agrees to successors, because an earlier process may have promised
	// something: as a leader it asks nobody for promises.
	Passive bool
}

// failsafeTerm is what a holder needs in order to work on without ZooKeeper.
type failsafeTerm struct {
	rounds   *failsafe.Rounds // nil if the member takes no part
	extended time.Duration    // until when rounds have extended the lease; 0 if they have not
	failing  bool             // the last RENEW, or SETM, had no reply
	due      time.Duration    // the next round
	setAt    time.Duration    // when the last SETM was sent
	sending  failsafe.Set     // of the SETM under way
	// addresses are where the members of the sets are asked, by incarnation. Whoever is in a set is known here (see
	// promisers).
	addresses map[string]string
}

// succession is what a member knows about the end of the last term.
type succession struct {
	gone        int64 // the last term whose current was seen to be gone
	since       time.Duration
	remembering int64 // the term of the Remember under way; 0 if there is none
	remembered  int64 // the highest term for which this member never promises anything again
	// rememberAt is when a Remember that failed, or came while the daemon was bound, may be repeated.
	rememberAt time.Duration
}

// maxMembers bounds how many members must promise. The others can take over only after one of these has vetoed.
const maxMembers = 32

// beginRounds begins a term.
func (m *Machine) beginRounds() {
	if m.opt.Failsafe == nil || m.opt.Failsafe.Passive {
		return
	}
	m.term.failsafe.rounds = failsafe.NewRounds(failsafe.RoundsOptions{
		Group: failsafe.Group(m.opt.Paths), Term: m.term.number, Holder: m.opt.Self.Name, Start: m.opt.Failsafe.Start,
		Lease: m.opt.Budget.Lease, Wait: m.opt.Budget.LeaseWait,
	})
}

// leadsFailsafe reports whether the member leads in failsafe mode, and is to go on.
func (m *Machine) leadsFailsafe() bool { return m.term.failsafe.rounds != nil && m.leadsOn() }

// leadsOn reports whether the member leads, and is to go on.
func (m *Machine) leadsOn() bool {
	t := &m.term
	return t.held && t.ready && t.stop == nil && !t.replaced && m.ended == "" && m.quit == nil && m.leaseLimit == 0 &&
		m.now < t.lease.deadline
}

// wanted returns the set that the fence should have; false if that is not known.
func (m *Machine) wanted() (failsafe.Set, bool) {
	s := &m.snap
	if !s.MembersRead || !s.Policy.Readable() {
		return failsafe.Set{}, false
	}
	rules := s.Policy.Record.Failsafe
	if !rules.Enabled {
		return failsafe.Set{}, true
	}
	set := failsafe.Set{Max: time.Duration(rules.Max)}
	for _, eligible := range []bool{true, false} {
		if len(set.Members) == 0 { // better an observer than nobody
			set.Members = m.promisers(eligible)
		}
	}
	if len(set.Members) == 0 {
		return failsafe.Set{}, true
	}
	return set, true
}

// promisers returns the members that can promise something to this one.
func (m *Machine) promisers(eligible bool) []cluster.FailsafeMember {
	var out []cluster.FailsafeMember
	for i := range m.snap.Members {
		x := &m.snap.Members[i]
		n := &x.Node.Record
		if x.ID == m.opt.Self.ID || x.Superseded || !x.Node.Readable() || n.Leaving != "" ||
			eligible && n.Ineligible != "" || !n.Failsafe.CanPromise() ||
			cluster.LeaseWait(time.Duration(n.SessionTimeout)) < m.opt.Budget.LeaseWait {
			continue
		}
		out = append(out, cluster.FailsafeMember{ID: x.ID, Incarnation: x.Name, Key: n.Failsafe.Key})
	}
	slices.SortFunc(out, func(a, b cluster.FailsafeMember) int { return cmp.Compare(a.ID, b.ID) })
	return out[:min(len(out), maxMembers)]
}

// noteAddresses remembers where the members of the sets that may be in force are asked. ZooKeeper may not be there when
// it is needed.
func (m *Machine) noteAddresses(set failsafe.Set) {
	f := &m.term.failsafe
	before := f.addresses
	f.addresses = make(map[string]string)
	for _, x := range append(f.rounds.All(), set.Members...) {
		f.addresses[x.Incarnation] = before[x.Incarnation]
	}
	for i := range m.snap.Members {
		x := &m.snap.Members[i]
		if _, asked := f.addresses[x.Name]; asked && x.Node.Readable() && x.Node.Record.Failsafe.CanPromise() {
			f.addresses[x.Name] = x.Node.Record.Failsafe.Address
		}
	}
}

// setMembers sends SETM if the fence does not have the right members. It never does during an extension: the new
// members have promised nothing yet (S1). Members that come and go must not keep RENEW waiting.
func (m *Machine) setMembers() {
	f := &m.term.failsafe
	if !m.leadsFailsafe() || f.failing || !m.fresh || !m.maySend() ||
		f.setAt != 0 && !m.due(f.setAt+m.opt.Budget.Renew/2) ||
		m.term.lease.deadline > m.leaseEnd(m.term.lease.renewed) {
		return
	}
	set, known := m.wanted()
	if !known || f.rounds.Settled() && set.Equal(f.rounds.Acked()) {
		return
	}
	fence := m.term.fence
	fence.State, fence.Failsafe = cluster.FenceReady, m.record(set)
	f.sending, f.setAt = set, m.now
	m.noteAddresses(set)
	f.rounds.Sending(set)
	m.send(TxSetMembers, m.opt.Paths.SetMembersTx(m.term.holding, fence), m.term.lease.deadline)
}

func (m *Machine) record(set failsafe.Set) *cluster.Failsafe {
	if len(set.Members) == 0 {
		return nil
	}
	return &cluster.Failsafe{Key: m.opt.Failsafe.Key, Members: set.Members, Max: cluster.Duration(set.Max)}
}

// membersSet notes that the fence has the members of a set, in a new version.
func (m *Machine) membersSet(set failsafe.Set, version int32) {
	m.term.holding.Fence = version
	m.term.fence.Failsafe = m.record(set)
	m.term.failsafe.rounds.Acknowledged(set)
}

// maybeSetMembers reports whether a SETM of unknown outcome may be the reason for a refusal. Then the fence is read
// before leadership is given up.
func (m *Machine) maybeSetMembers() bool {
	return m.term.failsafe.rounds != nil && !m.term.failsafe.rounds.Settled()
}

// readMembersBack handles a snapshot that may show the outcome of a SETM. The version before it proves nothing: it may
// still take effect.
func (m *Machine) readMembersBack(refused error) {
	fence := &m.snap.Fence
	if fence.Stat.Version == m.term.holding.Fence {
		if refused != nil {
			m.replacedBy(refused, "RENEW")
		}
		return
	}
	var set failsafe.Set
	if r := fence.Record.Failsafe; r != nil {
		set = failsafe.Set{Members: r.Members, Max: time.Duration(r.Max)}
	}
	if !fence.Readable() || !m.term.failsafe.rounds.Possible(set) || fence.Record.Term != m.term.number ||
		fence.Record.Incarnation != m.opt.Self.Name || fence.Record.State != cluster.FenceReady {
		m.lose(Stop{Reason: "the fence was changed by somebody else"})
		return
	}
	m.membersSet(set, fence.Stat.Version)
}

// Extended reports whether the lease lasts because members have promised, for longer than ZooKeeper has granted it.
func (m *Machine) Extended() bool {
	t := &m.term
	return t.held && t.failsafe.extended > m.leaseEnd(t.lease.renewed) && t.lease.deadline > m.leaseEnd(t.lease.renewed)
}

// Promisers returns who must promise before the lease can be extended; none if nothing can extend it.
func (m *Machine) Promisers() []cluster.FailsafeMember {
	if r := m.term.failsafe.rounds; m.term.held && r != nil {
		return r.Members()
	}
	return nil
}

// grace returns how long before the end of its lease the work is asked to stop. While members may promise to let it go
// on, it is not asked before they have had the time to answer.
func (m *Machine) grace() time.Duration {
	if r := m.term.failsafe.rounds; r != nil && len(r.Members()) > 0 {
		return min(m.opt.Budget.Grace, cluster.FailsafeGrace(m.opt.Budget.Lease))
	}
	return m.opt.Budget.Grace
}

// holdRounds asks the members for their promises while RENEW is not answered.
func (m *Machine) holdRounds() {
	f := &m.term.failsafe
	if !m.leadsFailsafe() || !m.due(m.roundAt()) {
		return
	}
	f.due = m.now + failsafe.Patience(m.opt.Budget.Lease)
	m.due(m.roundAt()) // not only when a member has answered
	if messages := f.rounds.Begin(m.now); len(messages) > 0 {
		for i, to := range messages {
			messages[i].Address = f.addresses[to.To.Incarnation]
		}
		m.do(SendRound{Messages: messages})
	}
}

// roundAt returns when the next round begins.
func (m *Machine) roundAt() time.Duration {
	f, b := &m.term.failsafe, &m.opt.Budget
	if f.failing {
		return f.due
	}
	return max(f.due, m.term.lease.renewed+b.Renew+failsafe.Patience(b.Lease)/2)
}

// roundEnd returns until when the work may go on by a round, given the limit of the sets that may be in force.
func (m *Machine) roundEnd(until time.Duration) time.Duration {
	if most := m.term.failsafe.rounds.Max(); until != 0 && most != 0 {
		return min(until, m.term.lease.renewed+most)
	}
	return until
}

// failed notes that a write had no reply.
func (m *Machine) failed() { m.term.failsafe.failing = m.term.failsafe.rounds != nil }

// sawGone notes that current of the fence's term is gone.
func (m *Machine) sawGone() {
	s := &m.snap
	if !s.HolderRead || !s.Fence.Readable() || s.Current.Exists || s.Fence.Record.Failsafe == nil ||
		s.Fence.Record.Term <= m.succession.gone {
		return
	}
	m.succession.gone, m.succession.since = s.Fence.Record.Term, m.now
	if m.opt.Failsafe != nil {
		m.do(CurrentGone{Term: m.succession.gone})
	}
}

// right returns the right by which this member may acquire over the fence.
func (m *Machine) right(f *cluster.Fence) cluster.Succession {
	key := ""
	if m.opt.Failsafe != nil {
		key = m.opt.Failsafe.Key
	}
	right := f.Succession(m.opt.Self.ID, key)
	if right == cluster.SuccessionFree && key != "" && f.State == cluster.FenceRevoked && f.Failsafe == nil {
		return cluster.SuccessionMember // the fence was lost, and with it whether this member has promised something
	}
	return right
}

// maySucceed reports whether nobody works on in the fence's term because of what members have promised, and whoever is
// bound by that has made sure of it (S1).
func (m *Machine) maySucceed(f *cluster.Fence) bool {
	switch m.right(f) {
	case cluster.SuccessionFree, cluster.SuccessionOwner:
		return true
	case cluster.SuccessionMember:
		return m.remembers(f.Term)
	}
	wait := f.CapWait()
	return wait != 0 && m.succession.gone == f.Term && m.due(m.succession.since+wait)
}

// MaySucceed reports whether this member may put an end to the term of the fence. If it first has to record that it
// promises nothing any more, the next step sees to that. While the daemon is bound it cannot, and must not do so later
// without another call: by then the holder may have been heard again, and would stop its work without need.
func (m *Machine) MaySucceed() bool {
	f := &m.snap.Fence.Record
	if right := m.right(f); right == cluster.SuccessionMember && m.succession.remembered < f.Term {
		if m.now >= m.succession.rememberAt {
			m.toRemember = f.Term
		}
		return false
	} else if right == cluster.SuccessionBarred {
		return false
	}
	return true
}

// remembers reports whether this member has recorded that it never promises anything for the term again, and else sees
// to it.
func (m *Machine) remembers(term int64) bool {
	s := &m.succession
	if s.remembered < term && s.remembering != term && m.due(s.rememberAt) {
		s.remembering = term
		m.do(Remember{Term: term})
	}
	return s.remembered >= term
}

// veto lets a candidate acquire that has no right of its own to do so.
func (m *Machine) veto() {
	s := &m.snap
	if m.opt.Failsafe == nil || m.term.held || m.term.stop != nil || m.term.task != taskNone || m.working() ||
		m.ended != "" || m.tx.pending != TxNone ||
		!m.fresh || !s.HolderRead || s.Current.Exists || !s.Fence.Readable() || s.Fence.Record.Failsafe == nil ||
		s.Newer() != nil || !m.vetoes() {
		return
	}
	f := &s.Fence.Record
	switch f.Succession(m.opt.Self.ID, m.opt.Failsafe.Key) {
	case cluster.SuccessionOwner:
	case cluster.SuccessionMember:
		if !m.remembers(f.Term) {
			return
		}
	default:
		return
	}
	m.send(TxVeto, m.opt.Paths.VetoTx(*s, m.opt.Self.ID), m.now+m.opt.Budget.Lease)
}

// vetoes reports whether this member vetoes now. A candidate that may have a right of its own is left to use it for a
// while: its key is not known here.
func (m *Machine) vetoes() bool {
	s := &m.snap
	f, e := &s.Fence.Record, &s.Elected
	if m.succession.gone != f.Term || !e.Readable() || e.Record.Term <= f.Term ||
		e.Record.Incarnation == m.opt.Self.Name && m.quit == nil {
		return false
	}
	return m.due(m.retryAt) && (!f.Names(e.Record.Node) || m.due(m.succession.since+3*m.opt.Budget.LeaseWait))
}

type (
	// SendRound asks members for promises. Each reply is reported by a [RoundReply], also if a message cannot be sent
	// or is not answered ([failsafe.ReasonUnreachable]); nothing is repeated.
	SendRound struct{ Messages []failsafe.Message }
	// Remember makes the daemon refuse every later promise for a term, unless it is bound: [failsafe.Promises.Veto],
	// and then the state is stored. [Remembered] reports the outcome; nothing is repeated.
	Remember struct{ Term int64 }
	// CurrentGone reports that current of a term was seen to be gone, for [failsafe.Promises.Gone].
	CurrentGone struct{ Term int64 }

	// RoundReply reports a reply to a [SendRound], however late. It must be authenticated if it promises something or
	// says that the member has vetoed.
	RoundReply struct{ Reply failsafe.Reply }
	// Remembered reports the outcome of a [Remember].
	Remembered struct {
		Term int64
		// Bound is until when the daemon is bound, so that nothing was recorded; 0 if it is not.
		Bound time.Duration
		Err   error
	}
)

func (SendRound) action()   {}
func (Remember) action()    {}
func (CurrentGone) action() {}

// apply extends the lease once all have promised. A late reply never revives a lease.
func (e RoundReply) apply(m *Machine) {
	if !m.leadsFailsafe() {
		return
	}
	f := &m.term.failsafe
	if rep := &e.Reply; !rep.OK && f.rounds.Concerns(*rep) {
		switch {
		case rep.Reason == failsafe.ReasonVetoed:
			m.giveUp(Stop{Reason: rep.Request.Member + " has allowed another member to take over"})
		case rep.Retry > 0:
			f.due = min(f.due, m.now+max(time.Duration(rep.Retry), failsafe.Patience(m.opt.Budget.Lease)/8))
		}
		return
	}
	if until := m.roundEnd(f.rounds.Reply(e.Reply)); until > m.term.lease.deadline {
		f.extended, m.term.lease.deadline = until, until
		m.do(Lease{Deadline: until})
	}
}

func (e Remembered) apply(m *Machine) {
	s := &m.succession
	if s.remembering == e.Term {
		s.remembering = 0
	}
	if e.Err != nil {
		m.do(Note{Text: "cannot record that this member refuses promises, so it does not take over: " + e.Err.Error()})
		s.rememberAt = m.now + m.opt.Budget.Renew
		return
	}
	if e.Bound != 0 {
		s.rememberAt = e.Bound
		return
	}
	s.remembered = max(s.remembered, e.Term)
}
