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

// submission is an operator request on its way to the session.
type submission struct {
	ctx     context.Context // of the client
	request request.Request
	done    chan<- submitResult
}

type submitResult struct {
	plan request.Plan
	err  error
}

// Submit submits an operator request on the host's session, one after another. The error matches [request.RefusedError] if the
// group's state does not allow it, and [cluster.ErrUnknown] if the request may have been submitted all the same.
func (h *Host) Submit(ctx context.Context, r request.Request) (request.Plan, error) {
	if err := r.Check(); err != nil {
		return request.Plan{}, err
	}
	if err := h.View().CheckReady(); err != nil {
		return request.Plan{}, err // it fails closed: an old view decides nothing
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

// serveRequests submits requests until life is over; neither the loop nor the lease waits for it. A write has as long as the
// session itself, since giving up earlier would end a session that is alive.
func (h *Host) serveRequests(life context.Context, s *zkstore.Session, timeout time.Duration) {
	for {
		select {
		case e := <-h.requests:
			plan, err := h.serveRequest(life, s, timeout, e)
			e.done <- submitResult{plan, err}
		case <-life.Done():
			return
		}
	}
}

func (h *Host) serveRequest(life context.Context, s *zkstore.Session, timeout time.Duration, e submission) (request.Plan, error) {
	if !s.Connected() {
		return request.Plan{}, operator.ErrNotConnected
	}
	submitter := operator.Submitter{Conn: s, Paths: h.paths, Config: h.config(), Read: operator.ReadTimeout, Write: timeout}
	ctx, cancel := context.WithCancel(life)
	defer cancel()
	detach := context.AfterFunc(e.ctx, cancel)
	plan, err := submitter.Submit(ctx, func(q whatif.Question) (request.Plan, error) {
		detach() // from here on it is submitted, even if the client leaves: a write that is not waited for ends the session
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

// Group returns the whole group.
func (h *Host) Group(ctx context.Context) (status.Group, error) { return h.cache.Group(ctx) }

// History returns the last terms, oldest first.
func (h *Host) History(ctx context.Context) ([]cluster.PastTerm, error) { return h.cache.History(ctx) }

// Explain returns why the leader is the leader.
func (h *Host) Explain(ctx context.Context) (whatif.Explanation, error) { return h.cache.Explain(ctx) }
