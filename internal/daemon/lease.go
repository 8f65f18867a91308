package daemon

import (
	"fmt"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/config"
	"zkelectd/internal/transition"
)

// leaseLimit is the one way by which the deadlines of a session's leases reach the guard. Once a lease has been cut no
// later message extends it: whatever was computed from the longer session timeout comes too late.
type leaseLimit struct {
	send func(deadline time.Duration)

	mu   sync.Mutex
	last time.Duration // what was sent last
	cut  time.Duration // 0 for no bound
}

// lease sends a deadline; 0 says that nothing works any more.
func (l *leaseLimit) lease(deadline time.Duration) {
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

// shrunk cuts the lease when a server has granted less than it rests on. The session calls it before anything is sent on
// the new connection, from a goroutine of its own; the loop hears of it afterwards.
func (l *loop) shrunk(s zkstore.Grant) {
	cut := s.RequestedAt + cluster.SafeLease(s.Timeout)
	l.limit.shorten(cut)
	l.d.grants.note(s.Timeout)
	l.d.log.Error("a ZooKeeper server granted a shorter session timeout than the lease rests on: leadership ends, and a new session begins",
		"server", s.Server, "granted", s.Timeout, "lease_rests_on", s.Base,
		"hint", fmt.Sprintf("let all servers have a maxSessionTimeout of at least %s, or set zookeeper.min_session_timeout: %s on all hosts", s.Base, s.Timeout))
	select {
	case l.cuts <- transition.LeaseCut{Deadline: cut, Reason: fmt.Sprintf("%s granted a session timeout of %s instead of %s", s.Server, s.Timeout, s.Base)}:
	default: // the loop has not yet taken in the ones before, and any of them ends the session
	}
}

// grants remembers the smallest session timeout that servers have granted to this daemon: what a server did once it may do
// again at any reconnect.
type grants struct {
	mu       sync.Mutex
	smallest time.Duration
}

func (g *grants) note(timeout time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.smallest = cluster.Earliest(g.smallest, timeout)
}

// base returns the session timeout that a lease may rest on, where granted is that of its session.
func (g *grants) base(granted time.Duration, z config.ZooKeeper) time.Duration {
	g.note(granted)
	g.mu.Lock()
	defer g.mu.Unlock()
	return z.LeaseBase(g.smallest)
}

// budget computes the figures of a session, and says what they rest on if that is less than what the session was granted.
func (d *Daemon) budget(granted time.Duration) (budget cluster.Budget, base time.Duration, err error) {
	floor := d.config().ZooKeeper.MinSessionTimeout
	base = d.grants.base(granted, d.config().ZooKeeper)
	if budget, err = cluster.NewBudget(base, d.config().StopTimeout(base)); err != nil {
		if base < granted {
			err = fmt.Errorf("%w; the lease rests on %s, although %s were granted: it is the smaller of zookeeper.min_session_timeout (%s) and of what any server has granted since this daemon started",
				err, base, granted, floor)
		}
		return budget, base, err
	}
	switch {
	case base < floor:
		d.log.Error("a ZooKeeper server granted less than zookeeper.min_session_timeout: the lease rests on what it granted",
			"granted", base, "zookeeper.min_session_timeout", floor)
	case base < granted && base != floor:
		d.log.Warn("the lease rests on the shortest session timeout that a server has granted to this daemon; a restart forgets it",
			"granted", granted, "lease_rests_on", base)
	}
	return budget.Granted(granted), base, nil
}
