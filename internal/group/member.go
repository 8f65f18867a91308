package group

import (
	"context"
	"errors"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/status"
	"zkelectd/internal/transition"
	"zkelectd/internal/worker"
)

// Member is a group's membership for one session. Its event loop is the only goroutine that uses the machine and the elector.
type Member struct {
	group      *Group
	session    Session
	self       cluster.Incarnation
	budget     cluster.Budget
	machine    *transition.Machine
	reader     *zkstore.Reader
	elector    *electorRole
	worker     *worker.Worker
	limit      leaseLimit
	cuts       chan transition.LeaseCut
	node       *publication
	background *background // all goroutines of this loop except the work

	events        chan transition.Event
	pendingEvents []transition.Event // handled before any other event
	timer         *time.Timer

	snap       cluster.Snapshot
	responded  time.Duration // when the last answered read began
	started    int64         // the term of the work that was started last
	reconnects int           // counted so far
	over       bool          // the work is dead and the loop has ended
	closing    string        // why the session ends; empty while it does not
}

func (g *Group) newMember(ctx context.Context, s Session, self cluster.Incarnation, budget cluster.Budget) *Member {
	opt := g.opt
	m := &Member{
		group: g, session: s, self: self, budget: budget,
		machine: transition.New(transition.Options{
			Paths: opt.Paths, Self: self, Site: g.settings.Node.Site, API: g.settings.Node.API, Budget: budget,
			TrustSessionEnd: opt.TrustSessionEnd, Wall: time.Now,
			RestartMax: opt.Restart.Max, RestartWindow: opt.Restart.Window, RestartBackoff: opt.Restart.Backoff,
		}),
		reader:     zkstore.NewReader(zkstore.ReaderOptions{Conn: s, Paths: opt.Paths, Self: self, Clock: boottime.Now, Log: g.log}),
		limit:      leaseLimit{send: opt.Guard.SetLease},
		cuts:       make(chan transition.LeaseCut, 4),
		background: newBackground(ctx),
		events:     make(chan transition.Event),
		timer:      time.NewTimer(time.Hour),
	}
	m.node = &publication{
		session: s, log: g.log, path: opt.Paths.Node(g.settings.Node.ID), timeout: budget.Session, background: m.background,
		record: func() cluster.Node {
			rec := g.record(s)
			m.machine.SetSite(rec.Site)
			return rec
		},
	}
	m.elector = newElectorRole(g, m)
	m.worker = m.newWorker()
	return m
}

// Incarnation returns the name of the member's incarnation.
func (m *Member) Incarnation() string { return m.self.Name }

// Run runs the event loop. It returns when the work is dead and leadership is released. The error is the reason for the end.
func (m *Member) Run() error {
	defer m.timer.Stop()
	// If the loop hangs, the guard ends the daemon, so that the group does not wait for its leader or elector. The view is
	// published with each heartbeat, so that readers can detect an outdated view.
	every := status.PublishInterval(m.budget.Session)
	if watchdog := m.group.opt.Guard.WatchdogInterval(); watchdog > 0 {
		every = min(every, watchdog)
	}
	beat := time.NewTicker(every)
	defer beat.Stop()
	m.begin()
	defer m.group.opt.Guard.Heartbeat(0)
	defer m.finish()
	ended := m.session.Done()
	for {
		select {
		case snap := <-m.reader.Snapshots():
			m.observe(snap)
			m.step(transition.Saw{Snapshot: snap})
		case cut := <-m.cuts:
			m.step(cut)
		case ev := <-m.events:
			m.step(ev)
		case f := <-m.background.results:
			f()
			m.step(transition.Tick{})
		case <-m.timer.C:
			m.step(transition.Tick{})
		case <-beat.C:
			m.heartbeat()
			m.publish()
		case <-ended:
			ended = nil
			m.step(transition.SessionEnded{Reason: m.session.Err().Error()})
		case reason := <-m.group.stops:
			m.step(transition.Quit{Reason: reason, Failed: m.group.opt.Guard.Err() != nil})
		case <-m.group.changed:
			m.node.publish()
		}
		if m.machine.Phase() == transition.Ended {
			return errors.New(m.closing)
		}
	}
}

// begin starts the goroutines that finish stops.
func (m *Member) begin() {
	m.heartbeat()
	m.publish()
	m.background.owned.Go(func() { m.reader.Run(m.background.ctx) })
	m.background.owned.Go(m.refreshLoop)
}

func (m *Member) finish() {
	m.background.cancelAndWait()
	m.worker.Wait()
	m.over = true
	m.publish()
}

func (m *Member) heartbeat() { m.group.opt.Guard.Heartbeat(boottime.Now() + m.budget.Session) }

// observe records a new snapshot.
func (m *Member) observe(snap cluster.Snapshot) {
	m.snap, m.responded = snap, max(m.responded, snap.At)
	m.group.memory.Update(&snap)
	m.group.logNewer(snap)
	if snap.Elector {
		m.group.opt.OnElector(&snap)
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
		g.log.Error("a record has a newer format: this daemon does not elect or take over until it is upgraded", "reason", reason)
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
			m.closing = e.Reason
		}
		for _, a := range m.machine.Step(boottime.Now(), next) {
			m.perform(a)
		}
	}
	now := boottime.Now()
	wake := m.machine.Wake()
	if m.closing == "" {
		wake = cluster.Earliest(m.elector.evaluate(now, m.snap), wake)
	}
	m.timer.Reset(time.Hour)
	if wake > 0 {
		m.timer.Reset(max(0, wake-now))
	}
	m.publish()
}

// perform performs an action of the machine. It blocks no longer than it takes to start a process.
func (m *Member) perform(a transition.Action) {
	switch a := a.(type) {
	case transition.Send:
		m.send(a)
	case transition.Lease:
		m.limit.set(a.Deadline)
	case transition.RunPreStart:
		m.setPendingHooks(a.Term)
		m.handle(m.worker.PreStart(a.Term))
	case transition.RunPostStop:
		m.handle(m.worker.PostStop(a.Term))
	case transition.StartChild:
		if a.Term == m.started {
			m.group.opt.Counters.Update(func(t *status.Totals) { t.Restarts++ })
		}
		m.started = a.Term
		m.handle(m.worker.Start(a.Term))
	case transition.StopTask:
		m.worker.Stop(a.Grace)
	case transition.KillTask:
		m.worker.Kill()
	case transition.Entrust:
		m.session.CloseWith(a.Ops...)
		m.group.opt.Guard.SetRelease(cluster.EncodeTx(a.Ops))
	case transition.Reread:
		m.reader.Reread()
	case transition.EndSession:
		m.closing = a.Reason
	case transition.Announce:
		m.group.announce(a)
		if a.Phase == transition.Standby {
			m.worker.ClearPendingHooks()
		}
	case transition.Note:
		m.group.log.Warn(a.Text)
	}
}

func (m *Member) send(a transition.Send) {
	timeout := max(0, a.Deadline-boottime.Now())
	m.background.owned.Go(func() {
		ctx, cancel := context.WithTimeout(m.background.ctx, timeout)
		defer cancel()
		began := time.Now()
		results, err := m.session.Do(ctx, a.Ops...)
		if err == nil {
			took := time.Since(began)
			m.group.opt.Counters.Update(func(t *status.Totals) { t.Writes.Observe(took) })
		}
		m.report(transition.TxDone{Tx: a.Tx, Results: results, Err: err})
	})
}

// report sends an event to the loop, unless the loop has ended.
func (m *Member) report(ev transition.Event) {
	select {
	case m.events <- ev:
	case <-m.background.ctx.Done():
	}
}

// Apply applies new settings in the loop, and publishes the node's record. If auditACLs is set, the ACLs of the tree are checked
// again. It waits for the loop, and reports false if the loop ends instead. It must be called while Run runs.
func (m *Member) Apply(next Settings, auditACLs bool) bool {
	done := make(chan struct{})
	if !m.background.runInLoop(func() {
		m.apply(next, auditACLs)
		close(done)
	}) {
		return false
	}
	<-done
	return true
}

func (m *Member) apply(next Settings, auditACLs bool) {
	g := m.group
	if next.PolicyRevision != g.settings.PolicyRevision || next.Rules.Digest() != g.settings.Rules.Digest() {
		g.drift = ""
	}
	g.settings = next
	if auditACLs {
		m.background.owned.Go(func() {
			ctx, cancel := context.WithTimeout(m.background.ctx, m.budget.Session)
			defer cancel()
			m.auditAgain(ctx)
		})
	}
	m.node.publish()
}
