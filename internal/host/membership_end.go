package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/group"
	"zkelectd/internal/operator/status"
)

// left sends LEAVE for an instance that has ended with err. If that fails, the session ends, and it returns false.
func (m *membership) left(i *instance, err error) bool {
	s := m.session
	leaveErr := m.leave(s.ctx, i, err)
	if leaveErr == nil {
		return true
	}
	if s.ctx.Err() == nil {
		s.end(fmt.Errorf("group %s could not leave: %w", m.resource.name, leaveErr))
	}
	m.unleft = i // an ending session that waits for other groups sends LEAVE again: this instance elects no more (L1)
	return false
}

// recordLeaving records that an instance ends because the daemon is stopped, or because its group was removed.
func (m *membership) recordLeaving(i *instance) {
	how := cluster.LeftStopped
	switch s := m.session; {
	case i.Instance == nil || m.ctx.Err() == nil || s.host.opt.Guard.Err() != nil || !s.zk.Connected():
		return // it ends by itself, or ZooKeeper could not be told in time
	case s.host.quit.Err() != nil:
	case s.ctx.Err() == nil:
		how = cluster.LeftRemoved
	default:
		return // the session ends, and another one begins
	}
	m.resource.all()[0].core.Load().RecordLeaving(context.WithoutCancel(m.ctx), i.conns[0], i.Instance, how)
}

// abandon makes the session and the guard refuse everything that the instance still sends, and waits until its work is
// dead.
func (m *membership) abandon(i *instance, reason string) error {
	m.resource.log.Error("abandoning this instance: its work is killed, and a new instance registers", "reason", reason)
	i.closeLimits() // other groups need not wait until its work is dead
	i.promoted.Store(true)
	i.Abandon() // first, because the guard then runs post_stop
	for n, l := range i.leaderships {
		l.Abandon()
		i.conns[n].Abandon()
	}
	m.mu.Lock()
	m.abandoned = append(m.abandoned, time.Now())
	m.mu.Unlock()
	r := m.resource
	i.promoted.Store(!r.standby.abandon(m.session.host.opt.Guard.Context()))
	for _, l := range i.leaderships {
		select {
		case <-l.Dead():
		case <-m.session.host.opt.Guard.Context().Done(): // the daemon ends, and the work dies with it
		}
	}
	r.renew() // the stuck loop may still use the old state
	m.connect(i)
	return &abandonedError{reason}
}

// leave sends LEAVE for an instance whose work is dead, as far as that is proven: the guard may be lost (A3). It
// returns an error if that is not confirmed in time.
func (m *membership) leave(ctx context.Context, i *instance, reason error) error {
	m.resource.setMembership(status.MembershipLeaving, "")
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout*m.session.granted)
	defer cancel()
	var abandoned *abandonedError
	core := m.resource.all()[0].core.Load()
	return core.Leave(ctx, i.conns[0], group.Departure{
		Instance: i.Instance, Unproven: i.unproven, Reason: reason, Requested: !errors.As(reason, &abandoned),
	})
}

// leaveIfOverdue makes an instance leave whose end takes too long, because some of its work cannot be killed: it may be
// the oldest member, which must elect, and it no longer does (L1). What is not proven to be dead counts as revoked.
// Only when all of it is dead may the next instance register. Call stop when the instance has ended.
func (m *membership) leaveIfOverdue(i *instance) (stop func()) {
	return inBackground(context.Background(), func(ctx context.Context) {
		select {
		case <-i.Ending():
		case <-ctx.Done():
			return
		}
		if sleep(ctx, i.Budget().RevokeTimeout()) {
			m.leaveOverdue(ctx, i)
		}
	})
}

func (m *membership) leaveOverdue(ctx context.Context, i *instance) {
	r := m.resource
	for n, l := range i.leaderships {
		if i.unproven(n) {
			r.all()[n].log.Error("leadership has not ended in time: this host leaves the group, and takes no part in "+
				"it until the work is dead and leadership released",
				"reason", cmp.Or(l.Unkillable(), "a hook is still running, or the release waits for ZooKeeper"))
		}
	}
	conn := m.session.zk.Group(r.paths()) // an abandoned instance has none
	defer conn.Close()
	err := r.all()[0].core.Load().Leave(ctx, conn, group.Departure{Instance: i.Instance, Unproven: i.unproven,
		Reason: errOverdue})
	if err == nil {
		r.log.Info("left the group")
	}
}

// unproven reports whether it is not proven that the work of a leadership is dead and undone.
func (i *instance) unproven(n int) bool {
	select {
	case <-i.leaderships[n].Dead():
		return i.promoted.Load()
	default:
		return !i.Members()[n].Done()
	}
}
