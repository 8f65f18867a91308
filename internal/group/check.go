package group

import (
	"context"
	"errors"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/zk"
)

// Check compares this configuration's policy and slots with those in force, and measures the latency of ZooKeeper with
// that. If the tree was open, it checks whether it still is. It returns how many znodes it has read. The host calls it
// for each new instance, and then for one after another: its cost is that of the host, not of its groups.
func (i *Instance) Check(ctx context.Context) (reads int) {
	m := i.members[0]
	g := m.group
	ctx, cancel := context.WithTimeout(ctx, m.budget.Session)
	defer cancel()
	path := g.opt.Paths.Policy()
	at := boottime.Now()
	data, stat, err := m.session.Get(ctx, path, false)
	took := boottime.Now() - at
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return 1 // the next check tries again
	}
	g.opt.Counters.Update(func(t *status.Totals) { t.Reads.Observe(took) })
	g.opt.Health.ObserveRead(at, took)
	inForce := cluster.ReadStored[cluster.Policy](path, data, stat, err == nil)
	audit := make(chan bool, 1)
	m.background.runInLoop(func() {
		g.checkDrift(inForce, m.snap.Slots)
		audit <- g.openTree.Load() && !g.opensTree() // otherwise the ACLs are checked when an instance registers
	})
	select {
	case open := <-audit:
		if open {
			m.auditAgain(ctx)
			return 2
		}
	case <-m.background.ctx.Done():
	case <-ctx.Done():
	}
	return 1
}

// audit warns if unauthorized clients can change the tree, or if its ACLs differ from the configuration.
func (g *Group) audit(ctx context.Context, s Session) {
	found, err := s.AuditACLs(ctx, g.opt.Paths)
	if err != nil {
		g.log.Warn("cannot compare the tree's ACLs with zookeeper.acl", "err", err)
		g.openTree.Store(true) // which the next check looks into
		return
	}
	if len(found.Mismatched) > 0 {
		g.log.Warn("the ACLs of some znodes differ from zookeeper.acl and zookeeper.auth.file",
			"zookeeper.acl", g.settings.Node.ACL, "znodes", found.Mismatched, "advice",
			"if zookeeper.acl and zookeeper.auth.file are right here and on all members, run 'zkelectd acl --apply'")
	}
	g.setOpenTree(found.Open)
}

// setOpenTree records whether unauthorized clients can change the group's persistent znodes, and reports whether that
// has changed. The tree also counts as open if this daemon creates open znodes: anyone could delete its current.
func (g *Group) setOpenTree(open bool) (changed bool) {
	open = open || g.opensTree()
	if g.openTree.Swap(open) == open {
		return false
	}
	if open {
		advice := "set zookeeper.auth.file and zookeeper.acl: private; docs/security.md has the steps for a running group"
		if !g.opensTree() {
			advice = "once all members have the same credentials, run 'zkelectd acl --apply'"
		}
		g.log.Warn("the group's znodes are open to unauthorized clients: anyone who can reach a ZooKeeper server can "+
			"stop the group, or lock it out with one setAcl",
			"root", g.opt.Paths.Root, "advice", advice)
	} else {
		g.log.Info("the group's znodes are closed to unauthorized clients", "root", g.opt.Paths.Root)
	}
	return true
}

// auditAgain checks again whether unauthorized clients can change the tree. While the root is open it reads no more,
// so that the turn of each of many groups comes soon: until then, this one creates open znodes.
func (m *Member) auditAgain(ctx context.Context) {
	paths := m.group.opt.Paths
	_, open, err := m.session.Exposure(ctx, paths.Root)
	if err == nil && !open {
		var found zk.ACLAudit
		found, err = m.session.AuditACLs(ctx, paths)
		open = found.Open
	}
	if err != nil {
		return // the next check tries again while the tree is open
	}
	m.background.runInLoop(func() {
		if m.group.setOpenTree(open) {
			m.publishNode()
		}
	})
}

// opensTree reports whether this daemon creates open znodes.
func (g *Group) opensTree() bool { return zk.ACL(g.settings.Node.ACL).Open() }
