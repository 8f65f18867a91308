package host

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"zkelectd/internal/cluster"
)

// noteGrant returns the smallest session timeout that any server has granted to this daemon: one that granted it once
// may grant it again at any reconnect.
func (h *Host) noteGrant(timeout time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.smallestGrant = cluster.Earliest(h.smallestGrant, timeout)
	return h.smallestGrant
}

// leaseBase returns the session timeout that leases are based on. It logs that if servers have granted less than expected.
func (h *Host) leaseBase(granted time.Duration) time.Duration {
	z := h.config().ZooKeeper
	floor, base := z.MinSessionTimeout, z.LeaseBase(h.noteGrant(granted))
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
	level := slog.LevelDebug
	if r.host.single() {
		level = slog.LevelInfo
	}
	r.log.Log(context.Background(), level, b.Text())
}

// budget returns the timing of the resource's leaderships in this session.
func (s *session) budget(r *resource) (cluster.Budget, error) {
	budget, err := r.config().Budget(s.base)
	if err != nil && s.base < s.granted {
		err = fmt.Errorf("%w; the lease is computed from %s, not from the granted %s: the smallest of zookeeper.min_session_timeout (%s) and all timeouts granted since the start",
			err, s.base, s.granted, s.host.config().ZooKeeper.MinSessionTimeout)
	}
	return budget.Granted(s.granted), err
}
