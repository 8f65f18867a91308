package host

import (
	"slices"
	"sync"

	"zkelectd/internal/group"
)

// maxMoves is how many groups this host, as their elector, moves by preemptions at once.
const maxMoves = 4

// maxStarts returns how many takeovers start their work at once on a host with a number of processor cores.
func maxStarts(cores int) int { return max(8, 2*cores) }

// limiter bounds how many groups of the host do something at once. Requests are granted in their order: a group whose takeover waits
// has no leader that works, whatever it was elected for.
type limiter struct {
	max int // 0 for no limit

	mu    sync.Mutex
	held  int
	queue []*claim
}

// claim is a permit, or a request for one.
type claim struct {
	granted func()
	held    bool
	over    bool
}

func (l *limiter) request(c *claim) {
	l.mu.Lock()
	if c.over { // released at the same time
		l.mu.Unlock()
		return
	}
	l.queue = append(l.queue, c)
	l.grant()
}

// release ends a claim. It may be called again.
func (l *limiter) release(c *claim) {
	l.mu.Lock()
	if !c.over {
		c.over = true
		if c.held {
			l.held--
		} else {
			l.queue = slices.DeleteFunc(l.queue, func(other *claim) bool { return other == c })
		}
	}
	l.grant()
}

// grant grants as many requests as there is room for, and unlocks l.
func (l *limiter) grant() {
	var granted []*claim
	for len(l.queue) > 0 && (l.max == 0 || l.held < l.max) {
		c := l.queue[0]
		l.queue = l.queue[1:]
		c.held = true
		l.held++
		granted = append(granted, c)
	}
	l.mu.Unlock()
	for _, c := range granted {
		c.granted()
	}
}

// share is the access of one instance to a limiter; it implements [group.Limiter]. close gives back everything, since a stuck loop
// does not.
type share struct {
	limiter *limiter

	mu     sync.Mutex
	claims []*claim
	closed bool
}

// Request implements [group.Limiter].
func (s *share) Request(granted func()) (release func()) {
	c := &claim{granted: granted}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.claims = append(s.claims, c)
	}
	s.mu.Unlock()
	if closed {
		return func() {}
	}
	s.limiter.request(c)
	return func() {
		s.mu.Lock()
		s.claims = slices.DeleteFunc(s.claims, func(other *claim) bool { return other == c })
		s.mu.Unlock()
		s.limiter.release(c)
	}
}

// limits gives the leaderships of an instance their access to the limits of the host. A host with one group has none.
func (i *instance) limits(h *Host, r *group.Registration) {
	if h.single() {
		return
	}
	i.starts, i.moves = &share{limiter: &h.starts}, &share{limiter: &h.moves}
	for n := range r.Leaderships {
		r.Leaderships[n].Options.Limits = group.Limits{Starts: i.starts, Moves: i.moves}
	}
}

func (i *instance) closeLimits() {
	if i.starts != nil {
		i.starts.close()
		i.moves.close()
	}
}

func (s *share) close() {
	s.mu.Lock()
	claims := s.claims
	s.claims, s.closed = nil, true
	s.mu.Unlock()
	for _, c := range slices.Backward(claims) { // requests first, so that they are not granted
		s.limiter.release(c)
	}
}
