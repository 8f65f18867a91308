package transition

import (
	"errors"
	"time"

	"zkelectd/internal/cluster"
)

// Tx is a transaction of this daemon.
type Tx string

// The transactions that a machine sends.
const (
	TxNone    Tx = ""
	TxAcquire Tx = "ACQUIRE"
	TxReady   Tx = "READY"
	TxRenew   Tx = "RENEW"
	TxRelease Tx = "RELEASE"
)

// Event is something that happened to the daemon.
type Event interface{ apply(m *Machine) }

type (
	// Saw is a new snapshot.
	Saw struct{ Snapshot cluster.Snapshot }
	// TxDone is the outcome of the transaction under way.
	TxDone struct {
		Tx      Tx
		Results []cluster.Result
		Err     error
	}
	// HookDone ends the hook that was run.
	HookDone struct{ Err error }
	// ChildStarted says that the child's process group exists; ChildReady that it serves.
	ChildStarted struct{}
	ChildReady   struct{}
	// ChildFailed says that the child could not be started or did not become ready.
	ChildFailed struct{ Err error }
	// ChildDead says that no process of the child's group is left, and how it went.
	ChildDead struct{ Status string }
	// Quit asks to give up leadership and end; the second time, without grace. Failed says that nobody has asked for it: what
	// this daemon needs in order to lead is lost.
	Quit struct {
		Reason string
		Failed bool
	}
	// LeaseCut says that no lease of this session may outlast Deadline: a server counts by a shorter session timeout. The
	// work is stopped by then, leadership released, and the session ended.
	LeaseCut struct {
		Deadline time.Duration
		Reason   string
	}
	// SessionEnded says that the session is over, or must be treated so.
	SessionEnded struct{ Reason string }
	// Tick says that time has passed.
	Tick struct{}
)

// Action is something for the shells to do.
type Action interface{ action() }

type (
	// Send is a transaction; its outcome comes back as [TxDone]. By Deadline without a reply the session must end.
	Send struct {
		Tx       Tx
		Ops      []cluster.Op
		Deadline time.Duration
	}
	// Lease says until when work may go on; whoever enforces it kills the task then. 0: no lease, no work.
	Lease struct{ Deadline time.Duration }
	// RunPreStart runs the hook before the child, which counts as work: it must be over by Deadline. RunPostStop runs
	// the one after it, also when the lease is over: it only undoes. Either ends with [HookDone].
	RunPreStart struct {
		Term     int64
		Deadline time.Duration
	}
	RunPostStop struct{ Term int64 }
	// StartChild starts the child with its fencing token and waits for its readiness.
	StartChild struct{ Term int64 }
	// StopTask stops the hook or child: gracefully, killed after Grace.
	StopTask struct{ Grace time.Duration }
	// KillTask kills it at once.
	KillTask struct{}
	// Entrust hands over LEAVE: should this daemon not release by itself, it must be sent before the session is closed, once
	// the work is dead and undone. None takes it back.
	Entrust struct{ Ops []cluster.Op }
	// Reread asks for a new snapshot of elected, the fence and current.
	Reread struct{}
	// EndSession asks for the session to be closed, once nothing works any more.
	EndSession struct{ Reason string }
	// Note is worth a line in the log.
	Note struct{ Text string }
	// Announce reports a transition to people and to the on_change hook.
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
	m.snap, m.seen = e.Snapshot, true
	if e.Snapshot.SelfLost {
		m.end("its own registration is gone or damaged")
	}
}

func (e TxDone) apply(m *Machine) {
	if e.Tx != m.pending {
		return
	}
	m.pending = TxNone
	if e.Tx != TxRenew {
		// Judge only by what is read from now on.
		m.settled, m.seen = m.now, false
		m.do(Reread{})
	}
	switch {
	case e.Err == nil:
		m.applied(e)
	case errors.Is(e.Err, cluster.ErrSessionEnded):
		// SessionEnded follows, with the reason.
	case errors.Is(e.Err, cluster.ErrNotSent), errors.Is(e.Err, cluster.ErrUnknown):
		m.again = m.now + m.opt.Budget.Renew/4
		if e.Tx == TxRenew {
			m.renewed = 0 // it changes nothing, so its outcome does not matter: it is due again
		} else if errors.Is(e.Err, cluster.ErrUnknown) {
			m.unknown = e.Tx
		}
		if m.unknown == TxAcquire {
			m.doubt = doubt{m.fence.Term, m.moving}
		}
	default:
		m.refused(e)
	}
}

// applied takes in a transaction that took effect.
func (m *Machine) applied(e TxDone) {
	switch e.Tx {
	case TxAcquire:
		m.again = 0 // what an earlier ACQUIRE had to wait for must not keep READY waiting
		m.acquired(e.Results[cluster.ResultFence].Version, 0)
	case TxReady:
		m.holding.Fence = e.Results[cluster.ResultFence].Version
		m.holding.Current = e.Results[cluster.ResultCurrent].Version
		m.declared()
	case TxRenew:
		m.extend()
	case TxRelease:
		if m.held { // what was read may have told of it before its reply did
			m.released()
		}
	}
}

// refused takes in a transaction that was turned down: somebody else was faster, or the own incarnation is gone.
func (m *Machine) refused(e TxDone) {
	var refusal *cluster.TxError
	if errors.As(e.Err, &refusal) && refusal.Index == 0 && errors.Is(e.Err, cluster.ErrNoNode) {
		m.end("its own incarnation is gone")
		return
	}
	switch e.Tx {
	case TxAcquire:
		m.tried = attempt{m.snap.Elected.Stat.Version, m.snap.Fence.Stat.Version}
		m.again = m.now + m.opt.Budget.Renew
	case TxRelease:
		m.again = m.now + m.opt.Budget.Renew/4
	case TxReady, TxRenew:
		m.replaced = true
		m.giveUp(Stop{Reason: string(e.Tx) + " was refused: " + e.Err.Error()})
		m.settled, m.seen = m.now, false
		m.do(Reread{})
	}
	if e.Tx != TxRenew {
		m.unknown = e.Tx
	}
}

func (e HookDone) apply(m *Machine) {
	switch {
	case m.task == taskClean:
		m.task = taskDone
		if e.Err != nil {
			// What the work has set up may still be there: the successor waits as for a lease that may run.
			m.fence.Owed = max(m.fence.Owed, cluster.Duration(m.opt.Budget.WaitOut))
		}
	case m.task != taskPrepare:
	case e.Err != nil:
		m.task = taskDone
		m.giveUp(Stop{Reason: e.Err.Error()})
	case m.stop != nil || m.ended != "":
		m.task = taskDone
	default:
		m.task = taskLaunch // unless the lease is nearly over by now
	}
}

func (e ChildStarted) apply(m *Machine) { m.running = true }

func (e ChildReady) apply(m *Machine) {
	if m.task == taskStart {
		m.task = taskUp
	}
}

func (e ChildFailed) apply(m *Machine) { m.giveUp(Stop{Reason: e.Err.Error()}) }

func (e ChildDead) apply(m *Machine) {
	m.running = false
	switch {
	case m.stop != nil || m.ended != "":
		m.task = taskDone
	case !m.ready:
		m.task = taskDone
		m.giveUp(Stop{Reason: "the child " + e.Status + " before it was ready"})
	default:
		m.childExited(e.Status)
	}
}

func (e Quit) apply(m *Machine) {
	m.hurry = m.asked
	m.asked = true
	m.quit = &Stop{Reason: e.Reason, Requested: !e.Failed}
}

func (e LeaseCut) apply(m *Machine) {
	m.cut = cluster.Earlier(m.cut, e.Deadline)
	if m.quit == nil {
		m.quit = &Stop{Reason: e.Reason, Requested: true}
	}
	if !m.held {
		return
	}
	m.giveUp(*m.quit)
	if m.cut < m.deadline {
		m.deadline = m.cut
		m.do(Lease{Deadline: m.deadline})
	}
}

func (e SessionEnded) apply(m *Machine) {
	if m.ended == "" {
		m.ended = e.Reason
	}
	m.pending = TxNone // no reply can come any more
}

func (Tick) apply(*Machine) {}
