package group

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/group/electing"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/transition"
	"zkelectd/internal/work/worker"
)

// Member is one leadership of an [Instance], from the registration to its end. Its event loop is the only goroutine
// that uses the machine and the elector.
type Member struct {
	instance    *Instance
	number      int // of the slot; 0 in a group without slots
	group       *Group
	opt         InstanceOptions
	session     Session
	self        cluster.Incarnation
	budget      cluster.Budget
	machine     *transition.Machine
	reader      *store.Reader
	elector     *electing.Elector
	deputy      *deputy
	rollCalls   rollCalls
	acting      bool // this member does the work of the elector as a deputy; guarded by the mutex of the instance
	guard       Guard
	worker      *worker.Worker
	limit       leaseLimit
	inbox       *inbox
	failure     *PanicError     // nil unless a goroutine of the loop has panicked
	sessionDone <-chan struct{} // nil once the loop has seen the session end
	shown       atomic.Int64    // when the loop showed last that it is alive, on CLOCK_BOOTTIME; 0 before Run
	// the term whose pre_start hook has begun and whose post_stop hook has not ended; 0 for none
	uncleaned atomic.Int64
	// owed is what a successor owes to this member, once its machine has ended: then its work is dead and undone. nil
	// before.
	owed       atomic.Pointer[time.Duration]
	lent       atomic.Bool            // application leases may be out
	unwritten  atomic.Pointer[string] // see setUnwritten
	handedOver atomic.Bool            // another member was elected while this one led, and takes over
	node       *publication           // nil unless it is the first member
	background *background            // all goroutines of this loop except the work
	ended      atomic.Bool            // Run has returned

	electedTerm   int64              // of the decision that handedOver is about
	endFencing    func()             // nil until a node is fenced
	pendingEvents []transition.Event // handled before any other event
	timer         *time.Timer

	takeover takeover

	wall time.Time // of the event that the machine handles
	// condition is that of the group, as the elector read it.
	condition status.Condition
	read      cluster.Snapshot // as the reader has delivered it
	snap      cluster.Snapshot // with the loads of the hosts
	started   int64            // the term of the work that was started last
	rereads   bool             // elected, the fence and current are to be read again
	refused   bool             // a RENEW that was refused has been logged
	// the host runs as many slots as it may: the machine has not got snap, see [Member.giveToMachine]
	overLimit bool
	over      bool   // the work is dead and the loop has ended
	closing   string // why the membership ends; empty while it does not
	recalled  int64  // the term whose application leases are being waited for
	// quitByInstance and quitByStop say who has asked the member to end.
	quitByInstance, quitByStop bool
}

// newMember returns the n-th member of an instance.
func newMember(ctx context.Context, i *Instance, n int, l MemberSetup) *Member {
	g, opt, s, budget := l.Group, l.Options, l.Session, i.budget
	m := &Member{
		instance: i, number: n, group: g, opt: opt, session: s, self: i.self, budget: budget, guard: l.Guard,
		reader: store.NewReader(s, store.CollectorOptions{
			Paths: g.opt.Paths, Self: i.self, Failsafe: opt.Failsafe != nil, RollCalls: opt.RollCall != nil,
			Clock: boottime.Now, Log: g.log,
		}),
		inbox: newInbox(),
		timer: time.NewTimer(time.Hour),
	}
	m.machine = transition.New(transition.Options{
		Paths: g.opt.Paths, Self: i.self, Site: g.settings.Node.Site, Host: g.opt.Identity.Host, API: g.settings.Node.API,
		Budget: budget, Fencing: opt.Fencing.Fencing,
		LeaseZnode: s.LeaseZnode(), Epoch: i.slots.Record.Epoch, LastTerm: g.memory.Term, LastWork: g.lastWork,
		Wall:       func() time.Time { return m.wall },
		RestartMax: opt.MaxRestarts, RestartWindow: restartWindow, RestartBackoff: restartBackoff,
		Admission: opt.Limits.Starts != nil, Failsafe: opt.Failsafe.machine(), Takeover: opt.TakeoverTimeout,
	})
	m.unwritten.Store(new(string))
	m.background = newBackground(ctx, func(f func()) {
		m.inbox.post(func() {
			f()
			m.step(transition.Tick{})
		})
	}, m.panicked)
	if n == 0 {
		m.node = &publication{
			writer: store.NewNodeWriter(s, g.opt.Paths, i.self, i.registered.Since), log: g.log,
			znode: g.opt.Paths.Node(i.self.ID), timeout: budget.Session,
			background: m.background, record: i.record,
		}
	}
	m.elector, m.deputy, m.rollCalls.m = m.newElector(), newDeputy(m), m
	m.worker = m.newWorker()
	m.limit.send = func(deadline time.Duration) {
		m.guard.SetLease(deadline)
		m.worker.SetLease(deadline)
	}
	return m
}

// Stop makes the member release leadership and end. A second call kills the work at once. It is safe for concurrent
// use.
func (m *Member) Stop(reason string) { m.inbox.post(func() { m.quit(reason, false) }) }

// end is Stop for a member whose instance ends by itself: a later Stop is then the first one.
func (m *Member) end(reason string) { m.inbox.post(func() { m.quit(reason, true) }) }

// Run runs the event loop. It returns when the work is dead and leadership is released. The error is the reason for the
// end. It is a [PanicError] if the loop has panicked: then the work may still run, and the member must be abandoned.
func (m *Member) Run() (err error) {
	defer m.ended.Store(true)
	defer m.timer.Stop()
	defer func() {
		if r := recover(); r != nil {
			err = newPanicError(r)
			return
		}
		var panicked *PanicError
		if !errors.As(err, &panicked) && m.background.ctx.Err() == nil {
			m.finish()
		}
	}()
	m.begin()
	for {
		if err := m.handleNext(); err != nil {
			return err
		}
		m.shown.Store(int64(boottime.Now()))
		m.checkLive()
		if m.machine.Phase() == transition.Ended {
			m.noteEnd()
			if !m.lingers() {
				return errors.New(m.closing)
			}
		}
	}
}

// noteEnd records that the machine has ended. The members of an instance end together.
func (m *Member) noteEnd() {
	if m.Done() {
		return
	}
	owed := m.machine.Owed()
	m.owed.Store(&owed)
	m.instance.stopRest(m.closing)
	for n := range m.instance.members {
		m.instance.wake(n)
	}
}

// lingers reports whether the loop goes on after its machine has ended: while members of other slots run, this may be
// the elector, and nobody else decides for the slot then.
func (m *Member) lingers() bool {
	runs := func(o *Member) bool { return !o.Done() }
	return m.instance.room != nil && m.session.Err() == nil && !m.snap.SelfLost &&
		slices.ContainsFunc(m.instance.members, runs)
}

// errAbandoned is the end of the loop of a member that was abandoned.
var errAbandoned = errors.New("abandoned")

// handleNext waits for the next thing that concerns the loop and handles it. It returns an error if the loop must end
// at once.
func (m *Member) handleNext() error {
	if m.background.ctx.Err() != nil { // select could choose something else
		return errAbandoned
	}
	select {
	case <-m.background.ctx.Done():
		return errAbandoned
	case <-m.sessionDone:
		m.sessionDone = nil
		m.step(transition.SessionEnded{Reason: m.session.Err().Error()})
	case snap := <-m.reader.Snapshots():
		m.observe(snap)
		m.giveToMachine(snap)
	case <-m.inbox.c:
		m.inbox.runNext()
	case <-m.group.notices.c:
		m.look(m.group.notices.take())
	case <-m.timer.C:
		m.step(transition.Tick{})
	}
	if m.failure != nil {
		return m.failure
	}
	return nil
}

// look looks again at what notices name.
func (m *Member) look(at notice) {
	if at&nodeChanged != 0 {
		m.publishNode()
	}
	if at&permitGranted != 0 {
		m.admit()
	}
	if at&loadsChanged != 0 {
		m.complete()
	}
	if at&valueGiven != 0 {
		if v := m.group.values.take(); v.Term != 0 {
			m.step(v)
		}
	}
	switch {
	case at&sharedChanged != 0:
		m.lookAgain()
	case at&^(nodeChanged|beatRequested) != 0:
		m.step(transition.Tick{})
	default: // some fields of the view change without an event of the loop
		m.updateView()
	}
}

// beginEnd records why the membership ends.
func (m *Member) beginEnd(reason string) {
	m.closing = reason
	m.instance.beginEnd()
}

// quit makes the machine end the membership. It takes a second Quit for the order to kill the work at once, so only the
// second Stop may become one.
func (m *Member) quit(reason string, byInstance bool) {
	skip := m.quitByInstance && !m.quitByStop
	if byInstance {
		skip = m.quitByInstance || m.quitByStop
		m.quitByInstance = true
	} else {
		m.quitByStop = true
	}
	if skip {
		return
	}
	m.step(transition.Quit{Reason: reason, Failed: m.group.opt.GuardErr() != nil})
	if m.instance.room != nil && m.machine.Term() != 0 {
		m.announceEnd(reason) // the end of this work may take long, and the other slots would be led by a member that ends
	}
}

// begin starts the goroutines that finish stops.
func (m *Member) begin() {
	m.sessionDone = m.session.Done()
	m.shown.Store(int64(boottime.Now()))
	m.updateView()
	m.background.spawn(func() { m.reader.Run(m.background.ctx) })
	m.beginFailsafe()
}

// publishNode publishes the record of the node, which all members of the instance share.
func (m *Member) publishNode() {
	if m.node != nil {
		m.node.publish()
	}
}

func (m *Member) finish() {
	m.leaveQueue()
	m.elector.EndMove()
	m.deputy.close()
	m.background.cancelAndWait()
	m.worker.Wait()
	m.instance.known.End(m.number) // also if a write was under way
	m.group.lastWork = m.machine.LastWork()
	m.over = true
	m.updateView()
}

// setUnwritten sets why the elector's decision cannot be written, for the node's record; empty if it can.
func (m *Member) setUnwritten(why string) {
	if before := m.unwritten.Swap(&why); why != *before {
		m.instance.members[0].group.NodeChanged()
	}
}

// observe records a new snapshot.
func (m *Member) observe(snap cluster.Snapshot) {
	m.read = snap
	if e := snap.Elected; m.machine.Term() != 0 && e.Readable() {
		m.noteElected(e.Record)
	}
	m.complete()
	m.rollCalls.observe(&snap)
	m.group.opt.Health.NoteResponse(snap.At)
	m.instance.known.Update(m.number, &snap)
	m.group.memory.Update(&snap)
	m.group.known.Store(m.group.memory.Term)
	m.group.logNewer(snap)
	if snap.Elector {
		m.condition = status.ConditionOf(snap)
	}
	m.checkEpoch(&snap)
}

// giveToMachine gives a snapshot to the machine, unless the host has as many works of the group as it may have: then an
// idle machine gets it when one of them has ended.
func (m *Member) giveToMachine(snap cluster.Snapshot) {
	elected := snap.Elected.Readable() && snap.Elected.Record.Incarnation == m.self.Name && !snap.Ended()
	before := m.overLimit
	m.overLimit = elected && !snap.SelfLost && m.machine.Idle() && !m.instance.room.admit(m.number)
	if m.overLimit && !before {
		m.group.log.Info("elected, but this host already runs as many slots of the group as per_node allows: waiting "+
			"until the work of one has ended",
			"per_node", m.instance.slots.Record.PerNode)
	}
	if m.overLimit != before { // the time does not count against this candidate: its host ends other work first
		m.setQueued(m.overLimit)
	}
	if m.overLimit {
		m.step(transition.Waits{Snapshot: snap})
	} else {
		m.step(transition.Saw{Snapshot: snap})
	}
}

// logNewer logs, once, that a record has a format that this build does not know.
func (g *Group) logNewer(s cluster.Snapshot) {
	reason := ""
	for _, err := range []error{s.Newer(), s.Policy.Newer(), s.Control.Newer()} {
		if err != nil && reason == "" {
			reason = err.Error()
		}
	}
	if reason != "" && reason != g.newer {
		g.log.Error("a record has a newer format: this daemon does not elect or take over until it is upgraded",
			"reason", reason)
	}
	g.newer = reason
}

// step applies an event and all events that follow from it to the machine; then the elector evaluates the snapshot.
func (m *Member) step(ev transition.Event) {
	m.pendingEvents = append(m.pendingEvents, ev)
	for len(m.pendingEvents) > 0 {
		next := m.pendingEvents[0]
		m.pendingEvents = m.pendingEvents[1:]
		if e, ok := next.(transition.SessionEnded); ok && m.closing == "" {
			m.beginEnd(e.Reason)
		}
		m.wall = time.Now()
		now := boottime.Now()
		actions := m.machine.Step(now, next)
		m.recordStep(now, next, actions)
		m.recallApplicationLeases() // before a RELEASE
		for _, a := range actions {
			m.perform(a)
		}
		m.noteFailsafe(next, actions)
	}
	if m.rereads && (m.machine.Phase() != transition.Ended || m.lingers()) {
		// not earlier: nobody looks at a snapshot before
		m.reader.Reread()
	}
	m.rereads = false
	m.offerApplicationLeases()
	m.acceptValues()
	m.checkTakeover()
	now := boottime.Now()
	wake := m.machine.Wake()
	if m.closing == "" || m.lingers() {
		m.deputy.observe(now)
		if concernsElector(ev, m.elector.Wake(), now) {
			m.elector.See(now, m.snap)
		}
		wake = cluster.Earliest(m.elector.Wake(), m.deputy.wake, m.machine.Wake()) // which the deputy may have changed
		if m.elector.NoSuccessor() && m.machine.AwaitsSuccessor() {
			m.step(transition.NoSuccessor{})
			return
		}
	}
	next := time.Hour
	if wake > 0 {
		next = max(0, wake-now)
	}
	m.timer.Reset(next)
	m.updateView()
}

// Apply is [Instance.Apply] for one member.
func (m *Member) Apply(next Settings, auditACLs bool) {
	done := make(chan struct{})
	m.background.runInLoop(func() {
		m.apply(next, auditACLs)
		close(done)
	})
	select {
	case <-done:
	case <-m.background.ctx.Done():
	}
}

func (m *Member) apply(next Settings, auditACLs bool) {
	g := m.group
	m.machine.SetSite(next.Node.Site)
	if next.policyDigest() != g.settings.policyDigest() {
		g.drift.Store(new(drift))
	}
	g.settings = next
	if auditACLs {
		m.background.spawn(func() {
			ctx, cancel := context.WithTimeout(m.background.ctx, m.budget.Session)
			defer cancel()
			m.auditAgain(ctx)
		})
	}
	m.publishNode()
}
