package transition

import (
	"errors"
	"time"

	"zkelectd/internal/cluster"
)

// Tx names a transaction of this member (docs/protocol.md, Transactions). RENEW is not one of them, see [Renew].
type Tx string

// The transactions that a machine sends; TxNone is none.
const (
	TxNone    Tx = ""
	TxAcquire Tx = "ACQUIRE"
	TxReady   Tx = "READY"
	TxRelease Tx = "RELEASE"
	TxValue   Tx = "VALUE"
	// In failsafe mode.
	TxSetMembers Tx = "SETM"
	TxVeto       Tx = "VETO"
)

// Event is something that a machine must know of.
type Event interface{ apply(m *Machine) }

type (
	// Saw reports a new snapshot.
	Saw struct{ Snapshot cluster.Snapshot }
	// Waits reports a new snapshot while this member must not do anything: what it says is only timed.
	Waits struct{ Snapshot cluster.Snapshot }
	// TxDone reports the outcome of the transaction under way.
	TxDone struct {
		Tx      Tx
		Results []cluster.Result
		Err     error
	}
	// RenewDone reports the outcome of a [Renew], with its term and versions. Sent is a time before the RENEW was sent.
	RenewDone struct {
		Term int64
		Held cluster.HeldVersions
		Sent time.Duration
		Err  error
	}
	// Admitted allows the work of the term to start, see [AskToStart].
	Admitted struct{ Term int64 }
	// NodeFenced reports the outcome of [FenceNode], with its term and node. Nothing of it runs any more. Without an
	// error the node is certainly off. By describes what has fenced it.
	NodeFenced struct {
		Term       int64
		Node, Host string
		By         string
		Err        error
	}
	// HookDone reports that the hook has ended.
	HookDone struct{ Err error }
	// ChildStarted reports that the child's process group exists.
	ChildStarted struct{}
	// ChildReady reports that the readiness probe has succeeded. Value is what the work publishes with its leadership.
	ChildReady struct{ Value string }
	// ValueGiven says what the work of Term publishes from now on.
	ValueGiven struct {
		Term  int64
		Value string
	}
	// ChildFailed reports that the child could not be started, did not become ready, or fails its liveness probe. It
	// may come late, after the end of the term.
	ChildFailed struct{ Err error }
	// ChildDead reports that no process of the child's group is left, and how the child ended. Unused is set if nothing
	// of it has worked.
	ChildDead struct {
		Status string
		Unused bool
	}
	// Lent reports that an application lease of Term is about to be handed out. It is not, if [Machine.Lending] says
	// then that it may not be.
	Lent struct{ Term int64 }
	// ApplicationLeasesOver reports that every application lease of Term has been returned, its process is dead, or its
	// end has passed, and that no other one will be handed out.
	ApplicationLeasesOver struct{ Term int64 }
	// Quit asks to give up leadership and to end the membership; a second one, to do so without grace. Failed is set if
	// this was not requested: the daemon has lost something that it needs in order to lead.
	Quit struct {
		Reason string
		Failed bool
	}
	// LeavingPublished reports the outcome of [PublishLeaving].
	LeavingPublished struct{ Err error }
	// Replaced reports that this member itself has elected another one in Term, so that its snapshot would soon show that.
	Replaced struct {
		Term         int64
		Node, Reason string
	}
	// NoSuccessor reports that no member can be elected in place of this one, which is about to end.
	NoSuccessor struct{}
	// LeaseCut reports that no lease of this session may outlast Deadline, because a server has granted a shorter session
	// timeout (docs/protocol.md, The timeout can change). The work is stopped by then, leadership released, and the
	// membership ended.
	LeaseCut struct {
		Deadline time.Duration
		Reason   string
	}
	// SessionEnded reports that the session is over, or must be treated as over.
	SessionEnded struct{ Reason string }
	// Tick reports that time has passed.
	Tick struct{}
)

// Action is something for the caller of [Machine.Step] to do.
type Action interface{ action() }

type (
	// Send sends a transaction; its outcome is reported by [TxDone]. If there is no reply by Deadline, the outcome is
	// [cluster.ErrUnknown]: the session goes on, and the machine reads back what has become of it.
	Send struct {
		Tx       Tx
		Ops      []cluster.Op
		Deadline time.Duration
		Lapsed   bool // it is the RELEASE of a leader that ZooKeeper has not answered
	}
	// Renew posts a RENEW, to be sent at Due at the latest, alone or merged with those of other groups, and never from
	// Deadline on. It replaces the one posted before; without Ops it only withdraws that one. [RenewDone] reports the
	// outcome.
	Renew struct {
		Term          int64
		Held          cluster.HeldVersions
		Ops           []cluster.Op
		Due, Deadline time.Duration
	}
	// Lease sets the time at which the work is killed if it is still running; 0: no lease, no work.
	Lease struct{ Deadline time.Duration }
	// AskToStart asks for [Admitted]: other work on the host may have to start first. Leadership is held meanwhile.
	AskToStart struct{ Term int64 }
	// FenceNode fences the node of an earlier holder. It counts as work: StopTask, KillTask and the end of the lease
	// end it at once. [NodeFenced] reports its end.
	FenceNode struct {
		Term   int64
		Holder cluster.EarlierHolder
	}
	// RunPreStart runs the hook that prepares the work. It counts as work: it ends with the lease. [HookDone] reports
	// its end.
	RunPreStart struct{ Term int64 }
	// RunPostStop runs the hook that undoes the preparation, even if the lease is over. [HookDone] reports its end.
	RunPostStop struct{ Term int64 }
	// StartChild starts the child with its fencing token and waits until it is ready.
	StartChild struct{ Term int64 }
	// StopTask stops the hook or the child gracefully, and kills it after Grace. It kills what fences a node at once.
	StopTask struct{ Grace time.Duration }
	// KillTask kills the hook, the child, or what fences a node at once.
	KillTask struct{}
	// PublishLeaving announces in the record of the node that its membership is about to end, so that a successor is
	// elected. [LeavingPublished] reports the outcome.
	PublishLeaving struct{ Reason string }
	// Entrust hands FINAL over (docs/protocol.md, Transactions): if this daemon does not release by itself, it must be
	// sent before the session is closed, once the work is dead and undone. Without Ops there is no FINAL any more.
	Entrust struct{ Ops []cluster.Op }
	// Reread asks for a new snapshot of elected, the fence and current.
	Reread struct{}
	// End asks to end this membership once the machine is in phase [Ended], with LEAVE or with the session. [Machine.Owed]
	// says how long a successor must wait then.
	End struct{ Reason string }
	// EndSession ends the session at once, without anything else being sent: it is sick, for all of its groups.
	// [SessionEnded] follows.
	EndSession struct{ Reason string }
	// Note is a line for the log.
	Note struct{ Text string }
	// Announce reports a change of phase to people and to the on_change hook.
	Announce struct {
		Phase  Phase
		Term   int64
		Reason string
		// Fencing has what was fenced in the term so far, and how that ended.
		Fencing []cluster.FencingResult
		// GaveUp is set if the leadership has ended although nobody requested that.
		GaveUp bool
	}
)

func (Send) action()           {}
func (Renew) action()          {}
func (Lease) action()          {}
func (AskToStart) action()     {}
func (FenceNode) action()      {}
func (RunPreStart) action()    {}
func (RunPostStop) action()    {}
func (StartChild) action()     {}
func (StopTask) action()       {}
func (KillTask) action()       {}
func (PublishLeaving) action() {}
func (Entrust) action()        {}
func (Reread) action()         {}
func (End) action()            {}
func (EndSession) action()     {}
func (Note) action()           {}
func (Announce) action()       {}

func (e Saw) apply(m *Machine) {
	if e.Snapshot.At < m.settled {
		return
	}
	m.noteVacancy(&e.Snapshot)
	m.snap, m.fresh = e.Snapshot, true
	m.sawGone()
	switch {
	case e.Snapshot.SelfLost:
		m.end("its own registration is gone or damaged")
	case e.Snapshot.DeclaredSilent(m.opt.Self.Name):
		m.end("the group counts it as silent: it has not renewed its lease, or has not taken over in time")
	}
}

func (e Waits) apply(m *Machine) {
	if e.Snapshot.At >= m.settled {
		m.noteVacancy(&e.Snapshot)
	}
}

func (e TxDone) apply(m *Machine) {
	if e.Tx != m.tx.pending {
		return
	}
	m.tx.pending = TxNone
	m.readAgain()
	if e.Err == nil && e.Tx != TxRelease && e.Tx != TxVeto && len(e.Results) <= cluster.ResultCurrent {
		e.Err = cluster.ErrUnknown
	}
	switch {
	case e.Err == nil:
		m.applied(e)
	case cluster.NoAnswer(e.Err):
		// After the end of the session SessionEnded follows, with the reason.
		m.retryAt = m.now + m.opt.Budget.Renew/4
		if e.Tx == TxRelease && errors.Is(e.Err, cluster.ErrNotSent) {
			m.term.releasing = 0 // ZooKeeper is away, which says nothing about the session
		}
		if errors.Is(e.Err, cluster.ErrUnknown) {
			m.term.unresolved = e.Tx
			m.term.value.maybe = m.term.value.maybe || e.Tx == TxValue
		} else if e.Tx == TxSetMembers && errors.Is(e.Err, cluster.ErrNotSent) && m.term.held {
			m.term.failsafe.rounds.NotSent()
		}
		m.failed()
		if m.term.unresolved == TxAcquire {
			sent := m.tx.sent
			if m.pendingAcquire.term == m.term.fence.Term {
				sent = m.pendingAcquire.sent
			}
			m.pendingAcquire = pendingAcquire{m.term.fence.Term, m.term.fenceBefore, sent}
		}
	default:
		m.refused(e)
	}
}

// applied handles a transaction that took effect.
func (m *Machine) applied(e TxDone) {
	switch e.Tx {
	case TxAcquire:
		m.retryAt = 0 // the pause after an earlier ACQUIRE must not delay READY
		m.acquired(m.tx.sent, e.Results[cluster.ResultFence].Version, 0)
	case TxReady:
		if m.term.held { // current may have been deleted since, and a snapshot may have shown that before the reply came
			m.term.holding.Fence = e.Results[cluster.ResultFence].Version
			m.term.holding.Current = e.Results[cluster.ResultCurrent].Version
			m.declared()
		}
	case TxRelease:
		if m.term.held { // likewise
			m.released()
		}
	case TxSetMembers:
		if m.term.held { // likewise
			m.membersSet(m.term.failsafe.sending, e.Results[cluster.ResultFence].Version)
			m.extend(m.tx.sent)
		}
	case TxValue:
		if m.term.held { // likewise
			m.noteCurrent(m.term.sending, e.Results[cluster.ResultCurrent].Version)
		}
	}
}

// refused handles a transaction that was refused: another write came first, or this member's incarnation is gone.
func (m *Machine) refused(e TxDone) {
	if m.goneBy(e.Err) {
		return
	}
	m.term.unresolved = e.Tx
	switch e.Tx {
	case TxAcquire:
		m.refusedAcquire = attempt{m.term.holding.Elected, m.term.fenceBefore}
		m.retryAt = m.now + m.opt.Budget.Renew
	case TxRelease, TxVeto:
		m.term.releasing = 0 // an answer: it is this group's trouble only
		m.retryAt = m.now + m.opt.Budget.Renew/4
	case TxReady:
		m.replacedBy(e.Err, "READY")
	case TxSetMembers, TxValue:
		if !m.suspects(e.Err) {
			m.replacedBy(e.Err, string(e.Tx))
		}
	}
}

// suspects reports whether an own write of unknown outcome may be the reason for a refusal. Then that is read before
// leadership is given up.
func (m *Machine) suspects(err error) bool {
	var refusal *cluster.TxError
	switch {
	case m.term.value.maybe && errors.As(err, &refusal) && refusal.Index == cluster.ResultCurrent:
		m.term.unresolved, m.term.refused = TxValue, err
	case m.maybeSetMembers():
		m.term.unresolved, m.term.refused = TxSetMembers, err
	default:
		return false
	}
	return true
}

// goneBy ends the membership if a refusal shows that this member's incarnation is gone.
func (m *Machine) goneBy(err error) bool {
	var refusal *cluster.TxError
	gone := errors.As(err, &refusal) && refusal.Index == 0 && errors.Is(err, cluster.ErrNoNode)
	if gone {
		m.end("its own incarnation is gone")
	}
	return gone
}

// replacedBy gives leadership up after a refusal: another write came first.
func (m *Machine) replacedBy(err error, tx string) {
	m.lose(Stop{Reason: tx + " was refused: " + err.Error()})
}

// readAgain asks for a new snapshot. From here on only newer ones count.
func (m *Machine) readAgain() {
	m.settled, m.fresh = m.now, false
	m.do(Reread{})
}

// apply ignores what is not about the RENEW that is posted: it may be about an earlier term, or about versions that
// this member has changed itself since.
func (e RenewDone) apply(m *Machine) {
	if m.posted != (renewal{e.Term, e.Held}) {
		return
	}
	m.posted = renewal{}
	switch {
	case e.Err == nil:
		m.extend(e.Sent)
	case cluster.NoAnswer(e.Err):
		m.retryAt = m.now + m.opt.Budget.Renew/4 // RENEW changes nothing, so its outcome does not matter: it is due again
		m.failed()
	case !m.goneBy(e.Err):
		if !m.suspects(e.Err) {
			m.replacedBy(e.Err, "RENEW")
		}
		m.readAgain()
	}
}

func (e Admitted) apply(m *Machine) {
	if m.term.task == taskQueue && m.term.number == e.Term && m.term.stop == nil && m.ended == "" &&
		m.now < m.term.lease.deadline {
		m.prepare()
	}
}

func (e HookDone) apply(m *Machine) {
	switch {
	case m.term.task == taskClean:
		m.term.task = taskDone
		if e.Err != nil {
			// What the work has set up may still exist: the successor waits as if this lease were still running.
			m.term.fence.Owed = max(m.term.fence.Owed, cluster.Duration(m.opt.Budget.LeaseWait))
		}
	case m.term.task != taskPrepare:
	case e.Err != nil:
		m.term.task = taskDone
		m.giveUp(Stop{Reason: e.Err.Error()})
	case m.term.stop != nil || m.ended != "":
		m.term.task = taskDone
	default:
		m.term.task = taskLaunch // unless the lease is about to end
	}
}

func (e ChildStarted) apply(m *Machine) {
	m.term.running, m.term.idle.ended, m.term.value.newer = true, 0, false
}

// apply keeps what a ValueGiven has said that is newer, or what the work before a restart has published.
func (e ChildReady) apply(m *Machine) {
	if m.term.task != taskStart {
		return
	}
	m.term.task = taskUp
	if e.Value != "" && !m.term.value.newer {
		m.term.value.wanted = e.Value
	}
}

func (e ValueGiven) apply(m *Machine) {
	if m.term.held && m.term.number == e.Term {
		m.term.value.wanted, m.term.value.newer = e.Value, true
	}
}

func (e ChildFailed) apply(m *Machine) {
	if m.term.held { // otherwise it is about an earlier term, and an ACQUIRE may be under way
		m.giveUp(Stop{Reason: e.Err.Error()})
	}
}

func (e ChildDead) apply(m *Machine) {
	m.term.running, m.term.idle.ended = false, m.now
	if e.Unused && m.last.Term == m.term.number {
		m.term.idle.ended = m.last.Ended // of the child before
	}
	m.noteLastWork()
	switch {
	case !m.term.held: // as for ChildFailed
	case m.term.stop != nil || m.ended != "":
		m.term.task = taskDone
	case !m.term.ready:
		m.term.task = taskDone
		m.giveUp(Stop{Reason: "the child " + e.Status + " before it was ready"})
	default:
		m.childExited(e.Status)
	}
}

func (e Lent) apply(m *Machine) {
	if l := m.Lending(); l.Open && l.Term == e.Term {
		m.term.lent, m.last = true, LastWork{}
	}
}

func (e ApplicationLeasesOver) apply(m *Machine) {
	if l := m.Lending(); !l.Lent || l.Open || l.Term != e.Term {
		return
	}
	m.term.lent = false
	if !m.term.running {
		m.term.idle.ended = m.now
		m.noteLastWork()
	}
}

func (e Quit) apply(m *Machine) {
	m.hurry = m.quitRequested
	m.quitRequested = true
	m.quit = &Stop{Reason: e.Reason, Requested: !e.Failed}
}

// apply goes on waiting after an unknown outcome: the elector may have read the announcement.
func (e LeavingPublished) apply(m *Machine) {
	if e.Err != nil && !errors.Is(e.Err, cluster.ErrUnknown) {
		m.term.leaving.pointless = true
	}
}

func (e Replaced) apply(m *Machine) {
	if m.term.held && e.Term > m.term.number {
		m.lose(replaced(e.Node, e.Term, e.Reason))
	}
}

func (NoSuccessor) apply(m *Machine) { m.term.leaving.pointless = true }

func (e LeaseCut) apply(m *Machine) {
	m.leaseLimit = cluster.Earliest(m.leaseLimit, e.Deadline)
	if m.quit == nil {
		m.quit = &Stop{Reason: e.Reason, Requested: true}
	}
	if !m.term.held {
		return
	}
	m.giveUp(*m.quit)
	m.term.failsafe.extended = 0 // the session ends in any case
	if m.leaseLimit < m.term.lease.deadline {
		m.term.lease.deadline = m.leaseLimit
		m.do(Lease{Deadline: m.term.lease.deadline})
	}
}

func (e SessionEnded) apply(m *Machine) {
	if m.ended == "" {
		m.ended = e.Reason
	}
	m.tx.pending = TxNone // there will be no reply
}

func (Tick) apply(*Machine) {}
