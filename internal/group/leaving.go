package group

import (
	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
)

// announcement is the announcement of an instance that it is about to end, for all of its members (docs/protocol.md, Stopping).
type announcement struct {
	reason string
	over   chan struct{} // closed when the outcome is known
	err    error
}

// publishLeaving announces the end of the instance, unless another member has done so, and reports the outcome to the machine.
func (m *Member) publishLeaving(reason string) {
	a, first := m.instance.announce(reason)
	if first {
		m.background.spawn(func() { m.instance.publishAnnouncement(a) })
	}
	m.background.spawn(func() {
		select {
		case <-a.over:
			m.report(transition.LeavingPublished{Err: a.err})
		case <-m.background.ctx.Done():
		}
	})
}

// announce returns the announcement of the instance, and whether this call has begun it.
func (i *Instance) announce(reason string) (a *announcement, first bool) {
	a = &announcement{reason: reason, over: make(chan struct{})}
	if i.leaving.CompareAndSwap(nil, a) {
		return a, true
	}
	return i.leaving.Load(), false
}

// publishAnnouncement makes the first member, which keeps the record of the node, write it.
func (i *Instance) publishAnnouncement(a *announcement) {
	end := func(err error) {
		a.err = err
		close(a.over)
	}
	first := i.members[0]
	if !first.background.runInLoop(func() { first.node.publishNow(end) }) {
		end(cluster.ErrNotSent)
	}
}
