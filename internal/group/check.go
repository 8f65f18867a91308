package group

import (
	"context"
	"errors"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/boottime"
)

// Check compares this configuration's policy and slots with those in force, and measures the latency of ZooKeeper with
// that. If the tree was open, it checks whether it still is. It returns how many znodes it has read. The host calls it
// for each new instance, and then for one after another: its cost is that of the host, not of its groups.
func (i *Instance) Check(ctx context.Context) (reads int) {
	m := i.members[0]
	g := m.group
	ctx, cancel := context.WithTimeout(ctx, m.budget.Session)
	defer cancel()
	path := g.opt.Paths.Policy()
	at := boottime.Now()
	data, stat, err := m.session.Get(ctx, path, false)
	took := boottime.Now() - at
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return 1 // the next check tries again
	}
	g.opt.Counters.Update(func(t *status.Totals) { t.Reads.Observe(took) })
	g.opt.Health.ObserveRead(at, took)
	inForce := cluster.ReadStored[cluster.Policy](path, data, stat, err == nil)
	audit := make(chan bool, 1)
	m.background.runInLoop(func() {
		g.checkDrift(inForce, m.snap.Slots)
		audit <- g.openTree.Load() && !g.opensTree() // otherwise the ACLs are checked when an instance registers
	})
	select {
	case open := <-audit:
		if open {
			m.auditAgain(ctx)
			return 2
		}
	case <-m.background.ctx.Done():
	case <-ctx.Done():
	}
	return 1
}
