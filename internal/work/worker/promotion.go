package worker

import (
	"context"
	"errors"
	"time"

	"zkelectd/internal/guard"
	"zkelectd/internal/transition"
	"zkelectd/internal/work/workenv"
)

// promotion is one run of promotable work as the leader: from the wish to promote it until it has been demoted, or all
// of it is dead. What it may not assume is that an order which was not answered has had no effect (S1): such work is
// killed.
type promotion struct {
	worker  *Worker
	standby *Standby
	fencing workenv.Fencing
	env     []string
	ctx     context.Context // canceled when the leadership must end
	cancel  context.CancelFunc
	grace   chan time.Duration // holds how long a demotion may take; 0 for none
	over    chan struct{}      // closed at the end
	work    *guard.Work        // nil until the work is leader-only
}

// notPromoted is how a leadership ends whose work was not promoted.
const notPromoted = "was not promoted"

func (w *Worker) startPromotion(term int64) []transition.Event {
	p := &promotion{
		worker: w, standby: w.opt.Standby, fencing: w.opt.Fencing(term), env: w.env(term),
		grace: make(chan time.Duration, 2), over: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	w.set(p)
	w.owned.Go(p.run)
	return []transition.Event{transition.ChildStarted{}}
}

// Stop makes p demote the work within grace.
func (p *promotion) Stop(grace time.Duration) { p.end(grace) }

// Kill makes p kill the work.
func (p *promotion) Kill() { p.end(0) }

func (p *promotion) end(grace time.Duration) {
	select {
	case p.grace <- grace:
	default: // an order to kill is among those that wait
	}
	p.cancel()
}

// run reports the end of the leadership as that of a child.
func (p *promotion) run() {
	w := p.worker
	status := p.lead()
	p.cancel()
	p.standby.release(p)
	close(p.over)
	w.set(nil)
	w.opt.Log.Info("child no longer leads", "term", p.fencing.Term, "status", status)
	w.opt.Report(transition.ChildDead{Status: status, Unused: status == notPromoted})
}

// fail reports why the leadership must end, unless that is known.
func (p *promotion) fail(err error) {
	if p.ctx.Err() == nil {
		p.worker.opt.Report(transition.ChildFailed{Err: err})
	}
}

// lead returns how the leadership has ended: then the work has not been promoted, or it has been demoted, or all of it
// is dead.
func (p *promotion) lead() (status string) {
	w := p.worker
	limited, cancel := context.WithTimeout(p.ctx, w.opt.Spec.Ready.Timeout)
	defer cancel()
	work, err := p.standby.awaitWarm(limited)
	if err != nil {
		p.fail(err)
		return notPromoted
	}
	lease, err := p.standby.take(p, work)
	if err != nil {
		p.fail(err)
		return notPromoted
	}
	p.work = work
	go func() { // ends with limited: an order to a process that has ended is over
		select {
		case <-work.Exited():
			cancel()
		case <-limited.Done():
		}
	}()
	if err := p.standby.guard.AwaitLease(limited, lease); err != nil {
		p.fail(err)
		return notPromoted
	}
	if err := w.opt.Spec.Promote.give(limited, w, p.fencing, workenv.RoleLeader); err != nil {
		p.fail(err)
		return p.kill()
	}
	w.opt.Log.Info("child promoted", "pid", work.Pid(), "term", p.fencing.Term)
	w.owned.Go(func() { w.watchReadiness(p.ctx, p.env, nil) })
	select {
	case <-work.Exited():
		<-work.Dead()
		return work.Status()
	case <-p.ctx.Done():
		return p.demote()
	}
}

// demote gives the order to be a standby again. The work is killed unless it has obeyed in time.
func (p *promotion) demote() (status string) {
	grace := <-p.grace
	if grace <= 0 {
		return p.kill()
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	demoted := make(chan error, 1)
	go func() { // ends with ctx
		demoted <- p.worker.opt.Spec.Demote.give(ctx, p.worker, p.fencing, workenv.RoleStandby)
	}()
	var err error
	select {
	case err = <-demoted:
	case <-p.grace: // the order to kill
		cancel()
		<-demoted
		err = errors.New("there is no time to demote it")
	case <-p.work.Exited():
		cancel()
		<-demoted
		err = errors.New("it has ended")
	}
	if err == nil && !exited(p.work) { // a process that has ended may leave others behind
		return "was demoted"
	}
	p.worker.opt.Log.Warn("the child was not demoted: it is killed", "err", err)
	return p.kill()
}

// kill kills the work, and returns how it has ended when all of it is dead.
func (p *promotion) kill() (status string) {
	p.work.Kill()
	<-p.work.Dead()
	return p.work.Status()
}

// SetLease tells promotable work for how long this worker may lead; 0 for not at all. The guard of each leadership has
// that from its own SetLease.
func (w *Worker) SetLease(deadline time.Duration) {
	if s := w.opt.Standby; s != nil {
		s.setLease(w, deadline)
	}
}
