package host

import (
	"fmt"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
)

// grants remembers the smallest session timeout that servers have granted to this daemon: a server that did so once may do so
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

// budget computes the timing of a session, and logs what it rests on if that is less than what the session was granted.
func (h *Host) budget(granted time.Duration) (budget cluster.Budget, base time.Duration, err error) {
	floor := h.config().ZooKeeper.MinSessionTimeout
	base = h.grants.base(granted, h.config().ZooKeeper)
	if budget, err = cluster.NewBudget(base, h.config().StopTimeout(base)); err != nil {
		if base < granted {
			err = fmt.Errorf("%w; the lease rests on %s, although %s were granted: it is the smaller of zookeeper.min_session_timeout (%s) and of what any server has granted since this daemon started",
				err, base, granted, floor)
		}
		return budget, base, err
	}
	switch {
	case base < floor:
		h.log.Error("a ZooKeeper server granted less than zookeeper.min_session_timeout: the lease rests on what it granted",
			"granted", base, "zookeeper.min_session_timeout", floor)
	case base < granted && base != floor:
		h.log.Warn("the lease rests on the shortest session timeout that a server has granted to this daemon; a restart forgets it",
			"granted", granted, "lease_rests_on", base)
	}
	return budget.Granted(granted), base, nil
}
