package group

import (
	"strconv"

	"zkelectd/internal/transition"
	"zkelectd/internal/work/workenv"
	"zkelectd/internal/work/worker"
)

func (m *Member) newWorker() *worker.Worker {
	opt, spec := m.group.opt, m.opt.Work
	spec.StopTimeout = m.budget.Stop
	return worker.New(worker.Options{
		Guard: m.guard, Log: opt.Log, Spec: spec, Fencing: m.fencing, HookTimeout: m.budget.Kill,
		Report: func(ev worker.Event) { m.report(workEvent(ev)) },
	})
}

// fencing returns the identity and the fencing token of the work.
func (m *Member) fencing(term int64) workenv.Fencing {
	opt, node := m.group.opt, m.group.settings.Node
	f := workenv.Fencing{Node: node.ID, Site: node.Site, Group: opt.Resource, Term: strconv.FormatInt(term, 10), Root: opt.Paths.Root}
	// Another host chose these texts: what a unit cannot have as a variable must not keep it from starting.
	if o := m.machine.Origin(); m.machine.Term() == term && workenv.CheckValue(string(o.Cause)) == nil {
		f.Cause, f.PreviousClean = string(o.Cause), o.Clean
		if workenv.CheckValue(o.Node) == nil {
			f.PreviousLeader = o.Node
		}
	}
	if t := m.table(); t != nil {
		f.Slot, f.Slots, f.Epoch = opt.Paths.Slot, strconv.Itoa(t.slots.Record.Count), strconv.FormatInt(t.slots.Record.Epoch, 10)
	}
	return f
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
