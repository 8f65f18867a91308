package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/operator"
	"zkelectd/internal/request"
	"zkelectd/internal/status"
	"zkelectd/internal/whatif"
)

// submission is an operator request that is to be submitted on the session.
type submission struct {
	ctx     context.Context // of the client
	request request.Request
	done    chan<- submitResult
}

type submitResult struct {
	plan request.Plan
	err  error
}

// Submit submits an operator request on the host's session. It submits one request at a time. The error matches
// [request.RefusedError] if the group's state does not allow the request, and [cluster.ErrUnknown] if the request may have been
// submitted anyway.
func (h *Host) Submit(ctx context.Context, r request.Request) (request.Plan, error) {
	if err := r.Check(); err != nil {
		return request.Plan{}, err
	}
	if err := h.View().CheckReady(); err != nil {
		return request.Plan{}, err // fail closed: an outdated view decides nothing
	}
	done := make(chan submitResult, 1)
	select {
	case h.requests <- submission{ctx, r, done}:
	case <-h.quit.Done():
		return request.Plan{}, errors.New("this daemon is stopping: ask another one")
	case <-ctx.Done():
		return request.Plan{}, fmt.Errorf("other requests are still under way, submit it again: %w", ctx.Err())
	}
	select {
	case result := <-done:
		return result.plan, result.err
	case <-ctx.Done():
		return request.Plan{}, fmt.Errorf("%w: the request is still under way (%w)", cluster.ErrUnknown, ctx.Err())
	}
}

// serveRequests submits requests until ctx ends; it never blocks the loop or the lease. timeout bounds a write. It is as long as
// the session timeout, because abandoning a write would end the session.
func (h *Host) serveRequests(ctx context.Context, s *zkstore.Session, timeout time.Duration) {
	for {
		select {
		case e := <-h.requests:
			plan, err := h.serveRequest(ctx, s, timeout, e)
			e.done <- submitResult{plan, err}
		case <-ctx.Done():
			return
		}
	}
}

func (h *Host) serveRequest(ctx context.Context, s *zkstore.Session, timeout time.Duration, e submission) (request.Plan, error) {
	if !s.Connected() {
		return request.Plan{}, operator.ErrNotConnected
	}
	submitter := operator.Submitter{Conn: s, Paths: h.paths, Config: h.config(), Read: operator.ReadTimeout, Write: timeout}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	detach := context.AfterFunc(e.ctx, cancel)
	plan, err := submitter.Submit(ctx, func(q whatif.Question) (request.Plan, error) {
		detach() // from here on the client cannot cancel it: abandoning a write would end the session
		if err := e.ctx.Err(); err != nil {
			return request.Plan{}, err
		}
		return e.request.Plan(q)
	})
	if err == nil {
		o := e.request.Options
		h.log.Info("request accepted", "request", plan.ID, "what", e.request.Kind, "by", o.By, "reason", o.Reason, "messages", plan.Messages)
	}
	return plan, err
}

// Group returns the state of the group.
func (h *Host) Group(ctx context.Context) (status.Group, error) { return h.cache.Group(ctx) }

// History returns the last terms, oldest first.
func (h *Host) History(ctx context.Context) ([]cluster.PastTerm, error) { return h.cache.History(ctx) }

// Explain returns the reasons why the leader was elected.
func (h *Host) Explain(ctx context.Context) (whatif.Explanation, error) { return h.cache.Explain(ctx) }
