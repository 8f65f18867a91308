package daemon

import (
	"context"
	"errors"
	"sync"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/operator"
	"zkelectd/internal/status"
	"zkelectd/internal/transition"
	"zkelectd/internal/worker"
)

// loop is one session's event loop. It alone touches the machine and the elector.
type loop struct {
	d       *Daemon
	s       *zkstore.Session
	self    cluster.Incarnation
	budget  cluster.Budget
	machine *transition.Machine
	reader  *zkstore.Reader
	elector *electorRole
	worker  *worker.Worker
	limit   leaseLimit
	cuts    chan transition.LeaseCut
	node    publication

	life    context.Context // of everything this loop has started but the work
	cancel  context.CancelFunc
	owned   sync.WaitGroup
	events  chan transition.Event
	inline  []transition.Event // to be taken in before anything else
	results chan func()        // what other goroutines want done in the loop
	timer   *time.Timer

	snap    cluster.Snapshot
	heard   time.Duration // when the last read began that was answered
	started int64         // the term of the last child that was started
	again   int           // how often the connection was made anew, as counted
	reloads reloads
	over    bool // nothing of this session works any more
	closing string
}

func (d *Daemon) newLoop(ctx context.Context, s *zkstore.Session, self cluster.Incarnation, budget cluster.Budget) *loop {
	c := d.config()
	l := &loop{
		d: d, s: s, self: self, budget: budget,
		machine: transition.New(transition.Options{
			Paths: d.paths, Self: self, Site: c.Node.Site, API: c.HTTP.Public(d.opt.Secure), Budget: budget,
			TrustSessionEnd: c.Election.TrustSessionEnd, Wall: time.Now,
			RestartMax: c.Child.Restart.Max, RestartWindow: c.Child.Restart.Window, RestartBackoff: c.Child.Restart.Backoff,
		}),
		reader: zkstore.NewReader(zkstore.ReaderOptions{Conn: s, Paths: d.paths, Self: self, Clock: boottime.Now, Log: d.log}),
		events: make(chan transition.Event), results: make(chan func()),
		cuts:  make(chan transition.LeaseCut, 4),
		timer: time.NewTimer(time.Hour),
	}
	l.life, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.elector = newElectorRole(l)
	l.worker = l.newWorker()
	l.limit.send = d.opt.Guard.SetLease
	l.node = publication{l: l}
	return l
}

// run returns when nothing of this session works any more: the child is dead and leadership released.
func (l *loop) run() error {
	defer l.timer.Stop()
	// A loop that is stuck must not keep the group waiting for a leader or an elector: the guard ends it. Nor must who
	// asks take an old view for the truth: it is published with each beat.
	every := status.PublishInterval(l.budget.Session)
	if watchdog := l.d.opt.Guard.WatchdogInterval(); watchdog > 0 {
		every = min(every, watchdog)
	}
	beat := time.NewTicker(every)
	defer beat.Stop()
	l.begin()
	defer l.d.opt.Guard.Heartbeat(0)
	defer l.finish()
	ended := l.s.Done()
	stopped := l.d.stops
	for {
		select {
		case snap := <-l.reader.Snapshots():
			l.snap, l.heard = snap, max(l.heard, snap.At)
			l.d.memory.See(&snap)
			l.newer(snap)
			if snap.Elector {
				l.d.cache.SetSnapshot(&snap)
			}
			l.step(transition.Saw{Snapshot: snap})
		case cut := <-l.cuts:
			l.step(cut)
		case ev := <-l.events:
			l.step(ev)
		case f := <-l.results:
			f()
			l.step(transition.Tick{})
		case <-l.timer.C:
			l.step(transition.Tick{})
		case <-beat.C:
			l.beat()
			l.publish()
		case <-ended:
			ended = nil
			l.step(transition.SessionEnded{Reason: l.s.Err().Error()})
		case reason := <-stopped:
			l.step(transition.Quit{Reason: reason, Failed: l.d.opt.Guard.Err() != nil})
		case <-l.d.vitals.changed:
			l.node.publish()
		case <-l.d.reloads:
			l.reload()
			l.step(transition.Tick{})
		}
		if l.machine.Phase() == transition.Ended {
			return errors.New(l.closing)
		}
	}
}

// begin starts the goroutines of the session, which finish ends.
func (l *loop) begin() {
	l.beat()
	l.publish()
	l.d.cache.SetSource(&operator.Source{Session: l.s, Paths: l.d.paths, Config: l.d.config()})
	l.owned.Go(func() { l.reader.Run(l.life) })
	l.owned.Go(l.survey)
	l.owned.Go(l.serveRequests)
}

func (l *loop) finish() {
	l.cancel()
	l.owned.Wait()
	l.worker.Wait()
	l.over = true
	if l.reloads.busy {
		l.d.Reload() // the next session's loop finishes it
	}
	l.d.cache.SetSource(nil)
	l.d.cache.SetSnapshot(nil)
	l.publish()
}

func (l *loop) beat() { l.d.opt.Guard.Heartbeat(boottime.Now() + l.budget.Session) }

// step feeds the machine one event, and what performing its actions brings about at once; then the elector looks.
func (l *loop) step(ev transition.Event) {
	l.inline = append(l.inline, ev)
	for len(l.inline) > 0 {
		next := l.inline[0]
		l.inline = l.inline[1:]
		if e, ok := next.(transition.SessionEnded); ok && l.closing == "" {
			l.closing = e.Reason
		}
		for _, a := range l.machine.Step(boottime.Now(), next) {
			l.perform(a)
		}
	}
	now := boottime.Now()
	wake := cluster.Earliest(l.elector.look(now, l.snap), l.machine.Wake())
	l.timer.Reset(time.Hour)
	if wake > 0 {
		l.timer.Reset(max(0, wake-now))
	}
	l.publish()
}

// newer logs, once, that a record has a format that this build does not know.
func (l *loop) newer(s cluster.Snapshot) {
	why := ""
	for _, err := range []error{s.Newer(), s.Policy.Newer(), s.Control.Newer()} {
		if err != nil && why == "" {
			why = err.Error()
		}
	}
	if why != "" && why != l.d.newer {
		l.d.log.Error("a newer zkelectd has written a record: this one leaves it alone, and takes no decision without it", "reason", why)
	}
	l.d.newer = why
}

// perform does what the machine asks for. It never blocks for longer than it takes to start a process.
func (l *loop) perform(a transition.Action) {
	switch a := a.(type) {
	case transition.Send:
		l.send(a)
	case transition.Lease:
		l.limit.lease(a.Deadline)
	case transition.RunPreStart:
		l.setPendingHooks(a.Term)
		l.worked(l.worker.PreStart(a.Term))
	case transition.RunPostStop:
		l.worked(l.worker.PostStop(a.Term))
	case transition.StartChild:
		if a.Term == l.started {
			l.d.tally.count(func(t *status.Totals) { t.Restarts++ })
		}
		l.started = a.Term
		l.worked(l.worker.Start(a.Term))
	case transition.StopTask:
		l.worker.Stop(a.Grace)
	case transition.KillTask:
		l.worker.Kill()
	case transition.Entrust:
		l.s.CloseWith(a.Ops...)
		l.d.opt.Guard.SetRelease(cluster.EncodeTx(a.Ops))
	case transition.Reread:
		l.reader.Reread()
	case transition.EndSession:
		l.closing = a.Reason
	case transition.Announce:
		l.d.announce(a)
		if a.Phase == transition.Standby {
			l.worker.ClearPendingHooks()
		}
	case transition.Note:
		l.d.log.Warn(a.Text)
	}
}

func (l *loop) send(a transition.Send) {
	timeout := max(0, a.Deadline-boottime.Now())
	l.owned.Go(func() {
		ctx, cancel := context.WithTimeout(l.life, timeout)
		defer cancel()
		began := time.Now()
		results, err := l.s.Do(ctx, a.Ops...)
		if err == nil {
			took := time.Since(began)
			l.d.tally.count(func(t *status.Totals) { t.Writes.Observe(took) })
		}
		l.report(transition.TxDone{Tx: a.Tx, Results: results, Err: err})
	})
}

// report hands an event to the loop, unless that has ended.
func (l *loop) report(ev transition.Event) {
	select {
	case l.events <- ev:
	case <-l.life.Done():
	}
}

// later runs f in the loop, unless that has ended.
func (l *loop) later(f func()) {
	select {
	case l.results <- f:
	case <-l.life.Done():
	}
}

// publish shows where the daemon stands.
func (l *loop) publish() {
	v := l.view()
	if n := l.s.Reconnects(); n != l.again {
		l.d.tally.count(func(t *status.Totals) { t.Reconnects += uint64(n - l.again) })
		l.again = n
	}
	before := l.d.view.Swap(&v)
	l.d.feed.Changed(*before, v)
	l.d.service.status(line(v, l.snap, l.d.refused != ""))
}

// line is what the service manager shows.
func (l *loop) line() string { return line(l.view(), l.snap, l.d.refused != "") }

func (l *loop) view() status.Daemon {
	v := status.Daemon{
		Node: l.d.config().Node.ID, Site: l.d.config().Node.Site, Root: l.d.paths.Root, Incarnation: l.self.Name, Phase: string(l.machine.Phase()),
		Term: l.machine.Term(), LeaseEnds: l.machine.Deadline(), Lease: cluster.Duration(l.budget.Lease), Elector: l.snap.Elector, SessionTimeout: cluster.Duration(l.budget.Session),
		Note: l.elector.note, Holding: l.elector.holding, Newer: l.d.newer, Drift: l.d.drift, SnapshotAt: l.snap.At, RespondedAt: l.heard, PublishedAt: boottime.Now(),
		Loop: !l.over, Session: !l.over && l.s.Err() == nil, Connected: l.s.Connected(), Unhealthy: l.d.vitals.ill(), Child: l.machine.Running(),
		Unit: l.d.config().Child.Unit, Containment: string(l.d.opt.Guard.Containment()), Unkillable: l.d.opt.Guard.Unkillable(),
		OpenTree: l.d.openTree.Load(),
	}
	if l.snap.Elected.Readable() {
		e := l.snap.Elected.Record
		v.Elected, v.ElectedSite, v.ElectedTerm, v.Cause, v.Reason = e.Node, e.Site, e.Term, string(e.Cause), e.Reason
	}
	v.Holder = holder(l.snap)
	if l.snap.Elector && !l.over {
		pause := l.snap.Control.Record.Pause
		v.Sites, v.Paused, v.PausedHard = l.elector.sites, pause != nil, pause != nil && pause.Hard
	}
	return v
}

// holder is who holds leadership, nil if this daemon does not know.
func holder(s cluster.Snapshot) *status.Holder {
	if !s.Leadership || s.Current.Err != nil {
		return nil
	}
	if !s.Current.Exists {
		return &status.Holder{State: status.StateNone}
	}
	c := s.Current.Record
	return &status.Holder{Node: c.Node, Site: c.Site, Term: c.Term, State: string(c.State)}
}
