package host

import (
	"context"
	"errors"
	"fmt"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/zk"
)

// Submit submits an operator request for the group on the host's session. It submits one request at a time. The error matches
// [request.RefusedError] if the group's state does not allow the request, and [cluster.ErrUnknown] if the request may have been
// submitted anyway.
func (g *Group) Submit(ctx context.Context, r request.Request) (request.Plan, error) {
	if err := r.Check(); err != nil {
		return request.Plan{}, err
	}
	if err := g.View().CheckReady(); err != nil {
		return request.Plan{}, err // fail closed: an outdated view decides nothing
	}
	select {
	case g.requests <- struct{}{}:
	case <-g.host.quit.Done():
		return request.Plan{}, errors.New("this daemon is stopping: ask another one")
	case <-ctx.Done():
		return request.Plan{}, fmt.Errorf("other requests are still under way, submit it again: %w", ctx.Err())
	}
	type result struct {
		plan request.Plan
		err  error
	}
	done := make(chan result, 1)
	go func() { // ends with the write, which has a timeout, or with the session
		defer func() { <-g.requests }()
		plan, err := g.submit(ctx, r)
		done <- result{plan, err}
	}()
	select {
	case r := <-done:
		return r.plan, r.err
	case <-ctx.Done():
		return request.Plan{}, fmt.Errorf("%w: the request is still under way (%w)", cluster.ErrUnknown, ctx.Err())
	}
}

// submit submits a request; it never blocks the loop or the lease.
func (g *Group) submit(client context.Context, r request.Request) (request.Plan, error) {
	conn := g.conn.Load()
	if conn == nil {
		return request.Plan{}, operator.ErrNoSession
	}
	if !conn.Connected() {
		return request.Plan{}, operator.ErrNotConnected
	}
	submitter := operator.Submitter{Conn: conn, Paths: g.paths, Slots: g.paths.Slot != "" && !r.Kind.OfSlot(), Config: g.config(), Neighbors: g.neighbors(), Read: operator.ReadTimeout, Write: conn.Timeout()}
	ctx, cancel := g.withSession(conn)
	defer cancel()
	detach := context.AfterFunc(client, cancel)
	plan, err := submitter.Submit(ctx, func(q whatif.Question) (request.Plan, error) {
		detach() // from here on the client cannot cancel it: the outcome of an abandoned write would be unknown
		if err := client.Err(); err != nil {
			return request.Plan{}, err
		}
		return r.Plan(q)
	})
	if err == nil {
		o := r.Options
		g.log.Info("request accepted", "request", plan.ID, "what", r.Kind, "by", o.By, "reason", o.Reason, "messages", plan.Messages)
	}
	return plan, err
}

// withSession returns a context that ends with the session.
func (g *Group) withSession(conn *zk.Group) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with the context or the session
		select {
		case <-conn.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
