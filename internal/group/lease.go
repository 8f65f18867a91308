package group

import (
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
)

// leaseLimit is the only way by which the deadlines of a session's leases reach the guard. Once a lease has been cut, no later
// message extends it: it was computed from the longer session timeout.
type leaseLimit struct {
	send func(deadline time.Duration)

	mu   sync.Mutex
	last time.Duration // what was sent last
	cut  time.Duration // 0 for no bound
}

// set sends a deadline; 0 if nothing works any more.
func (l *leaseLimit) set(deadline time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if deadline != 0 {
		deadline = cluster.Earliest(deadline, l.cut)
	}
	l.last = deadline
	l.send(deadline)
}

// shorten sends a lease under way anew if it outlasts deadline, and bounds all that follow.
func (l *leaseLimit) shorten(deadline time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cluster.Earliest(l.cut, deadline)
	if l.last > l.cut {
		l.last = l.cut
		l.send(l.cut)
	}
}

// CutLease ends the lease by deadline, at once and without the loop, and then the leadership and the membership in order: a
// server has granted less than the lease rests on. It is safe for concurrent use, and never blocks for long.
func (m *Member) CutLease(deadline time.Duration, reason string) {
	m.limit.shorten(deadline)
	select {
	case m.cuts <- transition.LeaseCut{Deadline: deadline, Reason: reason}:
	default: // the loop has not handled the ones before yet, and any of them ends the session
	}
}
