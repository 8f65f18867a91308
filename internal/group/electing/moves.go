package electing

import (
	"slices"
	"sync"
	"sync/atomic"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
)

// noRoom is why a preemption waits.
const noRoom = "as many groups as this host moves at once already move by its decision"

// decideWithLimits makes a decision. A preemption needs a permit, which is kept until its new leader is READY.
func (e *Elector) decideWithLimits(in elector.Input) elector.Decision {
	in.Succeeded = e.succeeded
	if e.opt.Moves == nil {
		return e.core.Decide(in)
	}
	if s := &in.Snapshot; e.moving != 0 && (s.Ready() || !s.Elected.Readable() || s.Elected.Record.Term != e.moving) {
		e.EndMove()
	}
	if e.move == nil || !e.move.Granted() {
		in.NoRoom = noRoom
	}
	d := e.core.Decide(in)
	if d.AwaitsRoom && e.move == nil {
		if e.move = e.opt.Moves.Request(e.opt.Wake); e.move.Granted() {
			in.NoRoom = ""
			d = e.core.Decide(in)
		}
	}
	switch {
	case d.Elect != nil && d.Elect.Cause == cluster.CausePreempt:
		e.moving = d.Elect.Term
	case !d.AwaitsRoom && !d.AwaitsAnswers && e.moving == 0:
		e.EndMove() // no longer wanted
	}
	return d
}

// EndMove gives back the permit for a preemption.
func (e *Elector) EndMove() {
	if e.move != nil {
		e.move.Release()
	}
	e.move, e.moving = nil, 0
}

// Limit bounds how many groups of this host do something at once. Requests are granted in their order: a group whose
// takeover waits has no leader that works, whatever it was elected for. It is safe for concurrent use.
type Limit struct {
	most int

	mu          sync.Mutex
	held, queue []*Permit
}

// NewLimit returns a limit of most groups at once.
func NewLimit(most int) *Limit { return &Limit{most: most} }

// Share is the access of one instance to a [Limit]. Close gives back everything, since a stuck loop does not.
type Share struct {
	limit  *Limit
	closed bool // guarded by the mutex of the limit
}

// Permit is a permit, or a request for one.
type Permit struct {
	share   *Share
	wake    func()
	granted atomic.Bool
}

// NewShare returns a share of the limit.
func (l *Limit) NewShare() *Share { return &Share{limit: l} }

// Request requests a permit. wake is called when it is granted, possibly before Request returns, and must not block.
// Nothing is granted any more once the share is closed.
func (s *Share) Request(wake func()) *Permit {
	l, p := s.limit, &Permit{share: s, wake: wake}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.closed {
		l.queue = append(l.queue, p)
		l.grant()
	}
	return p
}

// Close gives back all permits and requests of the share.
func (s *Share) Close() {
	s.limit.mu.Lock()
	defer s.limit.mu.Unlock()
	s.closed = true
	s.limit.remove(func(p *Permit) bool { return p.share == s })
}

// Granted reports whether the permit was granted.
func (p *Permit) Granted() bool { return p.granted.Load() }

// Release gives the permit, or the request for it, back. It may be called again.
func (p *Permit) Release() {
	l := p.share.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(func(other *Permit) bool { return other == p })
}

func (l *Limit) remove(which func(*Permit) bool) {
	l.held, l.queue = slices.DeleteFunc(l.held, which), slices.DeleteFunc(l.queue, which)
	l.grant()
}

// grant grants as many requests as there is room for.
func (l *Limit) grant() {
	for len(l.queue) > 0 && len(l.held) < l.most {
		p := l.queue[0]
		l.held, l.queue = append(l.held, p), l.queue[1:]
		p.granted.Store(true)
		p.wake()
	}
}
