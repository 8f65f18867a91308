package group

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
	"zkelectd/internal/zk"
)

// retryPublication is how long a node's record that could not be written waits for the next attempt.
const retryPublication = 10 * time.Second

// publication keeps the node's record up to date, with one write at a time.
type publication struct {
	writer     *store.NodeWriter // used by the write under way
	log        *slog.Logger
	znode      string
	timeout    time.Duration
	background *background
	record     func() cluster.Node

	busy  bool
	stale bool // the record in ZooKeeper is outdated
	// waiting are called with the outcome of the next write.
	waiting []func(error)
}

// publishNow is publish for a record that an election waits for; done is called in the loop with the outcome of the
// write.
func (p *publication) publishNow(done func(error)) {
	p.waiting = append(p.waiting, done)
	p.publish()
}

// publish writes the record, at once or after the current write.
func (p *publication) publish() {
	if p.stale = true; p.busy {
		return
	}
	rec := p.record()
	p.busy, p.stale = true, false
	waiting := p.waiting
	p.waiting = nil
	priority := zk.PriorityNormal
	if len(waiting) > 0 {
		priority = zk.PriorityRecovery
	}
	var err error
	p.background.run(p.timeout, func(ctx context.Context) { err = p.writer.Write(zk.WithPriority(ctx, priority), rec) },
		func() {
			p.busy = false
			for _, done := range waiting {
				done(err)
			}
			if err != nil {
				p.stale = true
				p.log.Warn("the change of this node is not published yet", "znode", p.znode, "err", err)
			}
			switch {
			case len(p.waiting) > 0, err == nil && p.stale:
				p.publish()
			case err != nil:
				p.background.spawn(func() {
					if p.background.pause(retryPublication) {
						p.background.runInLoop(func() {
							if p.stale {
								p.publish()
							}
						})
					}
				})
			}
		})
}

// checkDrift logs, once, that the policy or the slots of this daemon's configuration are not those in force.
func (g *Group) checkDrift(inForce cluster.Stored[cluster.Policy], slots cluster.Stored[cluster.Slots]) {
	if inForce.Readable() {
		g.opt.Placement.SetPolicy(inForce.Record.Rules)
		if _, err := policy.New(inForce.Record); err == nil {
			g.lastRules = &inForce.Record.Rules
		}
	}
	d := drift{slots: slotsText(g.settings.Slots, slots, g.opt.Resource)}
	if rec, own := inForce.Record, g.settings.policyDigest(); inForce.Readable() && own != "" &&
		rec.Rules.Digest() != own {
		d.policy = fmt.Sprintf("the policy in force is revision %d, published by %s; that of this "+
			"configuration differs", rec.Revision, rec.By)
	}
	if d.policy != "" && d.policy != g.driftSeen().policy {
		g.log.Warn("this configuration's policy is not the one in force", "reason", d.policy, "advice",
			cluster.InGroup("'zkelectd policy'", g.opt.Resource)+" prints that for the file")
	}
	if d.slots != "" && d.slots != g.driftSeen().slots {
		g.log.Warn("this configuration's slots are not those in force", "reason", d.slots, "advice", "see docs/groups.md")
	}
	g.drift.Store(&d)
}

// drift says how a host's configuration differs from what is in force. Both texts are empty if it does not.
type drift struct{ policy, slots string }

// driftSeen returns how this configuration differed when that was last checked.
func (g *Group) driftSeen() drift { return *g.drift.Load() }
