// Package transition is one daemon's life in one ZooKeeper session: standby, acquiring, taking over, leading, stopping
// (docs/protocol.md, Taking over; Leading, and the lease). It is pure: Step turns an event and a time into actions.
package transition

import (
	"time"

	"zkelectd/internal/cluster"
)

// Options are what a machine needs to know of its daemon.
type Options struct {
	Paths  cluster.Paths
	Self   cluster.Incarnation
	Site   string
	API    string
	Budget cluster.Budget
	// TrustSessionEnd has the end of a session count as proof that its holder's work has ended, see [cluster.Trust].
	TrustSessionEnd bool
	// Wall is only written into records, for people.
	Wall func() time.Time
	// RestartMax children that exit within RestartWindow are started again in place, each after RestartBackoff.
	RestartMax     int
	RestartWindow  time.Duration
	RestartBackoff time.Duration
}

// Phase is where a daemon stands, for people.
type Phase string

// The phases.
const (
	Standby   Phase = "standby"
	Waiting   Phase = "waiting"   // elected, the predecessor has not let go
	Acquiring Phase = "acquiring" // ACQUIRE is under way
	WaitOut   Phase = "wait-out"  // an older lease may still run
	Preparing Phase = "preparing" // the pre_start hook runs
	Starting  Phase = "starting"  // the child is not ready
	Declaring Phase = "declaring" // the child serves, READY is under way
	Leading   Phase = "leading"
	Stopping  Phase = "stopping" // the child is being stopped
	Releasing Phase = "releasing"
	Ended     Phase = "ended" // the session is over, the child is dead
)

// task is what the machine has the shells do for the leader-only work.
type task int

const (
	taskNone    task = iota
	taskWait         // waiting out an older lease
	taskPrepare      // pre_start runs
	taskLaunch       // prepared, the child is to be started
	taskStart        // started, not ready
	taskUp           // ready
	taskRestart      // exited by itself, waiting to be started again
	taskClean        // post_stop runs
	taskDone         // nothing runs any more
)

// Stop is why leadership is given up.
type Stop struct {
	Reason string
	// Requested is set where somebody asked for it: no strike.
	Requested bool
}

// Machine is driven by one goroutine, which owns it.
type Machine struct {
	opt Options
	out []Action
	now time.Duration

	snap    cluster.Snapshot
	seen    bool          // snap is newer than the last transaction
	settled time.Duration // when that one was over; snapshots begun earlier tell nothing
	pending Tx            // the transaction under way
	sending time.Duration // when it was sent
	moving  int32         // the version of the fence that ACQUIRE replaces
	tried   attempt       // the last ACQUIRE that was refused
	again   time.Duration // not before this is anything sent again
	unknown Tx            // the transaction whose outcome must be read back

	held     bool
	term     int64
	last     int64 // the last term that was acquired: none is twice, even if the fence forgets it
	doubt    doubt // the last ACQUIRE of unknown outcome
	fence    cluster.Fence
	current  cluster.Current
	holding  cluster.Holding
	left     leave         // what was entrusted last
	renewed  time.Duration // when the last RENEW was sent, whatever became of it
	deadline time.Duration // D after the sending of what the lease rests on
	replaced bool          // RENEW would be refused

	task     task
	running  bool // the child's process group exists
	prepared bool // pre_start has run, so post_stop must
	ready    bool // READY has been written
	waitOver time.Duration
	restart  time.Duration
	exits    []time.Duration
	stop     *Stop
	stopped  bool // the task has been told to stop
	killed   bool
	quit     *Stop // the session is to end in order
	asked    bool  // by somebody, who wants the daemon to end
	hurry    bool
	cut      time.Duration // no lease of this session may outlast it; 0 for no bound
	ended    string        // why the session is over
}

// attempt identifies an ACQUIRE by the versions that fence it.
type attempt struct{ elected, fence int32 }

// leave identifies a LEAVE by what it is made of; the zero value is none.
type leave struct {
	holding cluster.Holding
	term    int64
	owed    cluster.Duration
	led     bool
}

// doubt identifies an ACQUIRE by its term, and the version of the fence that it would have moved.
type doubt struct {
	term  int64
	fence int32
}

// New returns a machine in standby.
func New(opt Options) *Machine { return &Machine{opt: opt} }

// Step takes in an event that happened at now and returns what to do, in order. now is the daemon's CLOCK_BOOTTIME.
func (m *Machine) Step(now time.Duration, ev Event) []Action {
	m.now = now
	ev.apply(m)
	m.decide()
	out := m.out
	m.out = nil
	return out
}

// Wake is when Step must be called with a [Tick] if nothing happens before; 0 if never.
func (m *Machine) Wake() time.Duration {
	var at time.Duration
	want := func(t time.Duration) {
		if t > m.now && (at == 0 || t < at) {
			at = t
		}
	}
	if m.held {
		want(m.deadline)
		want(m.deadline - m.opt.Budget.Grace)
		want(m.renewed + m.opt.Budget.Renew)
		if m.quit != nil {
			want(m.unheard())
		}
	}
	want(m.again)
	switch m.task {
	case taskWait:
		want(m.waitOver)
	case taskRestart:
		want(m.restart)
	}
	return at
}

// Phase says where the daemon stands.
func (m *Machine) Phase() Phase {
	switch {
	case m.ended != "" && m.Idle():
		return Ended
	case m.stop != nil && m.working():
		return Stopping
	case m.stop != nil:
		return Releasing
	case m.task == taskUp && m.ready, m.task == taskRestart:
		return Leading
	case m.task == taskUp:
		return Declaring
	case m.task == taskStart:
		return Starting
	case m.task == taskPrepare, m.task == taskLaunch:
		return Preparing
	case m.task == taskWait:
		return WaitOut
	case m.pending == TxAcquire:
		return Acquiring
	case m.seen && m.elected():
		return Waiting
	}
	return Standby
}

// Term is the one held, 0 if none.
func (m *Machine) Term() int64 {
	if !m.held {
		return 0
	}
	return m.term
}

// Deadline is when the lease ends, 0 if none is held.
func (m *Machine) Deadline() time.Duration {
	if !m.held {
		return 0
	}
	return m.deadline
}

// Running tells that the child's process group exists.
func (m *Machine) Running() bool { return m.running }

// Idle tells that nothing is held, nothing runs and nothing is under way: the session may be closed.
func (m *Machine) Idle() bool {
	return !m.held && !m.working() && m.task != taskClean && m.pending == TxNone
}

// working tells that something runs that must be over before the lease is (S1). post_stop is not: it only undoes.
func (m *Machine) working() bool { return m.running || m.task == taskPrepare }

// elected tells that the decision names this incarnation, in a term that has not been acquired.
func (m *Machine) elected() bool {
	elected, fenced := m.snap.Terms()
	return m.snap.Elected.Readable() && m.snap.Elected.Record.Incarnation == m.opt.Self.Name &&
		elected > m.last && (!m.snap.Leadership || (fenced < elected && !m.perhaps(elected)))
}

// perhaps tells that a term may have been acquired by an ACQUIRE whose reply was lost and whose fence was wiped since.
func (m *Machine) perhaps(term int64) bool {
	return m.doubt.term == term && m.doubt.fence != m.snap.Fence.Stat.Version
}

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

func (m *Machine) giveUp(s Stop) {
	if m.stop == nil {
		m.stop = &s
	}
}

// SetSite changes the site that the records of the next term name.
func (m *Machine) SetSite(site string) { m.opt.Site = site }
