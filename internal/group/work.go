package group

import (
	"path"
	"strconv"

	"zkelectd/internal/transition"
	"zkelectd/internal/workenv"
	"zkelectd/internal/worker"
)

func (m *Member) newWorker() *worker.Worker {
	opt, spec := m.group.opt, m.group.opt.Work
	spec.StopTimeout = m.budget.Stop
	return worker.New(worker.Options{
		Guard: opt.Guard, Log: opt.Log, Spec: spec, Fencing: m.group.fencing, HookTimeout: m.budget.Kill,
		Report: func(ev worker.Event) { m.report(workEvent(ev)) },
	})
}

// fencing returns the identity and the fencing token of the work.
func (g *Group) fencing(term int64) workenv.Fencing {
	node, root := g.settings.Node, g.opt.Paths.Root
	return workenv.Fencing{Node: node.ID, Site: node.Site, Group: path.Base(root), Term: strconv.FormatInt(term, 10), Root: root}
}

// workEvent converts a worker event to a machine event.
func workEvent(ev worker.Event) transition.Event {
	switch ev := ev.(type) {
	case worker.HookDone:
		return transition.HookDone{Err: ev.Err}
	case worker.Started:
		return transition.ChildStarted{}
	case worker.Ready:
		return transition.ChildReady{}
	case worker.Failed:
		return transition.ChildFailed{Err: ev.Err}
	case worker.Dead:
		return transition.ChildDead{Status: ev.Status}
	}
	panic("group: an unknown event of the worker")
}

// handle queues events for the machine; step handles them before any other event.
func (m *Member) handle(events []worker.Event) {
	for _, ev := range events {
		m.pendingEvents = append(m.pendingEvents, workEvent(ev))
	}
}

// setPendingHooks sets the hooks that the guard runs if this daemon dies as the leader.
func (m *Member) setPendingHooks(term int64) {
	change := m.group.change(transition.Standby, term, "the daemon has died as the leader")
	m.worker.SetPendingHooks(term, encodeChange(change))
}
