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
		Report: m.report, Publish: m.publishValue, Standby: m.opt.Standby,
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
	if slots := m.instance.slots.Record; slots.Count > 0 {
		f.Slot, f.Slots, f.Epoch = opt.Paths.Slot, strconv.Itoa(slots.Count), strconv.FormatInt(slots.Epoch, 10)
	}
	return f
}

// setPendingHooks sets the hooks that the guard runs if this daemon dies as the leader.
func (m *Member) setPendingHooks(term int64) {
	change := m.group.change(transition.Standby, term, "the daemon has died as the leader")
	m.worker.SetPendingHooks(term, encodeChange(change))
}
