package group

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
	"zkelectd/internal/transition"
	"zkelectd/internal/zk"
)

// announcement is the announcement of an instance that it is about to end, for all of its members (docs/protocol.md,
// Stopping).
type announcement struct {
	reason string
	over   chan struct{} // closed when the outcome is known
	err    error
}

// publishLeaving announces the end of the instance, and reports the outcome to the machine. If this member is the
// elector, it elects its successor at once.
func (m *Member) publishLeaving(reason string) {
	a := m.announceEnd(reason)
	m.complete()
	m.background.spawn(func() {
		select {
		case <-a.over:
			m.background.runInLoop(func() {
				m.pendingEvents = append(m.pendingEvents, transition.LeavingPublished{Err: a.err})
			})
		case <-m.background.ctx.Done():
		}
	})
}

// withOwnEnd returns the members with the announcement of this node, which may not have been written or read yet.
func (m *Member) withOwnEnd(members []cluster.Member) []cluster.Member {
	a := m.instance.leaving.Load()
	at := slices.IndexFunc(members, func(o cluster.Member) bool { return o.Name == m.self.Name })
	if a == nil || at < 0 {
		return members
	}
	members = slices.Clone(members)
	members[at].Node.Record.Leaving = a.reason
	return members
}

// electedOther stops the work of a leader that has elected another member, before it has read that.
func (m *Member) electedOther(rec cluster.Elected) {
	if rec.Incarnation != m.self.Name {
		m.noteElected(rec)
		m.pendingEvents = append(m.pendingEvents, transition.Replaced{Term: rec.Term, Node: rec.Node, Reason: rec.Reason})
	}
}

// noteElected records whether another member was elected. What is older than that decision, as a snapshot read before
// it, changes nothing.
func (m *Member) noteElected(rec cluster.Elected) {
	if rec.Term >= m.electedTerm {
		m.electedTerm = rec.Term
		m.handedOver.Store(rec.Incarnation != m.self.Name)
	}
}

// rereadAsElector reads again after a write of the elector, unless this member ends because that has elected its
// successor.
func (m *Member) rereadAsElector() {
	if m.instance.room != nil || m.instance.leaving.Load() == nil || !m.handedOver.Load() {
		m.reader.Reread()
	}
}

// successorTime is how long a member that has handed leadership over waits before its registration ends.
const successorTime = 50 * time.Millisecond

// awaitSuccessors leaves the servers to the members that take over now: the end of this registration makes others read
// the group.
func (i *Instance) awaitSuccessors() {
	m := i.members[0]
	handedOver := slices.ContainsFunc(i.members, func(m *Member) bool { return m.handedOver.Load() })
	if !handedOver || i.leaving.Load() == nil || m.session.Err() != nil {
		return
	}
	t := time.NewTimer(successorTime)
	defer t.Stop()
	select {
	case <-t.C:
	case <-m.session.Done():
	}
}

// announceEnd announces the end of the instance, unless another member has done so. Only electors need the
// announcement: a member that is the elector itself writes it only if it does not end soon.
func (m *Member) announceEnd(reason string) *announcement {
	i := m.instance
	a := &announcement{reason: reason, over: make(chan struct{})}
	if !i.leaving.CompareAndSwap(nil, a) {
		return i.leaving.Load()
	}
	var delay time.Duration
	if i.room == nil && m.snap.Elector {
		delay = announceDelay
	}
	first := i.members[0] // which keeps the record of the node
	m.background.spawn(func() {
		if !m.background.pause(delay) || !first.background.runInLoop(func() { first.node.publishNow(a.end) }) {
			a.end(cluster.ErrNotSent)
		}
	})
	return a
}

// announceDelay is how long a leaver that is the elector delays its announcement: the servers elect its successor
// first.
const announceDelay = 20 * time.Millisecond

func (a *announcement) end(err error) {
	a.err = err
	close(a.over)
}

// leavingTimeout bounds how long a member that leaves takes to say so.
const leavingTimeout = time.Second

// RecordLeaving writes into the roster that the instance is about to leave on purpose. Its work is dead, and its
// leaderships are released. A failure only means that the group shows this node as lost.
func (g *Group) RecordLeaving(ctx context.Context, conn cluster.ReadWriter, instance *Instance, how cluster.LeftHow) {
	ctx, cancel := context.WithTimeout(ctx, leavingTimeout)
	defer cancel()
	left := cluster.Left{How: how, Time: time.Now(), Incarnation: instance.Incarnation()}
	if err := store.RecordLeaving(ctx, conn, g.opt.Paths, g.settings.Node.ID, g.settings.Node.Site, left); err != nil {
		g.log.Info("could not record that this node leaves on purpose: the group shows it as lost", "err", err)
	}
}

// PanicError is the panic of a member's event loop, or of a goroutine of it.
type PanicError struct {
	Value any
	Stack []byte
}

func newPanicError(value any) *PanicError { return &PanicError{value, debug.Stack()} }

func (e *PanicError) Error() string { return fmt.Sprintf("its event loop has panicked: %v", e.Value) }

// panicked ends the loop after a panic in a goroutine of the member.
func (m *Member) panicked(value any) {
	p := newPanicError(value)
	m.inbox.post(func() { m.failure = p })
}

// Done reports whether the member has ended in order: its work is dead and undone. It is safe for concurrent use.
func (m *Member) Done() bool { return m.owed.Load() != nil }

// Owed returns the lease wait that a successor owes to what the member has not released. The member must be done, or
// have been abandoned: then the guard has run its post_stop hook, but how that ended is not known, nor who still has
// an application lease.
func (m *Member) Owed() time.Duration {
	switch owed := m.owed.Load(); {
	case owed != nil:
		return *owed
	case m.uncleaned.Load() != 0 && len(m.opt.Work.Hooks.PostStop) > 0, m.lent.Load():
		return m.budget.LeaseWait
	}
	return 0
}

// Departure is how an instance leaves its group.
type Departure struct {
	// Instance is nil if it has not learned that it was registered.
	Instance *Instance
	// Unproven reports for which leaderships it is not proven that the work is dead and undone; nil for none.
	Unproven func(n int) bool
	Reason   error
	// Requested reports that the instance did not fail.
	Requested bool
}

// Leave sends LEAVE for an instance that acquires nothing any more, and waits until it is confirmed that nothing of
// it is registered.
func (g *Group) Leave(ctx context.Context, conn *zk.Group, d Departure) error {
	p, o := cluster.Paths{Root: g.opt.Paths.Root}, cluster.Departure{Reason: d.Reason.Error(), Requested: d.Requested}
	if d.Instance == nil {
		o.ID = g.settings.Node.ID
		o.Slots = []cluster.DepartingSlot{{SlotState: cluster.SlotState{Slot: g.opt.Paths.Slot}}}
		return store.Leave(ctx, conn, p, o)
	}
	o.ID, o.Self = d.Instance.self.ID, d.Instance.Incarnation() // the settings belong to the loop, which may still run
	for n, m := range d.Instance.members {
		l := cluster.DepartingSlot{SlotState: cluster.SlotState{Slot: m.group.opt.Paths.Slot},
			Unproven: d.Unproven != nil && d.Unproven(n)}
		if !l.Unproven {
			l.Owed = m.Owed()
		}
		o.Slots = append(o.Slots, l)
	}
	return store.Leave(ctx, conn, p, o)
}
