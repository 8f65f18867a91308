package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
)

// publication keeps nodes/<id> as this daemon is. One write is under way at a time.
type publication struct {
	l     *loop
	busy  bool
	stale bool // what is published is not the last word
}

// publish writes the node's record, now or after the write that is under way.
func (p *publication) publish() {
	p.stale = true
	if p.busy {
		return
	}
	l := p.l
	p.busy, p.stale = true, false
	rec := l.d.record(l.s)
	l.machine.SetSite(rec.Site)
	l.owned.Go(func() {
		err := p.write(rec)
		l.later(func() {
			p.busy = false
			if err != nil {
				p.stale = true // the next survey tries again
				l.d.log.Warn("the change of this node is not published yet", "znode", l.d.paths.Node(rec.ID), "err", err)
			} else if p.stale {
				p.publish()
			}
		})
	})
}

func (p *publication) write(rec cluster.Node) error {
	l, path := p.l, p.l.d.paths.Node(rec.ID)
	ctx, cancel := context.WithTimeout(l.life, l.budget.Session)
	defer cancel()
	data, stat, err := l.s.Get(ctx, path, false)
	if err != nil {
		return err
	}
	if stat.Owner != l.s.SessionID() {
		return fmt.Errorf("it belongs to session 0x%x", stat.Owner)
	}
	rec.Since = cluster.ReadSlot[cluster.Node](path, data, stat, true).Record.Since
	_, err = l.s.Do(ctx, cluster.Op{Kind: cluster.OpSet, Path: path, Version: stat.Version, Data: cluster.Encode(&rec)})
	return err
}

// survey measures the round trip to ZooKeeper, and compares the own policy with the one in force, until the session is
// over.
func (l *loop) survey() {
	t := time.NewTicker(status.SurveyInterval)
	defer t.Stop()
	path := l.d.paths.Policy()
	for {
		ctx, cancel := context.WithTimeout(l.life, l.budget.Session)
		began, asked := time.Now(), boottime.Now()
		data, stat, err := l.s.Get(ctx, path, false)
		took := time.Since(began)
		if err == nil || errors.Is(err, cluster.ErrNoNode) {
			ms := float64(took) / float64(time.Millisecond)
			l.d.tally.count(func(t *status.Totals) { t.Reads.Observe(took) })
			l.d.vitals.set(func() bool { return l.d.vitals.latency.add(ms, 0.5) })
			rec := cluster.ReadSlot[cluster.Policy](path, data, stat, err == nil)
			l.later(func() {
				l.heard = max(l.heard, asked)
				l.drift(rec)
			})
			if l.d.openTree.Load() { // a closed one is looked at when a session begins
				l.lookAtTree(ctx)
			}
		}
		cancel()
		select {
		case <-t.C:
		case <-l.life.Done():
			return
		}
	}
}

// drift tells, once, that another policy is in force than the own configuration's.
func (l *loop) drift(inForce cluster.Slot[cluster.Policy]) {
	drift := ""
	if rec := inForce.Record; inForce.Readable() && rec.Rules.Digest() != l.d.config().Rules().Digest() {
		drift = fmt.Sprintf("the policy in force is revision %d, published by %s; that of this configuration differs", rec.Revision, rec.By)
	}
	if drift != "" && drift != l.d.drift {
		l.d.log.Warn("the configuration's policy is not the one in force, which stays", "reason", drift, "hint", "see zkelectd policy diff")
	}
	l.d.drift = drift
	if l.node.stale {
		l.node.publish()
	}
}
