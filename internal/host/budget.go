package host

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/losses"
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

// logBudget logs the timing of the leaderships, and what becomes of the group after a loss.
func (r *resource) logBudget(b cluster.Budget) {
	level := slog.LevelDebug
	if r.host.single() {
		level = slog.LevelInfo
	}
	r.log.Log(context.Background(), level, b.Text())
	r.log.LogAttrs(context.Background(), level, "time from a loss until the next leader may start its work", lossAttrs(operator.Losses(r.config(), b, false))...)
}

// lossAttrs says how long each loss takes, or why it is not survived.
func lossAttrs(table []losses.Loss) (attrs []slog.Attr) {
	for _, l := range table {
		text := l.Time()
		if !l.Survived() {
			text += ", not survived: " + l.Why
		}
		attrs = append(attrs, slog.String(string(l.Kind), text))
	}
	return attrs
}
