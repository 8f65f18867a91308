package daemon

import (
	"context"

	"zkelectd/internal/cluster/zkstore"
)

// audit warns when strangers may change the tree, and when its ACLs are not what the configuration says.
func (d *Daemon) audit(ctx context.Context, s *zkstore.Session) {
	found, err := s.AuditACLs(ctx, d.paths)
	if err != nil {
		d.log.Warn("cannot compare the tree's ACLs with zookeeper.acl", "err", err)
	}
	if len(found.Mismatched) > 0 {
		d.log.Warn("znodes have other ACLs than zookeeper.acl and zookeeper.auth.file say",
			"zookeeper.acl", d.config().ZooKeeper.ACL, "znodes", found.Mismatched, "advice", found.Advice)
	}
	d.sawTree(found.Open)
}

// sawTree notes whether everybody may change the group's lasting znodes, and reports whether what is shown of the tree has changed.
// A daemon that creates open znodes opens the tree as well: its current could be deleted by anybody.
func (d *Daemon) sawTree(open bool) (changed bool) {
	open = open || zkstore.ACL(d.config().ZooKeeper.ACL).Open()
	if d.openTree.Swap(open) == open {
		return false
	}
	if open {
		d.log.Warn("the group's znodes are open to strangers: anyone who can reach a ZooKeeper server can stop the group, or lock it out with one setAcl",
			"root", d.paths.Root, "advice", "set zookeeper.auth.file and zookeeper.acl: private; docs/security.md has the steps for a running group")
	} else {
		d.log.Info("the group's znodes are closed to strangers", "root", d.paths.Root)
	}
	return true
}

// lookAtTree looks again whether the tree is open.
func (l *loop) lookAtTree(ctx context.Context) {
	found, err := l.s.AuditACLs(ctx, l.d.paths)
	if err != nil {
		return // the next survey of an open tree tries again
	}
	l.later(func() {
		if l.d.sawTree(found.Open) {
			l.node.publish()
		}
	})
}
