package host

import (
	"fmt"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
)

// grants holds the smallest session timeout that any server has granted to this daemon. A server that granted it once may grant
// it again at any reconnect.
type grants struct {
	mu       sync.Mutex
	smallest time.Duration
}

func (g *grants) note(timeout time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.smallest = cluster.Earliest(g.smallest, timeout)
}

// base returns the session timeout that the lease is based on, for a session with the granted timeout.
func (g *grants) base(granted time.Duration, z config.ZooKeeper) time.Duration {
	g.note(granted)
	g.mu.Lock()
	defer g.mu.Unlock()
	return z.LeaseBase(g.smallest)
}

// budget computes the timing of a session. It logs the session timeout that the lease is based on if servers have granted less
// than expected.
func (h *Host) budget(granted time.Duration) (budget cluster.Budget, base time.Duration, err error) {
	floor := h.config().ZooKeeper.MinSessionTimeout
	base = h.grants.base(granted, h.config().ZooKeeper)
	if budget, err = cluster.NewBudget(base, h.config().StopTimeout(base)); err != nil {
		if base < granted {
			err = fmt.Errorf("%w; the lease is computed from %s, not from the granted %s: the smallest of zookeeper.min_session_timeout (%s) and all timeouts granted since the start",
				err, base, granted, floor)
		}
		return budget, base, err
	}
	switch {
	case base < floor:
		h.log.Error("a ZooKeeper server granted less than zookeeper.min_session_timeout: the lease is based on the granted timeout",
			"granted", base, "zookeeper.min_session_timeout", floor)
	case base < granted && base != floor:
		h.log.Warn("until the daemon restarts, the lease is based on the shortest session timeout that any server has granted",
			"granted", granted, "lease_base", base)
	}
	return budget.Granted(granted), base, nil
}
