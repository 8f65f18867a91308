package group

import (
	"context"
	"errors"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/zk"
)

// unaudited is a session that cannot read ACLs.
type unaudited struct{ memorySession }

func (unaudited) AuditACLs(context.Context, cluster.Paths) (zk.ACLAudit, error) {
	return zk.ACLAudit{}, errors.New("the connection was lost")
}

// A tree of which nothing could be read does not count as closed: a closed one is not looked at again.
func TestAnUnreadTreeIsNotClosed(t *testing.T) {
	g := newGroup("n1", cluster.Paths{Root: "/g"})
	g.settings.Node.ACL = string(zk.ACLPrivate)
	if g.audit(t.Context(), unaudited{}); !g.openTree.Load() {
		t.Error("it counts as closed")
	}
	if g.audit(t.Context(), memorySession{}); g.openTree.Load() {
		t.Error("it does not count as what was read")
	}
}
