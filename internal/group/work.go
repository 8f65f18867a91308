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

// fencing returns the identity and fencing token that the work gets.
func (g *Group) fencing(term int64) workenv.Fencing {
	node, root := g.settings.Node, g.opt.Paths.Root
	return workenv.Fencing{Node: node.ID, Site: node.Site, Group: path.Base(root), Term: strconv.FormatInt(term, 10), Root: root}
}

// workEvent returns an event of the worker as one of the machine.
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

// handle queues what has happened at once for the machine, before anything else.
func (m *Member) handle(events []worker.Event) {
	for _, ev := range events {
		m.inline = append(m.inline, workEvent(ev))
	}
}

// setPendingHooks has the guard run what undoes leadership if this daemon dies.
func (m *Member) setPendingHooks(term int64) {
	change := m.group.change(transition.Standby, term, "the daemon has died as the leader")
	m.worker.SetPendingHooks(term, encodeChange(change))
}
