package host

import (
	"cmp"
	"context"
	"slices"
	"time"

	"zkelectd/internal/group"
	"zkelectd/internal/operator/status"
)

// checkPace is how long the host waits for each znode that a check reads: idle groups cost it half a read a second, however many
// there are. A host with few groups checks each of them every [status.CheckInterval].
const checkPace = 2 * time.Second

// checkInTurn checks one group after another until ctx ends, see [group.Instance.Check].
func (s *session) checkInTurn(ctx context.Context) {
	t := time.NewTimer(status.CheckInterval)
	defer t.Stop()
	last := "" // the resource that was checked last
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		all, reads := s.all(), 0
		if m := nextAfter(last, all); m != nil {
			last, reads = m.resource.name, m.checkTree(ctx)
		}
		t.Reset(max(time.Duration(reads)*checkPace, status.CheckInterval/time.Duration(max(1, len(all)))))
	}
}

// nextAfter returns the group with a running instance whose turn it is after another one; nil if none runs.
func nextAfter(last string, all []*membership) *membership {
	all = slices.DeleteFunc(slices.Clone(all), func(m *membership) bool { return m.instance() == nil })
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *membership) int { return cmp.Compare(a.resource.name, b.resource.name) })
	return all[max(0, slices.IndexFunc(all, func(m *membership) bool { return m.resource.name > last }))]
}

// checkTree checks the running instance, if there is one, and returns how many znodes it has read.
func (m *membership) checkTree(ctx context.Context) int {
	i := m.instance()
	if i == nil {
		return 0
	}
	return i.Check(ctx) + m.checkIdentity(ctx)
}

// checkIdentity restores the records of the group's name and root if they are damaged: without them no member could start.
func (m *membership) checkIdentity(ctx context.Context) (reads int) {
	ctx, cancel := context.WithTimeout(ctx, m.session.zk.Timeout())
	defer cancel()
	conn := m.session.zk.Group(m.resource.paths())
	defer conn.Close()
	restored, err := group.Restore(ctx, m.resource.preparation(m.session.zk, conn))
	switch log := m.resource.all()[0].log; {
	case len(restored) > 0:
		log.Warn("the record of the group was damaged, and is restored", "znodes", restored)
	case err != nil && !group.IsTransient(err):
		log.Error("the record of the group cannot be restored: members that are stopped cannot start again", "err", err)
	}
	return 1
}
