package group

import (
	"context"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
	"zkelectd/internal/transition"
)

// announcement is the announcement of an instance that it is about to end, for all of its members (docs/protocol.md, Stopping).
type announcement struct {
	reason string
	over   chan struct{} // closed when the outcome is known
	err    error
}

// publishLeaving announces the end of the instance, and reports the outcome to the machine. If this member is the elector, it elects
// its successor at once.
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

// noteElected records whether another member was elected. What is older than that decision, as a snapshot read before it, changes nothing.
func (m *Member) noteElected(rec cluster.Elected) {
	if rec.Term >= m.electedTerm {
		m.electedTerm = rec.Term
		m.handedOver.Store(rec.Incarnation != m.self.Name)
	}
}

// rereadAsElector reads again after a write of the elector, unless this member ends because that has elected its successor.
func (m *Member) rereadAsElector() {
	if m.instance.room != nil || m.instance.leaving.Load() == nil || !m.handedOver.Load() {
		m.reader.Reread()
	}
}

// successorTime is how long a member that has handed leadership over waits before its registration ends.
const successorTime = 50 * time.Millisecond

// awaitSuccessors leaves the servers to the members that take over now: the end of this registration makes others read the group.
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

// announceEnd announces the end of the instance, unless another member has done so. Only electors need the announcement: a member that is
// the elector itself writes it only if it does not end soon.
func (m *Member) announceEnd(reason string) *announcement {
	a, first := m.instance.announce(reason)
	var delay time.Duration
	if m.instance.room == nil && m.snap.Elector {
		delay = announceDelay
	}
	if first {
		m.background.spawn(func() {
			if m.background.pause(delay) {
				m.instance.publishAnnouncement(a)
			} else {
				a.end(cluster.ErrNotSent)
			}
		})
	}
	return a
}

// announceDelay is how long a leaver that is the elector delays its announcement: the servers elect its successor first.
const announceDelay = 20 * time.Millisecond

func (a *announcement) end(err error) {
	a.err = err
	close(a.over)
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
	first := i.members[0]
	if !first.background.runInLoop(func() { first.node.publishNow(a.end) }) {
		a.end(cluster.ErrNotSent)
	}
}

// leavingTimeout bounds how long a member that leaves takes to say so.
const leavingTimeout = time.Second

// RecordLeaving writes into the roster that the instance is about to leave on purpose. Its work is dead, and its leaderships are
// released. A failure only means that the group shows this node as lost.
func (g *Group) RecordLeaving(ctx context.Context, conn cluster.ReadWriter, instance *Instance, how cluster.LeftHow) {
	ctx, cancel := context.WithTimeout(ctx, leavingTimeout)
	defer cancel()
	left := cluster.Left{How: how, Time: time.Now(), Incarnation: instance.Incarnation()}
	if err := store.RecordLeaving(ctx, conn, g.opt.Paths, g.settings.Node.ID, g.settings.Node.Site, left); err != nil {
		g.log.Info("could not record that this node leaves on purpose: the group shows it as lost", "err", err)
	}
}
