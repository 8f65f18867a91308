package zkstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster/renewal"
)

// renewer sends the RENEWs of all groups of a session, merged. No group can delay those of the others: a group only posts
// requests, and the renewer takes no lock that is held for longer than a computation, uses no disk and logs nothing.
type renewer struct {
	wake    chan struct{}
	results chan renewed
	sending atomic.Bool // a batch is about to be sent
	timer   *boottime.Timer

	mu     sync.Mutex
	merger *renewal.Merger
	done   map[int]func(renewal.Result) // of the request that each group posted last
}

// renewed is the outcome of a batch.
type renewed struct {
	batch renewal.Batch
	err   error
}

func newRenewer() *renewer {
	return &renewer{
		wake: make(chan struct{}, 1), results: make(chan renewed), merger: renewal.NewMerger(rand.Float64),
		done: make(map[int]func(renewal.Result)),
	}
}

// Renew posts a RENEW, which replaces the handle's last one. Unless it is replaced or withdrawn, or its deadline or the session's
// end comes first, done is called once with the result, from another goroutine; it must not block. A result that is on its way
// when the request is withdrawn is still delivered, so the caller must check that it is for what it holds now (S1).
func (g *Group) Renew(r renewal.Request, done func(renewal.Result)) {
	n := g.s.renewer
	n.mu.Lock()
	defer n.mu.Unlock()
	if g.ctx.Err() != nil {
		return
	}
	n.merger.Post(boottime.Now(), g.id, r)
	n.done[g.id] = done
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// takeSending reports, once for the batches that are sent together, whether one has just been sent.
func (n *renewer) takeSending() bool { return n.sending.Load() && n.sending.Swap(false) }

// WithdrawRenewal takes the handle's request back, if it has not been sent yet, and discards its result otherwise.
func (g *Group) WithdrawRenewal() {
	g.s.renewer.mu.Lock()
	defer g.s.renewer.mu.Unlock()
	g.s.renewer.withdraw(g)
}

// withdraw implements WithdrawRenewal. The caller holds n.mu.
func (n *renewer) withdraw(g *Group) {
	n.merger.Withdraw(g.id)
	delete(n.done, g.id)
}

// run sends what is due until the session has ended. Its timer is not one of the Go runtime, which wakes two threads.
func (n *renewer) run(s *Session) {
	defer n.timer.Close()
	for {
		n.mu.Lock()
		now := boottime.Now()
		due, next := n.merger.Take(now), n.merger.Wake()
		n.mu.Unlock()
		n.send(s, due)
		n.timer.Set(next)
		select {
		case <-n.wake:
		case <-n.timer.C:
		case r := <-n.results:
			n.send(s, n.deliver(r))
		case <-s.done:
			return
		}
	}
}

// send sends batches, all at once.
func (n *renewer) send(s *Session, batches []renewal.Batch) {
	for _, b := range batches {
		n.sending.Store(true)
		s.goroutines.Go(func() {
			ctx, cancel := context.WithTimeout(WithPriority(context.Background(), PriorityLease), b.Deadline-boottime.Now())
			defer cancel()
			_, err := s.own.Do(ctx, b.Ops...)
			select {
			case n.results <- renewed{b, err}:
			case <-s.done:
			}
		})
	}
}

// deliver delivers the results of a batch, and returns what must be sent again.
func (n *renewer) deliver(r renewed) (again []renewal.Batch) {
	n.mu.Lock()
	answers, again := n.merger.Done(boottime.Now(), r.batch, r.err)
	done := make([]func(renewal.Result), len(answers))
	for i, a := range answers {
		done[i] = n.done[a.ID]
		delete(n.done, a.ID)
	}
	n.mu.Unlock()
	for i, a := range answers {
		done[i](a.Result)
	}
	return again
}
