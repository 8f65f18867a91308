package zk

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// request describes a request to the library.
type request struct {
	group *Group
	key   string // what it does, for suspects
	write bool
}

// await runs a request of the library, which takes no context, when it is its turn. It returns when ctx is done or the
// session has ended, even if there is no reply; the goroutine of the request ends with the session at the latest. The
// error is [cluster.ErrNotSent] if the library never got the request, and [cluster.ErrUnknown] for a write without a
// reply.
func await[T any](ctx context.Context, r request, f func() (T, error)) (T, error) {
	type reply struct {
		value T
		err   error
	}
	var zero T
	s := r.group.Session
	if err := s.Err(); err != nil {
		return zero, err
	}
	leave, err := s.enter(ctx, r)
	if err != nil {
		return zero, err
	}
	done := make(chan reply, 1)
	go func() {
		value, err := f()
		leave(outcomeOf(err))
		done <- reply{value, translateError(err)}
	}()
	var over error
	select {
	case r := <-done:
		if r.err != nil && s.Err() != nil {
			return zero, errors.Join(s.Err(), r.err)
		}
		return r.value, r.err
	case <-ctx.Done():
		if over = ctx.Err(); r.write {
			over = fmt.Errorf("%w: no reply in time (%w)", cluster.ErrUnknown, ctx.Err())
		}
	case <-s.done:
		over = s.Err()
	}
	select {
	case r := <-done:
		if r.err == nil { // the reply has arrived just in time
			return r.value, nil
		}
	default:
	}
	return zero, over
}

// enter waits until the library may have a request. It returns the function to call when the library is done with it.
func (s *Session) enter(ctx context.Context, r request) (leave func(outcome), err error) {
	end, err := s.begin(r)
	if err != nil {
		return nil, err
	}
	cleared, err := s.suspects.enter(ctx, r)
	if err != nil {
		end()
		return nil, err
	}
	free, err := s.queue.enter(ctx, r.group)
	if err != nil {
		cleared(unsent)
		end()
		return nil, err
	}
	return func(o outcome) {
		free()
		cleared(o)
		end()
	}, nil
}

func outcomeOf(err error) outcome {
	if errors.Is(err, zk.ErrConnectionClosed) {
		return lost
	}
	return answered
}

// maxInLibrary limits the requests that the library has of each priority below [PriorityUrgent]. A request waits for
// others of its own priority only, in the order in which they came.
const maxInLibrary = 64

// queue has a slot for each request that the library has, by its priority.
type queue [PriorityUrgent]chan struct{}

func newQueue() (q queue) {
	for p := range q {
		q[p] = make(chan struct{}, maxInLibrary)
	}
	return q
}

// enter waits for a slot, and returns the function that frees it.
func (q queue) enter(ctx context.Context, g *Group) (leave func(), err error) {
	p := PriorityOf(ctx)
	if p >= PriorityUrgent {
		return func() {}, nil
	}
	return func() { <-q[p] }, g.take(ctx, q[p])
}

// take waits for one of the slots. It returns an error if ctx is done, the group is given up or the session has ended.
func (g *Group) take(ctx context.Context, slots chan<- struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return notSent(ctx)
	case <-g.ctx.Done():
		return context.Cause(g.ctx)
	case <-g.done:
		return g.Err()
	}
}

// notSent returns the error of a request whose context is done before the library has it.
func notSent(ctx context.Context) error {
	return fmt.Errorf("%w: other requests came first (%w)", cluster.ErrNotSent, ctx.Err())
}

// pendingWrite is a write that the library may still send, or that it waits for the reply of.
type pendingWrite struct {
	root string
	over chan struct{}
}

// begin records a request that is about to be queued, and returns the function to call when the library is done with
// it. It returns an error if the handle was given up: no write of the handle begins after that.
func (s *Session) begin(r request) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.group.ctx.Err() != nil {
		return nil, context.Cause(r.group.ctx)
	}
	if !r.write {
		return func() {}, nil
	}
	w := &pendingWrite{r.group.root, make(chan struct{})}
	s.writes[w] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.writes, w)
		close(w.over)
	}, nil
}

// Sync waits for the earlier writes to this group's root, also those whose callers have given up waiting, and lets the
// server catch up. A later read shows everything that was applied, and no earlier write of this session can be applied
// any more.
func (g *Group) Sync(ctx context.Context) error {
	g.mu.Lock()
	var earlier []*pendingWrite
	for w := range g.writes {
		if w.root == g.root {
			earlier = append(earlier, w)
		}
	}
	g.mu.Unlock()
	for _, w := range earlier {
		select {
		case <-w.over:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the reply to an earlier write below %s: %w", g.root, ctx.Err())
		case <-g.done:
			return g.Err()
		}
	}
	_, err := await(WithPriority(ctx, PriorityUrgent), request{group: g},
		func() (string, error) { return g.zk.Sync(cmp.Or(g.root, "/")) })
	if err != nil {
		return fmt.Errorf("cannot sync %s: %w", cmp.Or(g.root, "/"), err)
	}
	return nil
}

// Settle syncs if the outcome of a write of this handle is unknown, so that what is read next shows it.
func (g *Group) Settle(ctx context.Context) error {
	if !g.swapUnsettled(false) {
		return nil
	}
	err := g.Sync(ctx)
	if err != nil {
		g.swapUnsettled(true)
	}
	return err
}

func (g *Group) swapUnsettled(to bool) (was bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was, g.unsettled = g.unsettled, to
	return was
}
