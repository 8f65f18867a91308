package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/zk"
)

// The error for a parent that belongs to somebody else names it, its ACL and its groups, as far as this user may read them. CheckRoot has
// the same error, and creates nothing.
func TestParentOfSomebodyElse(t *testing.T) {
	user := func(name string, acl zk.ACL) *zk.Session {
		return open(t, zk.Options{Access: zk.Access{Auth: credentialsFile(t, name+":secret-of-"+name), ACL: acl}})
	}
	for acl, words := range map[zk.ACL][]string{
		zk.ACLPrivate:  {"its ACL, which this user must not read, does not permit it"},
		zk.ACLReadable: {"its ACL is digest:a", "world:anyone:r"},
	} {
		parent := fmt.Sprintf("/test%d", roots.Add(1))
		a, b := user("a", acl), user("b", acl)
		ensures(t, a, parent, "one", parent+"/one")
		if acl == zk.ACLReadable {
			words = append(words, "znode "+parent+", which is also above "+parent+"/one, belongs to somebody else")
		}
		for name, znode := range map[string]string{"two": "/two", "three": "/below/three"} {
			first := parent + map[string]string{"two": "/two", "three": "/below"}[name]
			for what, err := range map[string]error{
				"EnsureIdentity": EnsureIdentity(t.Context(), b, filepath.Dir(parent+znode), name, cluster.Identity{Root: parent + znode, Kind: cluster.KindSingle}),
				"CheckRoot":      CheckRoot(t.Context(), b, filepath.Dir(parent+znode), name, parent+znode),
			} {
				var of *ParentError
				if !errors.As(err, &of) || of.Znode != first || of.Parent != parent || !cluster.IsRefusal(err) {
					t.Errorf("%s of %s: %v", what, name, err)
				}
				contains(t, err, append(words, "cannot create znode "+first+":", "permissions cdr")...)
			}
		}
		if err := CheckRoot(t.Context(), a, parent+"/below", "three", parent+"/below/three"); err != nil {
			t.Error(err)
		}
		if err := CheckRoot(t.Context(), b, "/", "new", fmt.Sprintf("/test%d", roots.Add(1))); err != nil {
			t.Error(err)
		}
		if names, _, err := a.Children(t.Context(), parent, false); err != nil || len(names) != 1 {
			t.Errorf("below the parent: %q, %v", names, err)
		}
	}
}

// cannotAsk is a session that creates nothing, as it is not known for whom.
type cannotAsk struct{ *zk.Session }

func (cannotAsk) Do(_ context.Context, ops ...cluster.Op) ([]cluster.Result, error) {
	return nil, &cluster.TxError{Op: ops[0], Err: fmt.Errorf("%w: anyone could change it: %w", cluster.ErrNoAuth, zk.ErrCannotAsk)}
}

// It is no fault of the parent that a session does not know for whom to create a znode.
func TestParentIsNotBlamedForAnUnknownIdentity(t *testing.T) {
	err := EnsureTree(t.Context(), cannotAsk{open(t, zk.Options{})}, cluster.Paths{Root: fmt.Sprintf("/test%d", roots.Add(1))})
	if contains(t, err, "anyone could change it", "set zookeeper.sasl.identity"); errors.As(err, new(*ParentError)) || !cluster.IsRefusal(err) {
		t.Error(err)
	}
}

// A root inside a group is found before a start as well.
func TestCheckRootInsideAGroup(t *testing.T) {
	s := open(t, zk.Options{})
	base := fmt.Sprintf("/test%d", roots.Add(1))
	ensures(t, s, base, "one", base+"/one")
	contains(t, CheckRoot(t.Context(), s, base+"/one", "two", base+"/one/two"), "znode "+base+"/one belongs to a group", base+"/one/two")
	if err := CheckRoot(t.Context(), s, base, "one", base+"/one"); err != nil {
		t.Error(err)
	}
}
