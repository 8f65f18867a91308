package group

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
	"zkelectd/internal/zk"
)

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

func (m *Member) isAbandoned() bool { return m.background.ctx.Err() != nil }

// Done reports whether the member has ended in order: its work is dead and undone. It is safe for concurrent use.
func (m *Member) Done() bool { return m.owed.Load() != nil }

// Owed returns the lease wait that a successor owes to what the member has not released. The member must be done, or have been
// abandoned: then the guard has run its post_stop hook, but how that ended is not known, nor who still has an
// application lease.
func (m *Member) Owed() time.Duration {
	switch owed := m.owed.Load(); {
	case owed != nil:
		return *owed
	case m.uncleaned.Load() != 0 && len(m.opt.Work.Hooks.PostStop) > 0, m.lent.Load():
		return m.budget.LeaseWait
	}
	return 0
}

// done reports whether all members are done.
func (i *Instance) done() bool {
	for _, m := range i.members {
		if !m.Done() {
			return false
		}
	}
	return true
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

// Leave sends LEAVE for an instance that acquires nothing any more, and waits until it is confirmed that nothing of it is registered.
func (g *Group) Leave(ctx context.Context, conn *zk.Group, d Departure) error {
	p, o := cluster.Paths{Root: g.opt.Paths.Root}, cluster.Departure{Reason: d.Reason.Error(), Requested: d.Requested}
	if d.Instance == nil {
		o.ID = g.settings.Node.ID
		o.Leaderships = []cluster.Leadership{{SlotState: cluster.SlotState{Slot: g.opt.Paths.Slot}}}
		return store.Leave(ctx, conn, p, o)
	}
	o.ID, o.Self = d.Instance.self.ID, d.Instance.Incarnation() // the settings belong to the loop, which may still run
	for n, m := range d.Instance.members {
		l := cluster.Leadership{SlotState: cluster.SlotState{Slot: m.group.opt.Paths.Slot}, Unproven: d.Unproven != nil && d.Unproven(n)}
		if !l.Unproven {
			l.Owed = m.Owed()
		}
		o.Leaderships = append(o.Leaderships, l)
	}
	return store.Leave(ctx, conn, p, o)
}
