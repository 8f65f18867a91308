package zk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/renewal"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/transition"
)

// renewer sends the RENEWs of all groups of a session, merged. No group can delay those of the others: a group only
// posts requests, and the renewer takes no lock that is held for longer than a computation, uses no disk and logs
// nothing.
//
// An idle leader does little else than this, so the renewer has no timer of the Go runtime: one of those wakes two
// threads, also at the time of a deadline that was stopped long before.
type renewer struct {
	sending atomic.Bool // a batch is about to be sent

	delivering sync.Mutex // held while results are delivered, so that they keep their order; locked before mu

	mu      sync.Mutex
	timer   *boottime.Timer // nil while run does not run
	merger  *renewal.Merger
	done    map[int]func(transition.RenewDone) // of the request that each group posted last
	pending map[*renewal.Batch]struct{}        // batches whose results have not been delivered
	znode   string                             // the lease znode; empty if there is none
}

func newRenewer() *renewer {
	return &renewer{
		merger: renewal.NewMerger(rand.Float64), done: make(map[int]func(transition.RenewDone)),
		pending: make(map[*renewal.Batch]struct{}),
	}
}

// Renew posts a RENEW, which replaces the handle's last one. Unless it is replaced or withdrawn, or its deadline or the
// session's end comes first, done is called once with the result, from another goroutine; it must not block. A result
// that is on its way when the request is withdrawn is still delivered, so the caller must check that it is for what it
// holds now (S1).
func (g *Group) Renew(r transition.Renew, done func(transition.RenewDone)) {
	n := g.renewer
	n.mu.Lock()
	defer n.mu.Unlock()
	if g.ctx.Err() != nil {
		return
	}
	n.merger.Post(boottime.Now(), g.id, r)
	n.done[g.id] = done
	n.setTimer()
}

// SetLeaseZnode sets the lease znode, which the session has created and written once (docs/protocol.md, The renewal is
// seen). From now on every RENEW advances it.
func (s *Session) SetLeaseZnode(znode string) {
	n := s.renewer
	n.mu.Lock()
	defer n.mu.Unlock()
	n.znode = znode
	n.merger.SetLeaseZnode(znode, s.SessionID(), 1)
}

// LeaseZnode returns the path of the session's lease znode; empty if it has none.
func (s *Session) LeaseZnode() string {
	s.renewer.mu.Lock()
	defer s.renewer.mu.Unlock()
	return s.renewer.znode
}

// takeSending reports, once for the batches that are sent together, whether one has just been sent.
func (n *renewer) takeSending() bool { return n.sending.Load() && n.sending.Swap(false) }

// WithdrawRenewal takes the handle's request back, if it has not been sent yet, and discards its result otherwise.
func (g *Group) WithdrawRenewal() {
	g.renewer.mu.Lock()
	defer g.renewer.mu.Unlock()
	g.renewer.withdraw(g)
}

// withdraw implements WithdrawRenewal. The caller holds n.mu.
func (n *renewer) withdraw(g *Group) {
	n.merger.Withdraw(g.id)
	delete(n.done, g.id)
}

// setTimer sets the timer for what is due next: a batch, or the deadline of one that was sent. The caller holds n.mu.
func (n *renewer) setTimer() {
	if n.timer == nil {
		return
	}
	at := n.merger.Wake()
	for b := range n.pending {
		at = cluster.Earliest(at, b.Deadline)
	}
	n.timer.Set(at)
}

// run sends what is due until the session has ended.
func (n *renewer) run(s *Session, timer *boottime.Timer) {
	n.mu.Lock()
	n.timer = timer
	n.setTimer()
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.timer = nil
		timer.Close()
	}()
	for {
		select {
		case <-timer.C:
		case <-s.done:
			return
		}
		now := boottime.Now()
		var late []*renewal.Batch
		n.mu.Lock()
		due := n.merger.Take(now)
		for b := range n.pending {
			if now >= b.Deadline {
				late = append(late, b)
			}
		}
		n.mu.Unlock()
		n.send(s, due) // sets the timer
		for _, b := range late {
			n.deliver(s, b, cluster.Stat{}, errNoReply)
		}
	}
}

// errNoReply is the outcome of a batch whose reply has not come by its deadline.
var errNoReply = fmt.Errorf("%w: no reply in time", cluster.ErrUnknown)

// renewalContext is the context of RENEWs. It has no deadline: run observes that of each batch.
var renewalContext = WithPriority(context.Background(), PriorityUrgent)

// send sends batches, all at once.
func (n *renewer) send(s *Session, batches []renewal.Batch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range batches {
		b := &batches[i]
		n.pending[b] = struct{}{}
		n.sending.Store(true)
		go func() { // ends with the reply, or the session at the latest
			if b.Ops == nil {
				stat, err := s.readLeaseZnode(s.LeaseZnode(), b.Deadline)
				n.deliver(s, b, stat, err)
				return
			}
			_, err := s.own.Do(renewalContext, b.Ops...)
			n.deliver(s, b, cluster.Stat{}, err)
		}()
	}
	n.setTimer()
}

// readLeaseZnode reads the lease znode as all earlier transactions have left it.
func (s *Session) readLeaseZnode(znode string, deadline time.Duration) (cluster.Stat, error) {
	ctx, cancel := context.WithTimeout(renewalContext, deadline-boottime.Now())
	defer cancel()
	if err := s.own.Sync(ctx); err != nil {
		return cluster.Stat{}, err
	}
	_, stat, err := s.own.Get(ctx, znode, false)
	return stat, err
}

// deliver delivers the results of a batch, or what was read in its place, and sends what must be sent again. Only the
// first outcome of a batch counts, and none after the session's end.
func (n *renewer) deliver(s *Session, b *renewal.Batch, stat cluster.Stat, err error) {
	n.delivering.Lock()
	defer n.delivering.Unlock()
	n.mu.Lock()
	if _, first := n.pending[b]; !first || s.Err() != nil {
		n.mu.Unlock()
		return
	}
	delete(n.pending, b)
	var answers []renewal.Answer
	var again []renewal.Batch
	if now := boottime.Now(); b.Ops == nil {
		answers, again = n.merger.Counted(now, *b, stat, err)
	} else {
		answers, again = n.merger.Done(now, *b, err)
	}
	over := n.merger.Err()
	done := make([]func(transition.RenewDone), len(answers))
	for i, a := range answers {
		done[i] = n.done[a.ID]
		delete(n.done, a.ID)
	}
	n.mu.Unlock()
	for i, a := range answers {
		done[i](a.RenewDone)
	}
	if over != nil {
		s.end(over)
	}
	n.send(s, again)
}
