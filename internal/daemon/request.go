package daemon

import (
	"context"
	"errors"
	"fmt"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator"
	"zkelectd/internal/request"
	"zkelectd/internal/status"
	"zkelectd/internal/whatif"
)

// submission is a request on its way to the loop's session.
type submission struct {
	ctx     context.Context // of who asks
	request request.Request
	done    chan<- submitReply
}

type submitReply struct {
	plan request.Plan
	err  error
}

// Submit submits a request on the daemon's own session, one after another. It matches [request.RefusedError] if the group is not
// such that it can be met, and [cluster.ErrUnknown] if it may have been given all the same.
func (d *Daemon) Submit(ctx context.Context, r request.Request) (request.Plan, error) {
	if err := r.Check(); err != nil {
		return request.Plan{}, err
	}
	if err := d.View().CheckReady(); err != nil {
		return request.Plan{}, err // it fails closed: what is stale decides nothing
	}
	done := make(chan submitReply, 1)
	select {
	case d.requests <- submission{ctx, r, done}:
	case <-d.quit.Done():
		return request.Plan{}, errors.New("this daemon is stopping: ask another one")
	case <-ctx.Done():
		return request.Plan{}, fmt.Errorf("other requests are still under way, submit it again: %w", ctx.Err())
	}
	select {
	case end := <-done:
		return end.plan, end.err
	case <-ctx.Done():
		return request.Plan{}, fmt.Errorf("%w: the request is still under way (%w)", cluster.ErrUnknown, ctx.Err())
	}
}

// serveRequests submits requests until the session is over. It is a goroutine of its own: neither the loop nor the lease waits
// for it. A write has as long as the session itself, since giving up on it earlier would end a session that lives.
func (l *loop) serveRequests() {
	for {
		select {
		case e := <-l.d.requests:
			plan, err := l.serveRequest(e)
			e.done <- submitReply{plan, err}
		case <-l.life.Done():
			return
		}
	}
}

func (l *loop) serveRequest(e submission) (request.Plan, error) {
	if !l.s.Connected() {
		return request.Plan{}, operator.ErrNotConnected
	}
	submitter := operator.Submitter{Conn: l.s, Paths: l.d.paths, Config: l.d.config(), Read: operator.ReadTimeout, Write: l.budget.Session}
	ctx, cancel := context.WithCancel(l.life)
	defer cancel()
	gone := context.AfterFunc(e.ctx, cancel)
	plan, err := submitter.Submit(ctx, func(q whatif.Question) (request.Plan, error) {
		gone() // from here on it is given, whoever leaves: a write that is not waited for ends the session
		if err := e.ctx.Err(); err != nil {
			return request.Plan{}, err
		}
		return e.request.Plan(q)
	})
	if err == nil {
		o := e.request.Options
		l.d.log.Info("request accepted", "request", plan.ID, "what", e.request.Kind, "by", o.By, "reason", o.Reason, "messages", plan.Messages)
	}
	return plan, err
}

// Group returns the whole group.
func (d *Daemon) Group(ctx context.Context) (status.Group, error) {
	return d.cache.Group(ctx)
}

// History returns the last terms, oldest first.
func (d *Daemon) History(ctx context.Context) ([]cluster.PastTerm, error) {
	return d.cache.History(ctx)
}

// Explain returns why the leader is the leader.
func (d *Daemon) Explain(ctx context.Context) (whatif.Explanation, error) {
	return d.cache.Explain(ctx)
}
