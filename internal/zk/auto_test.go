package zk

import (
	"path/filepath"
	"testing"

	"zkelectd/internal/cluster"
)

func TestAutoACL(t *testing.T) {
	access := Access{Auth: credentialsFile(t, "zkelectd:right"), ACL: ACLAuto}
	member, stranger := open(t, Options{Access: access}), open(t, Options{})
	follow := func(p cluster.Paths) {
		t.Helper()
		if err := member.FollowRoot(t.Context(), p.Root, false); err != nil {
			t.Fatal(err)
		}
	}

	// A new group is private, and an open one stays open.
	fresh := cluster.Paths{Root: "/auto-fresh"}
	follow(fresh)
	ensureTree(t, member, fresh)
	createAllZnodes(t, member, fresh)
	if canRead(t, stranger, fresh.Leader()) {
		t.Error("a new group is open")
	}
	p := root(t, stranger)
	follow(p)
	for _, path := range createAllZnodes(t, member, p) {
		if !canRead(t, stranger, path) {
			t.Errorf("%s is closed", path)
		}
	}
	for root, open := range map[cluster.Paths]bool{fresh: false, p: true} {
		if err := member.CheckOwner(t.Context(), root.Root); err != nil {
			t.Error(err)
		}
		if audit, err := member.AuditACLs(t.Context(), root); err != nil || audit.Open != open || len(audit.Mismatched) > 0 {
			t.Errorf("%s: %+v, %v", root.Root, audit, err)
		}
	}

	// One that was open before all data were lost is created open again.
	again := cluster.Paths{Root: "/auto-again"}
	if err := member.FollowRoot(t.Context(), again.Root, true); err != nil {
		t.Fatal(err)
	}
	if ensureTree(t, member, again); !canRead(t, stranger, again.Leader()) {
		t.Error("a group that was open is created closed")
	}

	// Once somebody has closed it, members follow.
	if err := open(t, Options{Access: access}).ApplyACLs(t.Context(), p, "test", func(ZnodeACL) {}); err != nil {
		t.Fatal(err)
	}
	if audit, err := member.AuditACLs(t.Context(), p); err != nil || audit.Open || len(audit.Mismatched) > 0 {
		t.Errorf("%+v, %v", audit, err)
	}
	if _, err := member.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: p.Heir(), Data: []byte("{}")}); err != nil || canRead(t, stranger, p.Heir()) {
		t.Errorf("still created open: %v", err)
	}
}

// The default refuses no session that an open tree takes.
func TestAutoACLWithoutAnIdentity(t *testing.T) {
	empty := AuthFile{Path: filepath.Join(t.TempDir(), "empty"), Systemd: true}
	move(t, credentialsFile(t, "").Path, empty.Path)
	if got := open(t, Options{Access: Access{Auth: empty, ACL: ACLAuto}}).ConfiguredACL(); got != "world:anyone:cdrwa" {
		t.Errorf("creates znodes with %s", got)
	}
}

// A reload that adds credentials leaves an open tree open, too.
func TestAutoACLAfterAReload(t *testing.T) {
	member, stranger := open(t, Options{}), open(t, Options{})
	p := root(t, stranger)
	if err := member.FollowRoot(t.Context(), p.Root, false); err != nil {
		t.Fatal(err)
	}
	change, err := member.PresentCredentials(t.Context(), p, Access{Auth: credentialsFile(t, "zkelectd:right"), ACL: ACLAuto})
	if err != nil {
		t.Fatal(err)
	}
	change.Apply()
	if _, err := member.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: p.Heir(), Data: []byte("{}")}); err != nil || !canRead(t, stranger, p.Heir()) {
		t.Errorf("created closed: %v", err)
	}
}
