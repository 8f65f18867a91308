package group

import (
	"context"
	"errors"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/transition"
	"zkelectd/internal/work/fencer"
)

// Fencing says how this host, as a candidate, fences the node of a holder that was lost.
type Fencing struct {
	transition.Fencing
	// Fence fences a node with programs that run runs. It returns what has fenced it. It blocks.
	Fence func(ctx context.Context, t fencer.Target, run fencer.Runner) (by string, err error)
}

// fence fences a node in another goroutine. The loop ends that with the work.
func (m *Member) fence(a transition.Fence) {
	ctx, cancel := context.WithCancel(m.background.ctx)
	m.endFencing = cancel
	h := a.Holder
	target := fencer.Target{
		Group: m.group.opt.Name, Node: h.Node, Host: h.Host, Site: h.Site, Address: h.API, Term: h.Term, By: m.self.ID,
	}
	log := m.group.log.With("fenced", h.Node, "held_term", h.Term, "term", a.Term)
	log.Warn("fencing the node of a lost holder")
	m.background.spawn(func() {
		defer cancel()
		by, err := m.opt.Fencing.Fence(ctx, target, m.worker.RunUnderLease)
		if err == nil && ctx.Err() != nil {
			err = errors.New("was cut short") // it may have succeeded, but for a term that is over
		}
		if err != nil {
			log.Error("fencing failed: it is not certain that the node is off", "err", err)
		} else {
			log.Warn("fenced: the node is off", "by", by)
		}
		m.group.opt.Counters.Update(func(t *status.Totals) { t.Fenced.Add(err) })
		m.report(transition.Fenced{Term: a.Term, Node: h.Node, Host: h.Host, By: by, Err: err})
	})
}

// stopFencing ends what fences a node, if something does.
func (m *Member) stopFencing() {
	if m.endFencing != nil {
		m.endFencing()
	}
}
