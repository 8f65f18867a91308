package group

import (
	"strconv"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/transition"
	"zkelectd/internal/workenv"
	"zkelectd/internal/worker"
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
	if o := m.machine.Origin(); (m.machine.Term() == term || m.machine.MayStart() == term) && workenv.CheckValue(string(o.Cause)) == nil {
		f.Cause, f.PreviousClean = string(o.Cause), o.Clean
		if workenv.CheckValue(o.Node) == nil {
			f.PreviousLeader = o.Node
		}
	}
	if t := m.table(); t != nil {
		f.Slot, f.Slots, f.Epoch = opt.Paths.Slot, strconv.Itoa(t.slots.Count), strconv.FormatInt(t.slots.Epoch, 10)
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

// start is a start of the work: its term, and what preceded it. On the heir they are not known yet.
type start struct {
	term   int64
	origin transition.Origin
	heir   bool
}

// heirCalm is how long a member must have been the heir before it prepares: what it does then must not delay a takeover.
const heirCalm = 200 * time.Millisecond

// prepareStart prepares the start of the work of a term that may follow: on the heir, and while this member waits until its
// predecessor has released. It discards what was prepared for another. Only StartChild starts it, and the guard only under a lease.
func (m *Member) prepareStart() {
	next := start{term: m.machine.MayStart()}
	switch heir := m.isHeir(); {
	case next.term != 0:
		next.origin, m.heirSince = m.machine.Origin(), 0
	case !heir:
		m.heirSince = 0
	case m.heirSince == 0:
		m.heirSince = boottime.Now()
	default:
		next.heir = boottime.Now() >= m.heirSince+heirCalm
	}
	switch {
	case next == m.prepared:
		return
	case next.heir:
		m.worker.PrepareHeir(m.snap.Elected.Record.Term + 1)
	case next.term == 0:
		m.worker.Discard()
	default:
		m.worker.Prepare(next.term)
	}
	m.prepared = next
}

// prepareAt returns when the heir prepares; 0 if it does not, or has done so.
func (m *Member) prepareAt() time.Duration {
	if m.heirSince == 0 || m.prepared != (start{}) {
		return 0
	}
	return m.heirSince + heirCalm
}

func (m *Member) isHeir() bool {
	return m.closing == "" && m.machine.Phase() == transition.Standby && m.snap.SelfIsHeir()
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
