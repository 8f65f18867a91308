package agent

import (
	"context"
	"time"

	"zkelectd/internal/cluster"
)

// runProbes finds out whether ZooKeeper can be reached, whenever the promises depend on that.
func (a *Agent) runProbes() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if at := a.promises.Wake(); at != 0 {
			timer.Reset(max(0, at-a.opt.Clock()))
			due = timer.C
		}
		select {
		case <-due:
		case <-a.poke:
			continue
		case <-a.ctx.Done():
			return
		}
		if a.promises.Probe(a.opt.Clock()) {
			err := a.sendProbe()
			a.promises.ProbeDone(a.opt.Clock(), err)
		}
	}
}

// sendProbe sends a probe. Without a connection it fails at once.
func (a *Agent) sendProbe() error {
	a.mu.Lock()
	probe, limit := a.probe, a.budget.Session
	a.mu.Unlock()
	if probe == nil {
		return cluster.ErrNotSent
	}
	ctx, cancel := context.WithTimeout(a.ctx, max(limit, time.Millisecond))
	defer cancel()
	return probe(ctx)
}
