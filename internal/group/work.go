package group

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/transition"
	"zkelectd/internal/work/fencer"
	"zkelectd/internal/work/hook"
	"zkelectd/internal/work/workenv"
	"zkelectd/internal/work/worker"
)

func (m *Member) newWorker() *worker.Worker {
	opt, spec := m.group.opt, m.opt.Work
	spec.StopTimeout = m.budget.Stop
	return worker.New(worker.Options{
		Guard: m.guard, Log: opt.Log, Spec: spec, Fencing: m.fencing, HookTimeout: m.budget.Kill,
		Report: m.report, Standby: m.opt.Standby,
		// Work that is being stopped has nothing to publish any more.
		PublishValue: func(term int64, value string) { _ = m.group.PublishValue(term, value) },
	})
}

// fencing returns the identity and the fencing token of the work.
func (m *Member) fencing(term int64) workenv.Fencing {
	opt, node := m.group.opt, m.group.settings.Node
	f := workenv.Fencing{Node: node.ID, Site: node.Site, Group: opt.Resource, Term: strconv.FormatInt(term, 10),
		Root: opt.Paths.Root}
	// Another host chose these texts: what a unit cannot have as a variable must not keep it from starting.
	if o := m.machine.Origin(); m.machine.Term() == term && workenv.CheckValue(string(o.Cause)) == nil {
		f.Cause, f.PreviousClean = string(o.Cause), o.Clean
		if workenv.CheckValue(o.Node) == nil {
			f.PreviousLeader = o.Node
		}
	}
	if slots := m.instance.slots.Record; slots.Count > 0 {
		f.Slot, f.Slots, f.Epoch = opt.Paths.Slot, strconv.Itoa(slots.Count), strconv.FormatInt(slots.Epoch, 10)
	}
	return f
}

// setPendingHooks sets the hooks that the guard runs if this daemon dies as the leader.
func (m *Member) setPendingHooks(term int64) {
	change := m.group.change(transition.Standby, term, "the daemon has died as the leader")
	m.worker.SetPendingHooks(term, hook.JSON(change))
}

// ErrNoWork is the error for a value of work that does not lead here.
var ErrNoWork = errors.New("this daemon does not lead in that term")

// valueBox passes the values that work publishes on to the loop; of those that it has not taken, the last one
// counts. The zero value accepts none.
type valueBox struct {
	mu    sync.Mutex
	term  int64                 // whose work may publish; 0 for none
	given transition.ValueGiven // zero if there is none
}

// acceptValues makes the box accept values of the term that is held, until its work is to stop.
func (m *Member) acceptValues() {
	p, term := &m.group.values, m.machine.Term()
	switch m.machine.Phase() {
	case transition.Stopping, transition.Releasing, transition.Ended:
		term = 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.term = term
}

func (p *valueBox) give(term int64, value string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term == 0 || term != 0 && term != p.term {
		return ErrNoWork
	}
	p.given = transition.ValueGiven{Term: p.term, Value: value}
	return nil
}

func (p *valueBox) take() (v transition.ValueGiven) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, p.given = p.given, transition.ValueGiven{}
	return v
}

// Fencing says how this host, as a candidate, fences the node of a holder that was lost.
type Fencing struct {
	transition.Fencing
	// FenceNode fences a node with programs that run runs. It returns what has fenced it. It blocks.
	FenceNode func(ctx context.Context, t fencer.Target, run fencer.Runner) (by string, err error)
}

// fenceNode fences a node in another goroutine. The loop ends that with the work.
func (m *Member) fenceNode(a transition.FenceNode) {
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
		by, err := m.opt.Fencing.FenceNode(ctx, target, m.worker.RunUnderLease)
		if err == nil && ctx.Err() != nil {
			err = errors.New("was cut short") // it may have succeeded, but for a term that is over
		}
		if err != nil {
			log.Error("fencing failed: it is not certain that the node is off", "err", err)
		} else {
			log.Warn("fenced: the node is off", "by", by)
		}
		m.group.opt.Counters.Update(func(t *status.Totals) { t.Fenced.Add(err) })
		m.report(transition.NodeFenced{Term: a.Term, Node: h.Node, Host: h.Host, By: by, Err: err})
	})
}

// stopFencing ends what fences a node, if something does.
func (m *Member) stopFencing() {
	if m.endFencing != nil {
		m.endFencing()
	}
}
