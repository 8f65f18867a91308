package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/zk"
)

// With credentials and without zookeeper.acl, a new group is private.
func TestNewGroupIsPrivateByDefault(t *testing.T) {
	t.Parallel()
	f := newClosedFleet(t, zk.ACLPrivate)
	f.startLeader("a", "")
	if read, change, err := f.session.Exposure(t.Context(), f.paths.Root); read || change || err != nil {
		t.Errorf("others may read: %t, change: %t, %v", read, change, err)
	}
	f.succeedsWith("Configured  auto, digest:zkelectd/", "acl")
	f.checkInvariants()
}

// A tree that is open stays open to members without credentials, until somebody closes it. Then its members follow.
func TestOpenTreeIsNotRefusedByDefault(t *testing.T) {
	t.Parallel()
	f := newFleet(t) // its znodes are open
	f.startLeader("a", "")
	file := filepath.Join(f.dir, "auth")
	put(t, file, "zkelectd:right\n")
	f.env = []string{"ZKELECTD_ZOOKEEPER_AUTH_FILE=" + file}
	f.configure("b", "dc1", 1, "")
	f.start("b")
	f.until("b has joined", func(g status.Group) bool { return len(g.Members) == 2 && leads("a")(g) })
	f.logged("b", "once all members have the same credentials, run 'zkelectd acl --apply'")
	f.failsWith("no ACL was changed: a would be locked out", "acl", "--apply")
	f.stop("a")
	f.until("b leads", leads("b"))
	f.succeedsWith("znodes now have digest:zkelectd/", "acl", "--apply")
	if out, err := f.run("status", "-o", "json"); err != nil || strings.Contains(out, "open_tree") {
		t.Errorf("the command has not waited until b creates closed znodes: %v\n%s", err, out)
	}
	if out, err := f.run("acl"); err != nil || strings.Contains(out, "world:") {
		t.Errorf("%v: %s", err, out)
	}
	f.logged("b", "the group's znodes are closed to unauthorized clients")
	if canRead, _, err := f.session.Exposure(t.Context(), f.paths.Root); err == nil {
		t.Errorf("others may read: %t", canRead)
	}
}
