package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/guard"
	"zkelectd/internal/work/command"
	"zkelectd/internal/work/probe"
	"zkelectd/internal/work/workenv"
)

// StandbyOptions configures a Standby.
type StandbyOptions struct {
	// Open opens a leadership of the guard, see [guard.Client.NewStandby].
	Open func() *guard.Leadership
	Log  *slog.Logger
	// Spec is the work, with Promote and Demote. Its StopTimeout is how long it may take to stop as a standby.
	Spec Spec
	// Identity is that of the work, which as a standby belongs to no term.
	Identity workenv.Fencing
	// Changed is called after each change of what [Standby.State] returns. It may block.
	Changed func()
}

// Standby is promotable work. It runs on every member that may lead, as long as the group is configured here. A
// [Worker] promotes it, and demotes it when its leadership ends. While it is neither promoted nor about to be, it has
// the lease [guard.Forever]: the guard kills it with the daemon only. It may be promoted by the worker of one slot at a
// time.
type Standby struct {
	opt   StandbyOptions
	stop  context.CancelFunc
	over  chan struct{} // closed when run has ended
	env   []string
	owned sync.WaitGroup // the checks of warmth, and what watches and stops a unit

	mu      sync.Mutex
	guard   *guard.Leadership
	work    *guard.Work // nil while none runs
	state   cluster.Standby
	leader  *promotion    // nil while it is a standby
	barred  int           // how often Abandon was called: workers from before may not promote the work
	changed chan struct{} // closed at each change of the fields above; then there is another one
}

// NewStandby starts the work and keeps it running until Close.
func NewStandby(opt StandbyOptions) *Standby {
	ctx, stop := context.WithCancel(context.Background())
	s := &Standby{opt: opt, stop: stop, over: make(chan struct{}), guard: opt.Open(), changed: make(chan struct{})}
	s.opt.Identity = opt.Identity.Standby()
	s.env = workenv.Build(os.Environ(), s.opt.Identity, opt.Spec.Env)
	s.state = cluster.Standby{State: cluster.StandbyCold, Reason: "it has not been started yet", Since: time.Now()}
	go s.run(ctx) // until Close
	return s
}

// State returns whether the work is ready to be promoted. It is safe for concurrent use.
func (s *Standby) State() cluster.Standby {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Unkillable returns which process of the work cannot be killed, and why; empty if there is none.
func (s *Standby) Unkillable() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guard.Unkillable()
}

// Close stops the work, and returns when it is dead. Nothing may promote it any more. It returns an error if ctx ends
// before; Close can be called again then.
func (s *Standby) Close(ctx context.Context) error {
	s.stop()
	select {
	case <-s.over:
	case <-ctx.Done():
		return fmt.Errorf("the standby has not ended: %w", ctx.Err())
	}
	s.owned.Wait()
	s.guard.Close()
	return nil
}

// Abandon keeps all workers that exist from promoting the work: their loops may be stuck. If one of them leads, Abandon
// kills the work, and returns when all of it is dead; then the work starts again as a standby. It returns false if ctx
// ends before.
func (s *Standby) Abandon(ctx context.Context) (proven bool) {
	s.mu.Lock()
	before, p := s.guard, s.leader
	s.barred++
	if p == nil {
		s.mu.Unlock()
		return true
	}
	before.Abandon()
	p.Kill()
	s.mu.Unlock()
	select {
	case <-before.Dead():
	case <-ctx.Done():
		return false
	}
	<-p.over // else its order could reach the work that starts now
	s.mu.Lock()
	s.guard = s.opt.Open()
	s.note()
	s.mu.Unlock()
	before.Close()
	return true
}

// note wakes those who wait for a change. The caller must hold mu.
func (s *Standby) note() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// set records the state of the work, unless ctx has ended.
func (s *Standby) set(ctx context.Context, state, reason string) {
	s.mu.Lock()
	if ctx.Err() != nil || s.state.State == state && s.state.Reason == reason {
		s.mu.Unlock()
		return
	}
	if s.state.State != state {
		s.state.Since = time.Now()
	}
	s.state.State, s.state.Reason = state, reason
	s.note()
	s.mu.Unlock()
	s.opt.Changed()
}

// How long the work waits before it is started again: twice as long after each end, until it has run for standbyStable.
const (
	standbyPause  = 100 * time.Millisecond
	standbyLimit  = 5 * time.Second
	standbyStable = 10 * time.Second
)

// run starts the work again whenever all of it is dead, until ctx ends.
func (s *Standby) run(ctx context.Context) {
	defer close(s.over)
	for pause := standbyPause; s.await(ctx, s.isIdle) == nil && ctx.Err() == nil; {
		began := time.Now()
		reason := s.runOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > standbyStable {
			pause = standbyPause
		}
		s.opt.Log.Warn("the standby has ended; starting it again", "reason", reason, "after", pause)
		s.set(ctx, cluster.StandbyCold, reason)
		if command.Pause(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, standbyLimit)
	}
}

// await waits until ready returns true, and asks again after each change, with mu locked. It returns the error of ctx
// if that ends before.
func (s *Standby) await(ctx context.Context, ready func() bool) error {
	for {
		s.mu.Lock()
		is, changed := ready(), s.changed
		s.mu.Unlock()
		if is {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// isIdle reports whether no worker leads with the work, whose order could reach the next one. The caller must hold mu.
func (s *Standby) isIdle() bool { return s.leader == nil }

// standbyRun is one run of the work.
type standbyRun struct {
	work   *guard.Work
	unit   *unit         // nil unless systemd runs it
	notify *probe.Socket // receives READY=1 of warm work; nil without child.warm.notify
}

// stop asks the work to stop, and has it killed after grace.
func (r standbyRun) stop(grace time.Duration) {
	if r.unit != nil {
		r.unit.Stop(grace)
	} else {
		r.work.Stop(grace)
	}
}

// end cleans up after work that is dead, and returns how it has ended.
func (r standbyRun) end() (status string) {
	r.notify.Close()
	if r.unit != nil {
		r.unit.cancel()
		r.unit.closeAnswers()
		return "the unit " + r.unit.exitStatus(r.work)
	}
	return "the child " + r.work.Status()
}

// runOnce runs the work until all of it is dead, and returns how it has ended.
func (s *Standby) runOnce(ctx context.Context) (reason string) {
	run, err := s.start(ctx)
	if err != nil {
		return err.Error()
	}
	if run.unit != nil {
		s.opt.Log.Info("unit started as a standby", "unit", s.opt.Spec.Unit)
	} else {
		s.opt.Log.Info("child started as a standby", "pid", run.work.Pid())
	}
	warming, cancel := context.WithCancel(ctx)
	defer cancel()
	s.owned.Go(func() { s.watchWarmth(warming, run.notify) })
	s.awaitEnd(ctx, run, cancel)
	<-run.work.Dead()
	s.mu.Lock()
	s.work = nil
	s.note()
	s.mu.Unlock()
	return run.end()
}

// awaitEnd waits until the main process of the work has ended, and stops it at the end of ctx. Work of which a process
// cannot be killed must not lead: cool ends the checks of its warmth.
func (s *Standby) awaitEnd(ctx context.Context, run standbyRun, cool context.CancelFunc) {
	for {
		select {
		case err := <-run.work.Unkillable():
			cool()
			s.set(ctx, cluster.StandbyCold, err.Error())
			s.mu.Lock()
			leader := s.leader
			s.mu.Unlock()
			if leader != nil {
				leader.fail(err)
			}
		case <-run.work.Exited():
			return
		case <-ctx.Done():
			run.stop(s.opt.Spec.StopTimeout)
			return
		}
	}
}

// start starts the work, of which nothing is left.
func (s *Standby) start(ctx context.Context) (run standbyRun, err error) {
	s.mu.Lock()
	g := s.guard
	s.mu.Unlock()
	g.SetLease(guard.Forever)
	if s.opt.Spec.Unit != "" {
		run, err = s.startUnit(ctx, g)
	} else {
		run.work, run.notify, err = s.opt.Spec.launch(g.Start, s.env, s.opt.Spec.WarmNotify, probe.Notified{})
	}
	if err != nil {
		return run, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.work = run.work
	s.note()
	return run, nil
}

// startUnit returns when systemd has started the unit. Only this start is admitted: another one, by hand or by
// Restart=, would leave a process of which nobody knows that it has not been promoted.
func (s *Standby) startUnit(ctx context.Context, g *guard.Leadership) (standbyRun, error) {
	u := &unit{
		spec: s.opt.Spec, owners: g.Owners, begin: g.Start, log: s.opt.Log.With("unit", s.opt.Spec.Unit),
		fencing: s.opt.Identity, owned: &s.owned,
	}
	u.ctx, u.cancel = context.WithCancel(ctx)
	s.set(ctx, cluster.StandbyWarming, "systemd is starting "+s.opt.Spec.Unit)
	work, err := u.start()
	u.closeAnswers()
	if err != nil {
		u.cancel()
		if work != nil {
			work.Kill()
			<-work.Dead()
		}
		return standbyRun{}, err
	}
	s.owned.Go(func() { u.watch(work) })
	return standbyRun{work: work, unit: u}, nil
}

// warmFall is how many checks in a row must fail before a warm standby counts as cold.
const warmFall = 3

// watchWarmth keeps the state of running work, until ctx ends. Work with a socket notifies that it is warm.
func (s *Standby) watchWarmth(ctx context.Context, notify *probe.Socket) {
	warm := s.opt.Spec.Warm
	if warm.Empty() && notify == nil {
		s.set(ctx, cluster.StandbyWarm, "")
		return
	}
	if notify != nil {
		s.set(ctx, cluster.StandbyWarming, "it has not sent READY=1 to $NOTIFY_SOCKET yet")
		if notify.Wait(ctx) == nil {
			s.set(ctx, cluster.StandbyWarm, "")
		}
		return
	}
	s.set(ctx, cluster.StandbyWarming, "it has just been started")
	warm.Rise, warm.Fall, warm.FirstDecides = 1, warmFall, true
	warm.Run(ctx, s.env, func(err error) {
		if err != nil {
			s.set(ctx, cluster.StandbyWarming, err.Error())
		} else {
			s.set(ctx, cluster.StandbyWarm, "")
		}
	})
}

// awaitWarm waits until the work is warm. Its error says what the work lacks at the end of ctx.
func (s *Standby) awaitWarm(ctx context.Context) (work *guard.Work, err error) {
	var state cluster.Standby
	err = s.await(ctx, func() bool {
		work, state = s.work, s.state
		return work != nil && !exited(work) && state.State == cluster.StandbyWarm
	})
	if err != nil {
		return nil, fmt.Errorf("the standby is %s: %s", state.State, state.Reason)
	}
	return work, nil
}

func exited(work *guard.Work) bool {
	select {
	case <-work.Exited():
		return true
	default:
		return false
	}
}

var errOtherLeads = errors.New("the work of this host leads already, in another slot")

// take makes the work leader-only: from now on it has the lease of p's worker, which take returns.
func (s *Standby) take(p *promotion, work *guard.Work) (lease time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case p.worker.barred != s.barred:
		return 0, guard.ErrAbandoned
	case s.leader != nil:
		return 0, errOtherLeads
	case s.work != work:
		return 0, errors.New("the standby has ended")
	}
	s.leader = p
	s.guard.SetLease(p.worker.lease)
	s.note()
	return p.worker.lease, nil
}

// admit makes a new worker one that may promote the work.
func (s *Standby) admit(w *Worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.barred = s.barred
}

// setLease sets the lease of a worker, and that of the work if the worker leads with it.
func (s *Standby) setLease(w *Worker, deadline time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.lease = deadline
	if s.leader != nil && s.leader.worker == w {
		s.guard.SetLease(deadline)
	}
}

// release ends the leadership of p. If the work still runs, it must have been demoted, or never promoted: it is a
// standby again.
func (s *Standby) release(p *promotion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leader != p {
		return
	}
	s.leader = nil
	if s.work == p.work {
		s.guard.SetLease(guard.Forever)
	}
	if p.work != nil && exited(p.work) && s.state.State != cluster.StandbyCold {
		// known before the end of the leadership is reported
		s.state = cluster.Standby{State: cluster.StandbyCold, Reason: "it has ended with the leadership", Since: time.Now()}
	}
	s.note()
}
