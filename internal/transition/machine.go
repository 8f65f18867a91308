// Package transition is the state machine of one membership of a group: standby, acquiring, taking over,
// leading, stopping (docs/protocol.md, Taking over; Leading, and the lease). It is pure: [Machine.Step] turns an event
// and a time into actions, and performs none of them.
package transition

import (
	"time"

	"zkelectd/internal/cluster"
)

// Options describe the member that a machine runs for.
type Options struct {
	Paths  cluster.Paths
	Self   cluster.Incarnation
	Site   string
	Host   string
	API    string
	Budget cluster.Budget
	// LeaseZnode is the lease znode of the session; empty if it has none.
	LeaseZnode string
	// Epoch is the one that the instance was started for, see [cluster.Slots]; 0 in a group with one leader.
	Epoch int64
	// LastTerm is the highest term that the daemon knew before it registered: this incarnation acquires none that is
	// not above it.
	LastTerm int64
	// LastWork is what [Machine.LastWork] of the member before has returned.
	LastWork LastWork
	// Wall returns the wall-clock time, which is only written into records, for people.
	Wall func() time.Time
	// A child that exits is restarted in place after RestartBackoff, up to RestartMax times within RestartWindow.
	RestartMax     int
	RestartWindow  time.Duration
	RestartBackoff time.Duration
	// Failsafe is nil if the member takes no part in failsafe mode.
	Failsafe *Failsafe
	// Admission makes a takeover wait for [Admitted] before its work starts, see [AskToStart].
	Admission bool
	Fencing   Fencing
	// Takeover is how long this member may take to start its work; the elector's watchdog reads it in the fence.
	Takeover time.Duration
}

// Phase is the state of a member as shown to people.
type Phase string

// The phases.
const (
	Standby   Phase = "standby"
	Waiting   Phase = "waiting"    // elected, but the predecessor has not released
	Acquiring Phase = "acquiring"  // ACQUIRE is under way
	LeaseWait Phase = "lease-wait" // an older lease may still be running
	Queued    Phase = "queued"     // the host starts the work of other groups first
	Preparing Phase = "preparing"  // the pre_start hook is running
	Starting  Phase = "starting"   // the child has been started and is not ready
	Declaring Phase = "declaring"  // the child is ready, READY is under way
	Leading   Phase = "leading"
	Stopping  Phase = "stopping" // the child is being stopped
	Releasing Phase = "releasing"
	Ended     Phase = "ended" // the membership is over and the child is dead
)

// task is the step that the leader-only work is at.
type task int

const (
	taskNone    task = iota
	taskWait         // waiting until every older lease is over
	taskQueue        // waiting for Admitted
	taskPrepare      // pre_start is running
	taskLaunch       // pre_start has succeeded, the child is to be started
	taskStart        // the child has been started and is not ready
	taskUp           // the child is ready
	taskRestart      // the child has exited by itself, waiting to restart it
	taskClean        // post_stop is running
	taskDone         // nothing runs any more
)

// Stop says why leadership is given up.
type Stop struct {
	Reason string
	// Requested is set if this was asked for: then it is no strike.
	Requested bool
	// Lapsed is set if ZooKeeper has not answered in time: that is no strike either.
	Lapsed bool
}

// Machine is the state machine of one membership. It must be used by one goroutine only.
type Machine struct {
	opt Options
	out []Action
	now time.Duration
	// wakeAt is the first of the times that [Machine.due] has found not to have come yet; 0 if there is none.
	wakeAt time.Duration

	// What follows belongs to the membership: the end of a term leaves it as it is.

	snap    cluster.Snapshot
	fresh   bool          // snap was read after the last transaction ended
	settled time.Duration // when that transaction ended; older snapshots are ignored
	tx      transaction
	retryAt time.Duration // a transaction that failed is not repeated before this

	refusedAcquire attempt        // the last ACQUIRE that was refused
	pendingAcquire pendingAcquire // the last ACQUIRE of unknown outcome
	vacancy        vacancy
	last           LastWork
	// the last term acquired, or known before; none is acquired twice, even if the fence forgets it
	lastTerm    int64
	entrusted   final         // the FINAL handed over last
	posted      renewal       // the RENEW that is posted; the zero value if there is none
	postedUntil time.Duration // its deadline
	succession  succession
	toRemember  int64 // the term for which MaySucceed has asked; 0 if it has not

	quit          *Stop            // the membership is to end in order, after a Quit or LeaseCut
	quitRequested bool             // there was a Quit
	hurry         bool             // there was a second Quit: stop without grace
	leaseLimit    time.Duration    // no lease of this session may outlast this; 0 for no limit
	ended         string           // why the membership is over, empty while it is not
	owed          cluster.Duration // by the last term that was held

	// term is what belongs to one term, from the preparation of its ACQUIRE to its release. A new one begins from the zero
	// value.
	term termState
}

// transaction is the transaction under way, at most one at a time.
type transaction struct {
	pending Tx            // TxNone if none is under way
	sent    time.Duration // when the last one was sent
}

// termState is what a machine knows and does about one term.
type termState struct {
	held        bool
	number      int64 // the term
	fence       cluster.Fence
	origin      Origin
	current     cluster.Current // as last known to be written
	sending     cluster.Current // of the READY or VALUE that was sent last
	value       value
	holding     cluster.HeldVersions
	fenceBefore int32 // the version of the fence that ACQUIRE replaces
	unresolved  Tx    // the transaction whose outcome must be read back
	// why another one was refused, while it is not known whether an own one of unknown outcome is the reason
	refused  error
	lease    lease
	replaced bool // RENEW would be refused

	task       task
	acquiredAt time.Duration // when the reply to ACQUIRE came
	idle       idle
	fencing    fencing
	running    bool // the child's process group exists
	prepared   bool // pre_start was started, so post_stop must run
	ready      bool // READY has been written
	lent       bool // application leases may be out: they count as work
	restartAt  time.Duration
	exits      []time.Duration
	stop       *Stop         // leadership is being given up
	stopBy     time.Duration // when its work must be dead, even if the lease is renewed further
	leaving    leaving
	releasing  time.Duration // since when RELEASE has been sent without an answer; 0 if it has not
	stopSent   bool
	stopAt     time.Duration // by when the work was asked to stop
	killSent   bool
	failsafe   failsafeTerm
}

// vacancy is what the fence and the decision say of how long no leader's work has run, and when this member has read
// each first.
type vacancy struct {
	term, decision     int64 // of the fence and of the decision
	state              cluster.FenceState
	holderRead         bool // by the snapshot before, and the fence was readable
	fence, elected     *cluster.Gap
	fenceAt, electedAt time.Duration
}

// idle is how long no leader's work has run.
type idle struct {
	before *cluster.Gap  // when the term was acquired; nil if that is not known
	since  time.Duration // when that was
	ended  time.Duration // once the term was READY: when the last process of its work was gone; 0 while that is not known
}

// LastWork says when the work of the last term that was READY here had ended, all of its processes being gone. Term is
// 0 if there was none.
type LastWork struct {
	Term  int64
	Ended time.Duration // on CLOCK_BOOTTIME
}

// Origin is what preceded a term.
type Origin struct {
	Cause cluster.Cause
	// Node held the term before; empty if that is not known. Clean is set if its end left nothing to wait for.
	Node  string
	Clean bool
}

// leaving is the wait of a leader that is about to end for the election of its successor (docs/protocol.md, Stopping).
type leaving struct {
	announced bool
	began     time.Duration
	pointless bool // nobody will be elected in time
}

// lease is how long the work of a term may go on (docs/protocol.md, Leading, and the lease).
type lease struct {
	deadline time.Duration // D after renewed, or the session's limit
	renewed  time.Duration // when the last ACQUIRE or RENEW that was successful was sent
	took     time.Duration // from then until its reply; not known of ACQUIRE
}

// renewal identifies a RENEW: a reply counts only for what it was posted for.
type renewal struct {
	term int64
	held cluster.HeldVersions
}

// attempt identifies an ACQUIRE by the versions that it checks.
type attempt struct{ elected, fence int32 }

// final identifies a FINAL by what it is made from; the zero value means that there is none.
type final struct {
	holding cluster.HeldVersions
	term    int64
	owed    cluster.Duration
	fencing int // attempts
	led     bool
}

// pendingAcquire identifies an ACQUIRE by its term and the version of the fence that it would have replaced.
type pendingAcquire struct {
	term  int64
	fence int32         // the version that it replaces
	sent  time.Duration // when the first one for this term was sent whose outcome is unknown
}

// New returns a machine in [Standby].
func New(opt Options) *Machine {
	return &Machine{opt: opt, lastTerm: opt.LastTerm, last: opt.LastWork}
}

// LastWork returns when the work of the last term ended that was READY on this host.
func (m *Machine) LastWork() LastWork { return m.last }

// Step handles an event that happened at now, on the daemon's CLOCK_BOOTTIME, and returns what to do, in order.
func (m *Machine) Step(now time.Duration, ev Event) []Action {
	m.now, m.wakeAt = now, 0
	ev.apply(m)
	m.decide()
	out := m.out
	m.out = nil
	return out
}

// due reports whether a time has come. If it has not, [Machine.Wake] returns it, unless another one comes first.
func (m *Machine) due(at time.Duration) bool {
	if m.now < at {
		m.wakeAt = cluster.Earliest(m.wakeAt, at)
	}
	return m.now >= at
}

// Wake returns when Step must be called with a [Tick] if nothing happens before; 0 means never.
func (m *Machine) Wake() time.Duration {
	if m.term.held && m.due(m.term.lease.deadline-m.grace()) { // decide may have changed both after it had looked
		m.due(m.term.lease.deadline)
	}
	m.due(m.succession.rememberAt)
	if m.toRemember != 0 && m.succession.remembering == 0 {
		m.due(m.now + 1)
	}
	return m.wakeAt
}

// Phase returns the member's phase.
func (m *Machine) Phase() Phase {
	switch {
	case m.ended != "" && m.Idle():
		return Ended
	case m.term.stop != nil && m.working():
		return Stopping
	case m.term.stop != nil:
		return Releasing
	case m.term.task == taskUp && m.term.ready, m.term.task == taskRestart:
		return Leading
	case m.term.task == taskUp:
		return Declaring
	case m.term.task == taskStart:
		return Starting
	case m.term.task == taskPrepare, m.term.task == taskLaunch:
		return Preparing
	case m.term.task == taskQueue:
		return Queued
	case m.term.task == taskWait:
		return LeaseWait
	case m.tx.pending == TxAcquire:
		return Acquiring
	case m.fresh && m.elected():
		return Waiting
	}
	return Standby
}

// Term returns the term that is held, 0 if none is.
func (m *Machine) Term() int64 {
	if !m.term.held {
		return 0
	}
	return m.term.number
}

// Origin returns what preceded the term that is held, or whose ACQUIRE is under way.
func (m *Machine) Origin() Origin { return m.term.origin }

// Deadline returns when the lease ends, 0 if no term is held.
func (m *Machine) Deadline() time.Duration {
	if !m.term.held {
		return 0
	}
	return m.term.lease.deadline
}

// Lending says whether application leases of a term may be handed out (docs/protocol.md, Application leases).
type Lending struct {
	Term  int64 // that is held; 0 for none
	Value string
	// Open is set while new leases may be handed out, and Lent once the machine knows of one.
	Open, Lent bool
	// StopBy is by when those who have one must stop; 0 while they need not, or once there is no time left.
	StopBy time.Duration
}

// Lending returns what is handed out of the lease.
func (m *Machine) Lending() Lending {
	t := &m.term
	if !t.held {
		return Lending{}
	}
	return Lending{
		Term: t.number, Value: t.current.Value, Open: t.ready && t.stop == nil && m.ended == "", Lent: t.lent,
		StopBy: t.stopAt,
	}
}

// Running reports whether the child's process group exists.
func (m *Machine) Running() bool { return m.term.running }

// Owed returns how long a successor of the last term that was held must wait. LEAVE passes it on if that term was not
// released.
func (m *Machine) Owed() time.Duration { return time.Duration(m.owed) }

// AwaitsSuccessor reports whether the work goes on because a successor may be elected before the membership ends.
func (m *Machine) AwaitsSuccessor() bool {
	t := &m.term
	return t.held && t.stop == nil && t.leaving.announced && !t.leaving.pointless
}

// Idle reports whether no term is held, nothing runs and no transaction is under way: the membership may end.
func (m *Machine) Idle() bool {
	return !m.term.held && !m.working() && m.term.task != taskClean && m.tx.pending == TxNone
}

// working reports whether something is running that must end before the lease does (S1). This does not include
// post_stop, which only undoes, and includes fencing: only a holder with a lease may fence. Nothing can kill those
// who have application leases: in a hurry, the successor waits for them instead.
func (m *Machine) working() bool {
	return m.term.running || m.term.task == taskPrepare || m.term.fencing.node != "" || m.term.lent && !m.hurry
}

// remainingWait returns how long a successor must wait for what is left of the term.
func (m *Machine) remainingWait() cluster.Duration {
	if m.term.lent {
		return max(m.term.fence.Owed, cluster.Duration(m.opt.Budget.LeaseWait))
	}
	return m.term.fence.Owed
}

// elected reports whether the decision names this incarnation, in a term that has not been acquired.
func (m *Machine) elected() bool {
	elected, fenceTerm := m.snap.Terms()
	return m.snap.Elected.Readable() && m.snap.Elected.Record.Incarnation == m.opt.Self.Name &&
		elected > m.lastTerm && (!m.snap.HolderRead || (fenceTerm < elected && !m.maybeAcquired(elected)))
}

// maybeAcquired reports whether a term may have been acquired by an ACQUIRE whose reply was lost, and whose fence has
// been wiped since.
func (m *Machine) maybeAcquired(term int64) bool {
	return m.pendingAcquire.term == term && m.snap.Fence.Stat.Version != m.pendingAcquire.fence
}

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

// giveUp starts giving leadership up; the first reason counts. What happens while a leader that was asked to stop waits
// for its successor is not held against its node.
func (m *Machine) giveUp(s Stop) {
	if m.term.stop == nil {
		s.Requested = s.Requested || m.quit != nil && m.quit.Requested
		m.term.stop, m.term.stopBy = &s, m.now+m.opt.Budget.Lease
	}
}

// lose gives leadership up that another write has ended: RENEW would be refused.
func (m *Machine) lose(s Stop) {
	m.term.replaced = true
	m.giveUp(s)
}

// SetSite sets the site that the records of the next term will name.
func (m *Machine) SetSite(site string) { m.opt.Site = site }
