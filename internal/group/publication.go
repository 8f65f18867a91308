package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
)

// publication keeps the node's record up to date, with one write at a time.
type publication struct {
	session interface {
		cluster.ReadWriter
		cluster.Owner
	}
	log        *slog.Logger
	path       string
	timeout    time.Duration
	background *background
	record     func() cluster.Node

	busy  bool
	stale bool // the record in ZooKeeper is outdated
}

// publish writes the record, at once or after the current write.
func (p *publication) publish() {
	p.stale = true
	if p.busy {
		return
	}
	p.busy, p.stale = true, false
	rec := p.record()
	var err error
	p.background.run(p.timeout, func(ctx context.Context) { err = p.write(ctx, rec) }, func() {
		p.busy = false
		if err != nil {
			p.stale = true // refreshLoop tries again
			p.log.Warn("the change of this node is not published yet", "znode", p.path, "err", err)
		} else if p.stale {
			p.publish()
		}
	})
}

func (p *publication) write(ctx context.Context, rec cluster.Node) error {
	data, stat, err := p.session.Get(ctx, p.path, false)
	if err != nil {
		return err
	}
	if stat.Owner != p.session.SessionID() {
		return fmt.Errorf("it belongs to session 0x%x", stat.Owner)
	}
	rec.Since = cluster.ReadSlot[cluster.Node](p.path, data, stat, true).Record.Since
	_, err = p.session.Do(ctx, cluster.Op{Kind: cluster.OpSet, Path: p.path, Version: stat.Version, Data: cluster.Encode(&rec)})
	return err
}

// refreshLoop measures the latency of ZooKeeper, and compares this configuration's policy with the one in force, every
// [status.CheckInterval] until the loop ends.
func (m *Member) refreshLoop() {
	g := m.group
	t := time.NewTicker(status.CheckInterval)
	defer t.Stop()
	path := g.opt.Paths.Policy()
	for {
		ctx, cancel := context.WithTimeout(m.background.ctx, m.budget.Session)
		began, at := time.Now(), boottime.Now()
		data, stat, err := m.session.Get(ctx, path, false)
		took := time.Since(began)
		if err == nil || errors.Is(err, cluster.ErrNoNode) {
			g.opt.Counters.Update(func(t *status.Totals) { t.Reads.Observe(took) })
			g.opt.Health.ObserveLatency(took)
			inForce := cluster.ReadSlot[cluster.Policy](path, data, stat, err == nil)
			m.background.runInLoop(func() {
				m.responded = max(m.responded, at)
				g.checkDrift(inForce)
				if m.node.stale {
					m.node.publish()
				}
			})
			if g.openTree.Load() { // otherwise the ACLs are checked when a session begins
				m.auditAgain(ctx)
			}
		}
		cancel()
		select {
		case <-t.C:
		case <-m.background.ctx.Done():
			return
		}
	}
}

// checkDrift logs, once, that the policy of this daemon's configuration is not the one in force.
func (g *Group) checkDrift(inForce cluster.Slot[cluster.Policy]) {
	drift := ""
	if rec := inForce.Record; inForce.Readable() && rec.Rules.Digest() != g.settings.Rules.Digest() {
		drift = fmt.Sprintf("the policy in force is revision %d, published by %s; that of this configuration differs", rec.Revision, rec.By)
	}
	if drift != "" && drift != g.drift {
		g.log.Warn("the policy in this configuration is not the one in force", "reason", drift, "hint", "see zkelectd policy diff")
	}
	g.drift = drift
}
