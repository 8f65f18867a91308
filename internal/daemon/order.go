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

// orderRequest is a request on its way to the loop's session.
type orderRequest struct {
	ctx     context.Context // of who asks
	request request.Request
	done    chan<- orderReply
}

type orderReply struct {
	given request.Given
	err   error
}

// Order gives an order on the daemon's own session, one after another. It matches [request.RefusedError] if the group is not
// such that it can be met, and [cluster.ErrUnknown] if it may have been given all the same.
func (d *Daemon) Order(ctx context.Context, r request.Request) (request.Given, error) {
	if err := r.Check(); err != nil {
		return request.Given{}, err
	}
	if why := d.View().NotReady(); why != "" {
		return request.Given{}, errors.New(why) // it fails closed: what is stale decides nothing
	}
	done := make(chan orderReply, 1)
	select {
	case d.requests <- orderRequest{ctx, r, done}:
	case <-d.quit.Done():
		return request.Given{}, errors.New("this daemon is stopping: ask another one")
	case <-ctx.Done():
		return request.Given{}, fmt.Errorf("other orders are still under way, give it again: %w", ctx.Err())
	}
	select {
	case end := <-done:
		return end.given, end.err
	case <-ctx.Done():
		return request.Given{}, fmt.Errorf("%w: the order is still under way (%w)", cluster.ErrUnknown, ctx.Err())
	}
}

// serveRequests gives orders until the session is over. It is a goroutine of its own: neither the loop nor the lease waits
// for it. A write has as long as the session itself, since giving up on it earlier would end a session that lives.
func (l *loop) serveRequests() {
	for {
		select {
		case e := <-l.d.requests:
			given, err := l.serveRequest(e)
			e.done <- orderReply{given, err}
		case <-l.life.Done():
			return
		}
	}
}

func (l *loop) serveRequest(e orderRequest) (request.Given, error) {
	if !l.s.Connected() {
		return request.Given{}, operator.ErrNotConnected
	}
	submitter := operator.Submitter{Conn: l.s, Paths: l.d.paths, Config: l.d.config(), Read: operator.ReadTimeout, Write: l.budget.Session}
	ctx, cancel := context.WithCancel(l.life)
	defer cancel()
	gone := context.AfterFunc(e.ctx, cancel)
	given, err := submitter.Submit(ctx, func(q whatif.Question) (request.Given, error) {
		gone() // from here on it is given, whoever leaves: a write that is not waited for ends the session
		if err := e.ctx.Err(); err != nil {
			return request.Given{}, err
		}
		return e.request.Give(q)
	})
	if err == nil {
		o := e.request.Order
		l.d.log.Info("order given", "order", given.ID, "what", e.request.Kind, "by", o.By, "reason", o.Reason, "messages", given.Messages)
	}
	return given, err
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
