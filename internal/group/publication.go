package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
)

// retryPublication is how long a node's record that could not be written waits for the next attempt.
const retryPublication = 10 * time.Second

// publication keeps the node's record up to date, with one write at a time.
type publication struct {
	session interface {
		cluster.ReadWriter
		cluster.Owner
	}
	log        *slog.Logger
	paths      cluster.Paths
	self       cluster.Incarnation
	timeout    time.Duration
	background *background
	record     func() cluster.Node

	busy  bool
	stale bool // the record in ZooKeeper is outdated
	// waiting are called with the outcome of the next write.
	waiting []func(error)

	// What the write under way uses: whether version and since are those of the record in ZooKeeper.
	known   bool
	version int32
	since   time.Time
}

// publishNow is publish for a record that an election waits for; done is called in the loop with the outcome of the write.
func (p *publication) publishNow(done func(error)) {
	p.waiting = append(p.waiting, done)
	p.publish()
}

// publish writes the record, at once or after the current write.
func (p *publication) publish() {
	p.stale = true
	if p.busy {
		return
	}
	p.busy, p.stale = true, false
	rec, waiting := p.record(), p.waiting
	p.waiting = nil
	priority := zkstore.PriorityNormal
	if len(waiting) > 0 {
		priority = zkstore.PriorityRecovery
	}
	var err error
	p.background.run(p.timeout, func(ctx context.Context) { err = p.write(zkstore.WithPriority(ctx, priority), rec) }, func() {
		p.busy = false
		for _, done := range waiting {
			done(err)
		}
		if err != nil {
			p.stale = true
			p.log.Warn("the change of this node is not published yet", "znode", p.paths.Node(p.self.ID), "err", err)
		}
		switch {
		case len(p.waiting) > 0, err == nil && p.stale:
			p.publish()
		case err != nil:
			p.retryLater()
		}
	})
}

// write writes the record. Usually nothing but this has written it, so its version is known and it need not be read.
func (p *publication) write(ctx context.Context, rec cluster.Node) error {
	if p.known {
		err := p.set(ctx, rec)
		if !errors.Is(err, cluster.ErrBadVersion) {
			return err
		}
	}
	path := p.paths.Node(p.self.ID)
	data, stat, err := p.session.Get(ctx, path, false)
	if err != nil {
		return err
	}
	if stat.Owner != p.session.SessionID() {
		return fmt.Errorf("it belongs to session 0x%x", stat.Owner)
	}
	p.version, p.since = stat.Version, cluster.ReadStored[cluster.Node](path, data, stat, true).Record.Since
	return p.set(ctx, rec)
}

// set writes the record if its version is known. Otherwise, or after an unknown outcome, it must be read first.
func (p *publication) set(ctx context.Context, rec cluster.Node) error {
	rec.Since = p.since
	results, err := p.session.Do(ctx, p.paths.NodeTx(p.self.Name, p.version, rec)...)
	if p.known = err == nil; p.known {
		p.version = results[1].Version
	}
	return err
}

// retryLater publishes the record again after a while.
func (p *publication) retryLater() {
	p.background.spawn(func() {
		t := time.NewTimer(retryPublication)
		defer t.Stop()
		select {
		case <-t.C:
			p.background.runInLoop(func() {
				if p.stale {
					p.publish()
				}
			})
		case <-p.background.ctx.Done():
		}
	})
}

// checkDrift logs, once, that the policy or the slots of this daemon's configuration are not those in force.
func (g *Group) checkDrift(inForce cluster.Stored[cluster.Policy], slots cluster.Stored[cluster.Slots]) {
	if inForce.Readable() {
		g.opt.Placement.SetPolicy(inForce.Record.Rules)
	}
	d := drift{slots: slotsText(g.settings.Slots, slots, g.opt.Resource)}
	if rec := inForce.Record; inForce.Readable() && rec.Rules.Digest() != g.settings.Rules.Digest() {
		d.policy = fmt.Sprintf("the policy in force is revision %d, published by %s; that of this configuration differs", rec.Revision, rec.By)
	}
	if d.policy != "" && d.policy != g.driftSeen().policy {
		g.log.Warn("this configuration's policy is not the one in force", "reason", d.policy, "hint", fmt.Sprintf("see 'zkelectd policy diff --config /etc/zkelectd.yaml -g %s'", g.opt.Resource))
	}
	if d.slots != "" && d.slots != g.driftSeen().slots {
		g.log.Warn("this configuration's slots are not those in force", "reason", d.slots, "hint", "see docs/groups.md")
	}
	g.drift.Store(&d)
}

// drift says how a host's configuration differs from what is in force. Both texts are empty if it does not.
type drift struct{ policy, slots string }

// driftSeen returns how this configuration differed when that was last checked.
func (g *Group) driftSeen() drift {
	if d := g.drift.Load(); d != nil {
		return *d
	}
	return drift{}
}
