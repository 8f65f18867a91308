package transition

import (
	"errors"
	"time"

	"zkelectd/internal/cluster"
)

// Tx names a transaction of this member (docs/protocol.md, Transactions).
type Tx string

// The transactions that a machine sends; TxNone is none.
const (
	TxNone    Tx = ""
	TxAcquire Tx = "ACQUIRE"
	TxReady   Tx = "READY"
	TxRenew   Tx = "RENEW"
	TxRelease Tx = "RELEASE"
)

// Event is something that a machine must know of.
type Event interface{ apply(m *Machine) }

type (
	// Saw reports a new snapshot.
	Saw struct{ Snapshot cluster.Snapshot }
	// TxDone reports the outcome of the transaction under way.
	TxDone struct {
		Tx      Tx
		Results []cluster.Result
		Err     error
	}
	// HookDone reports that the hook has ended.
	HookDone struct{ Err error }
	// ChildStarted reports that the child's process group exists.
	ChildStarted struct{}
	// ChildReady reports that the readiness probe has succeeded.
	ChildReady struct{}
	// ChildFailed reports that the child could not be started, did not become ready, or fails its liveness probe. It may come
	// late, after the end of the term.
	ChildFailed struct{ Err error }
	// ChildDead reports that no process of the child's group is left, and how the child ended.
	ChildDead struct{ Status string }
	// Quit asks to give up leadership and to end the session; a second one, to do so without grace. Failed is set if this was
	// not requested: the daemon has lost something that it needs in order to lead.
	Quit struct {
		Reason string
		Failed bool
	}
	// LeaseCut reports that no lease of this session may outlast Deadline, because a server has granted a shorter session
	// timeout (docs/protocol.md, The timeout can change). The work is stopped by then, leadership released, and the session
	// ended.
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
	// Send sends a transaction; its outcome is reported by [TxDone]. If there is no reply by Deadline, the session must end.
	Send struct {
		Tx       Tx
		Ops      []cluster.Op
		Deadline time.Duration
	}
	// Lease sets the time at which the work is killed if it is still running; 0: no lease, no work.
	Lease struct{ Deadline time.Duration }
	// RunPreStart runs the hook that prepares the work. It counts as work: it must have ended by Deadline. [HookDone] reports
	// its end.
	RunPreStart struct {
		Term     int64
		Deadline time.Duration
	}
	// RunPostStop runs the hook that undoes the preparation, even if the lease is over. [HookDone] reports its end.
	RunPostStop struct{ Term int64 }
	// StartChild starts the child with its fencing token and waits until it is ready.
	StartChild struct{ Term int64 }
	// StopTask stops the hook or the child gracefully, and kills it after Grace.
	StopTask struct{ Grace time.Duration }
	// KillTask kills the hook or the child at once.
	KillTask struct{}
	// Entrust hands LEAVE over (docs/protocol.md, Transactions): if this daemon does not release by itself, it must be sent
	// before the session is closed, once the work is dead and undone. Without Ops there is no LEAVE any more.
	Entrust struct{ Ops []cluster.Op }
	// Reread asks for a new snapshot of elected, the fence and current.
	Reread struct{}
	// EndSession asks for the session to be closed, once nothing works any more.
	EndSession struct{ Reason string }
	// Note is a line for the log.
	Note struct{ Text string }
	// Announce reports a change of phase to people and to the on_change hook.
	Announce struct {
		Phase  Phase
		Term   int64
		Reason string
	}
)

func (Send) action()        {}
func (Lease) action()       {}
func (RunPreStart) action() {}
func (RunPostStop) action() {}
func (StartChild) action()  {}
func (StopTask) action()    {}
func (KillTask) action()    {}
func (Entrust) action()     {}
func (Reread) action()      {}
func (EndSession) action()  {}
func (Note) action()        {}
func (Announce) action()    {}

func (e Saw) apply(m *Machine) {
	if e.Snapshot.At < m.settled {
		return
	}
	m.snap, m.fresh = e.Snapshot, true
	if e.Snapshot.SelfLost {
		m.end("its own registration is gone or damaged")
	}
}

func (e TxDone) apply(m *Machine) {
	if e.Tx != m.tx.pending {
		return
	}
	m.tx.pending = TxNone
	if e.Tx != TxRenew {
		// From here on only newer snapshots count.
		m.settled, m.fresh = m.now, false
		m.do(Reread{})
	}
	switch {
	case e.Err == nil:
		m.applied(e)
	case errors.Is(e.Err, cluster.ErrSessionEnded):
		// SessionEnded follows, with the reason.
	case errors.Is(e.Err, cluster.ErrNotSent), errors.Is(e.Err, cluster.ErrUnknown):
		m.retryAt = m.now + m.opt.Budget.Renew/4
		if e.Tx == TxRenew {
			m.term.lease.renewed = 0 // RENEW changes nothing, so its outcome does not matter: it is due again
		} else if errors.Is(e.Err, cluster.ErrUnknown) {
			m.term.unresolved = e.Tx
		}
		if m.term.unresolved == TxAcquire {
			m.pendingAcquire = pendingAcquire{m.term.fence.Term, m.term.fenceBefore}
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
		m.acquired(e.Results[cluster.ResultFence].Version, 0)
	case TxReady:
		m.term.holding.Fence = e.Results[cluster.ResultFence].Version
		m.term.holding.Current = e.Results[cluster.ResultCurrent].Version
		m.declared()
	case TxRenew:
		m.extend()
	case TxRelease:
		if m.term.held { // a snapshot may have shown it before the reply came
			m.released()
		}
	}
}

// refused handles a transaction that was refused: another write came first, or this member's incarnation is gone.
func (m *Machine) refused(e TxDone) {
	var refusal *cluster.TxError
	if errors.As(e.Err, &refusal) && refusal.Index == 0 && errors.Is(e.Err, cluster.ErrNoNode) {
		m.end("its own incarnation is gone")
		return
	}
	switch e.Tx {
	case TxAcquire:
		m.refusedAcquire = attempt{m.snap.Elected.Stat.Version, m.snap.Fence.Stat.Version}
		m.retryAt = m.now + m.opt.Budget.Renew
	case TxRelease:
		m.retryAt = m.now + m.opt.Budget.Renew/4
	case TxReady, TxRenew:
		m.term.replaced = true
		m.giveUp(Stop{Reason: string(e.Tx) + " was refused: " + e.Err.Error()})
		m.settled, m.fresh = m.now, false
		m.do(Reread{})
	}
	if e.Tx != TxRenew {
		m.term.unresolved = e.Tx
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

func (e ChildStarted) apply(m *Machine) { m.term.running = true }

func (e ChildReady) apply(m *Machine) {
	if m.term.task == taskStart {
		m.term.task = taskUp
	}
}

func (e ChildFailed) apply(m *Machine) {
	if m.term.held { // otherwise it is about an earlier term, and an ACQUIRE may be under way
		m.giveUp(Stop{Reason: e.Err.Error()})
	}
}

func (e ChildDead) apply(m *Machine) {
	m.term.running = false
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

func (e Quit) apply(m *Machine) {
	m.hurry = m.quitRequested
	m.quitRequested = true
	m.quit = &Stop{Reason: e.Reason, Requested: !e.Failed}
}

func (e LeaseCut) apply(m *Machine) {
	m.leaseLimit = cluster.Earliest(m.leaseLimit, e.Deadline)
	if m.quit == nil {
		m.quit = &Stop{Reason: e.Reason, Requested: true}
	}
	if !m.term.held {
		return
	}
	m.giveUp(*m.quit)
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
