package host

import (
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

// leaseBase returns the session timeout that leases are based on. It logs that if servers have granted less than expected.
func (h *Host) leaseBase(granted time.Duration) time.Duration {
	floor := h.config().ZooKeeper.MinSessionTimeout
	base := h.grants.base(granted, h.config().ZooKeeper)
	switch {
	case base < floor:
		h.log.Error("a ZooKeeper server granted less than zookeeper.min_session_timeout: the lease is based on the granted timeout",
			"granted", base, "zookeeper.min_session_timeout", floor)
	case base < granted && base != floor:
		h.log.Warn("until the daemon restarts, the lease is based on the shortest session timeout that any server has granted",
			"granted", granted, "lease_base", base)
	}
	return base
}

// logBudget logs the timing of the leaderships.
func (r *resource) logBudget(b cluster.Budget) {
	text := b.Text(r.config().Election.TrustSessionEnd)
	if r.host.single() {
		r.log.Info(text)
		return
	}
	r.log.Debug(text)
}
