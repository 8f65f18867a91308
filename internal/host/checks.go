package host

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"zkelectd/internal/group"
	"zkelectd/internal/operator/status"
)

// checkPace is how long the host waits for each znode that a check reads: idle groups cost it half a read a second, however many
// there are. A host with few groups checks each of them every [status.CheckInterval].
const checkPace = 2 * time.Second

// checks has the groups checked in turn, see [group.Instance.Check]. A new instance is checked at once.
type checks struct {
	wake chan struct{}

	mu    sync.Mutex
	first []*membership // to check before the others
	last  string        // the resource that was checked last in turn
}

func newChecks() *checks { return &checks{wake: make(chan struct{}, 1)} }

// soon has a group checked before the others.
func (c *checks) soon(m *membership) {
	c.mu.Lock()
	c.first = append(c.first, m)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run checks one group after another until ctx ends.
func (c *checks) run(ctx context.Context, s *session) {
	t := time.NewTimer(status.CheckInterval)
	defer t.Stop()
	for {
		select {
		case <-c.wake:
			for m := c.urgent(); m != nil && ctx.Err() == nil; m = c.urgent() {
				m.checkTree(ctx)
			}
		case <-t.C:
			all := s.all()
			reads := c.next(all).checkTree(ctx)
			t.Reset(max(time.Duration(reads)*checkPace, status.CheckInterval/time.Duration(max(1, len(all)))))
		case <-ctx.Done():
			return
		}
	}
}

// urgent returns the next group that is to be checked before the others; nil if there is none.
func (c *checks) urgent() *membership {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.first) == 0 {
		return nil
	}
	m := c.first[0]
	c.first = c.first[1:]
	return m
}

// next returns the group whose turn it is; nil if none runs.
func (c *checks) next(all []*membership) *membership {
	all = slices.DeleteFunc(all, func(m *membership) bool { return m.instance() == nil })
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *membership) int { return cmp.Compare(a.resource.name, b.resource.name) })
	i := max(0, slices.IndexFunc(all, func(m *membership) bool { return m.resource.name > c.last }))
	c.last = all[i].resource.name
	return all[i]
}

// checkTree checks the running instance, if there is one, and returns how many znodes it has read.
func (m *membership) checkTree(ctx context.Context) int {
	if m == nil {
		return 0
	}
	i := m.instance()
	if i == nil {
		return 0
	}
	reads := i.Check(ctx)
	m.resource.recordOpen(m.session.zk.RootOpen(m.resource.root))
	return reads + m.checkIdentity(ctx)
}

// checkIdentity restores the records of the group's name and root if they are damaged: without them no member could start.
func (m *membership) checkIdentity(ctx context.Context) (reads int) {
	ctx, cancel := context.WithTimeout(ctx, m.session.zk.Timeout())
	defer cancel()
	conn := m.session.zk.Group(m.resource.paths())
	defer conn.Close()
	restored, err := group.Restore(ctx, m.resource.preparation(m.session.zk, conn, m.resource.lastJoined().ID))
	switch log := m.resource.all()[0].log; {
	case len(restored) > 0:
		log.Warn("the record of the group was damaged, and is restored", "znodes", restored)
	case err != nil && !group.IsTransient(err):
		log.Error("the record of the group cannot be restored: members that are stopped cannot start again", "err", err)
	}
	return 1
}
