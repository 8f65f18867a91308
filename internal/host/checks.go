package host

import (
	"cmp"
	"context"
	"slices"
	"time"

	"zkelectd/internal/group"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
)

// checkPace is how long the host waits for each znode that a check reads: idle groups cost it half a read a second,
// however many there are. A host with few groups checks each of them every [status.CheckInterval].
const checkPace = 2 * time.Second

// checkGroups checks one group after another until ctx ends, see [group.Instance.Check].
func (s *session) checkGroups(ctx context.Context) {
	last := ""
	for pause := status.CheckInterval; sleep(ctx, pause); {
		all := s.all()
		pause = status.CheckInterval / time.Duration(max(1, len(all)))
		if m := nextToCheck(all, last); m != nil {
			last = m.resource.name
			pause = max(pause, time.Duration(m.checkTree(ctx))*checkPace)
		}
	}
}

// nextToCheck returns the group whose turn it is after another one; nil if none runs.
func nextToCheck(all []*membership, last string) *membership {
	all = slices.DeleteFunc(all, func(m *membership) bool { return m.instance() == nil })
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
	reads := i.Check(ctx)
	m.resource.recordOpen(m.session.zk.RootOpen(m.resource.root))
	return reads + m.checkIdentity(ctx)
}

// checkIdentity restores the records of the group's name and root if they are damaged: without them no member could
// start.
func (m *membership) checkIdentity(ctx context.Context) (reads int) {
	ctx, cancel := context.WithTimeout(ctx, m.session.zk.Timeout())
	defer cancel()
	conn := m.session.zk.Group(m.resource.paths())
	defer conn.Close()
	own, base := m.resource.identity(m.resource.lastJoined().ID)
	restored, err := store.RestoreIdentity(ctx, conn, base, m.resource.name, own)
	switch log := m.resource.all()[0].log; {
	case len(restored) > 0:
		log.Warn("the record of the group was damaged, and is restored", "znodes", restored)
	case err != nil && !group.IsTransient(err):
		log.Error("the record of the group cannot be restored: members that are stopped cannot start again", "err", err)
	}
	return 1
}
