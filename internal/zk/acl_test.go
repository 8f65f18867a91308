package zk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// credentialsFile writes a credentials file.
func credentialsFile(t *testing.T, text string) AuthFile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "auth")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return AuthFile{Path: path}
}

// createAllZnodes creates every znode that a group can have, as its daemons do, and returns the paths.
func createAllZnodes(t *testing.T, s *Session, p cluster.Paths) []string {
	t.Helper()
	in, err := register(t, s, p, "n1")
	if err != nil {
		t.Fatal(err)
	}
	create := func(path string, ephemeral bool) cluster.Op {
		return cluster.Op{Kind: cluster.OpCreate, Path: path, Data: []byte("{}"), Ephemeral: ephemeral}
	}
	if _, err := s.Do(t.Context(), create(p.Elected(), false), create(p.Policy(), false), create(p.Control(), false),
		create(p.History(), false), create(p.Roster(), false), create(p.Current(), true)); err != nil {
		t.Fatal(err)
	}
	return []string{p.Root, p.Nodes(), p.Election(), p.Leader(), p.Node("n1"), p.Incarnation(in.Name),
		p.Elected(), p.Policy(), p.Control(), p.Roster(), p.History(), p.Current()}
}

func TestUnauthorizedClientsAreDenied(t *testing.T) {
	auth := credentialsFile(t, "zkelectd:right")
	for _, acl := range []ACL{ACLPrivate, ACLReadable} {
		t.Run(string(acl), func(t *testing.T) {
			access := Access{Auth: auth, ACL: acl}
			creator := open(t, Options{Access: access})
			p := root(t, creator)
			all := createAllZnodes(t, creator, p)
			wrong := credentialsFile(t, "zkelectd:wrong")
			for who, s := range map[string]*Session{
				"without credentials":   open(t, Options{}),
				"with another password": open(t, Options{Access: Access{Auth: wrong, ACL: acl}}),
			} {
				advice := "zookeeper.auth.file"
				if who == "with another password" {
					advice = wrong.Path
				}
				refused := func(what, path string, err error) {
					t.Helper()
					if !errors.Is(err, cluster.ErrNoAuth) || !strings.Contains(err.Error(), advice) || !strings.Contains(err.Error(), path) {
						t.Errorf("%s %s %s: %v", who, what, path, err)
					}
				}
				for _, path := range all {
					_, _, err := s.Get(t.Context(), path, false)
					_, _, listErr := s.Children(t.Context(), path, true)
					if acl == ACLPrivate {
						refused("reads", "", err)
						refused("lists", "", listErr)
					} else if err != nil || listErr != nil {
						t.Errorf("%s can't read %s: %v, %v", who, path, err, listErr)
					}
					_, err = s.Do(t.Context(), cluster.Op{Kind: cluster.OpSet, Path: path, Version: cluster.AnyVersion, Data: []byte("x")})
					refused("sets", path, err)
					if path != p.Current() && path != p.Node("n1") && !strings.HasPrefix(path, p.Election()+"/") {
						_, err = s.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: path + "/evil", Data: []byte("x")})
						refused("creates below", path, err)
					}
					if path != p.Root { // its parent is open, but it has children
						_, err = s.Do(t.Context(), cluster.Op{Kind: cluster.OpDelete, Path: path, Version: cluster.AnyVersion})
						refused("deletes", path, err)
					}
				}
			}
			// Other members of the group have the same permissions as the creator.
			friend := open(t, Options{Access: access})
			for i := len(all) - 1; i > 3; i-- {
				if _, err := friend.Do(t.Context(), cluster.Op{Kind: cluster.OpDelete, Path: all[i], Version: cluster.AnyVersion}); err != nil {
					t.Errorf("another member cannot delete %s: %v", all[i], err)
				}
			}
		})
	}
}

func TestAuditNamesZnodesWithAnotherACL(t *testing.T) {
	auth := credentialsFile(t, "zkelectd:right")
	free := open(t, Options{})
	p := root(t, free)
	owner := open(t, Options{Access: Access{Auth: auth, ACL: ACLReadable}})
	if _, err := owner.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: p.Control(), Data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	found, err := owner.AuditACLs(t.Context(), p)
	if err != nil || !found.Open || strings.Join(found.Mismatched, " ") != strings.Join([]string{p.Root, p.Nodes(), p.Election(), p.Leader()}, " ") {
		t.Errorf("%+v, %v", found, err)
	}
	if found, err = free.AuditACLs(t.Context(), p); err != nil || len(found.Mismatched) != 1 || found.Mismatched[0] != p.Control() {
		t.Errorf("%+v, %v", found, err)
	}
	own := root(t, owner)
	if found, err = owner.AuditACLs(t.Context(), own); err != nil || len(found.Mismatched) != 0 || found.Open {
		t.Errorf("a correct tree: %+v, %v", found, err)
	}
	_, err = free.AuditACLs(t.Context(), root(t, open(t, Options{Access: Access{Auth: auth, ACL: ACLPrivate}})))
	contains(t, err, "cannot read the ACL of znode /test", "zookeeper.auth.file")
}

// A command often has only the credentials configured. The znodes that it creates must not be open.
func TestAdoptACL(t *testing.T) {
	auth := credentialsFile(t, "zkelectd:right")
	owner := open(t, Options{Access: Access{Auth: auth, ACL: ACLPrivate}})
	p := root(t, owner)
	command := open(t, Options{Access: Access{Auth: auth}})
	if err := command.AdoptACL(t.Context(), p.Root); err != nil {
		t.Fatal(err)
	}
	if _, err := command.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: p.Control(), Data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	outsider := open(t, Options{})
	if _, _, err := outsider.Get(t.Context(), p.Control(), false); !errors.Is(err, cluster.ErrNoAuth) {
		t.Errorf("an unauthorized client reads it: %v", err)
	}
	// That of the next root is its own, also if that does not exist yet.
	if err := errors.Join(owner.AdoptACL(t.Context(), root(t, outsider).Root), owner.AdoptACL(t.Context(), "/no/such/root")); err != nil {
		t.Fatal(err)
	}
	if owner.CreatesOpen() {
		t.Error("a new root gets the ACL of another one")
	}
	contains(t, outsider.AdoptACL(t.Context(), p.Root), "cannot read the ACL of znode "+p.Root)
	if err := outsider.AdoptACL(t.Context(), "/no/such/root"); err != nil {
		t.Errorf("a root that does not exist: %v", err)
	}
}

// A root that somebody else may have created, or may change, is refused by name and owner unless the session creates open znodes.
func TestARootOfSomebodyElseIsRefused(t *testing.T) {
	access := Access{Auth: credentialsFile(t, "zkelectd:right"), ACL: ACLPrivate}
	s, other := open(t, Options{Access: access}), open(t, Options{})
	ids, err := access.identities()
	if err != nil {
		t.Fatal(err)
	}
	own, evil := ACLPrivate.entries(ids.all), zk.DigestACL(zk.PermAll, "evil", "password")
	root(t, s)
	for name, c := range map[string]struct {
		acl     []zk.ACL
		refused string // what the error says; empty if the root is accepted
	}{
		"ours":                       {own, ""},
		"ours, all may read":         {append(zk.WorldACL(zk.PermRead), own...), ""},
		"ours and another user's":    {append(evil, own...), ""},
		"open":                       {zk.WorldACL(zk.PermAll), "world:anyone:cdrwa"},
		"open, and ours":             {append(zk.WorldACL(zk.PermCreate), own...), "world:anyone:c"},
		"open to a network":          {append([]zk.ACL{{Perms: zk.PermAll, Scheme: "ip", ID: "0.0.0.0/0"}}, own...), "ip:0.0.0.0/0:cdrwa"},
		"of others, all may read":    {append(zk.WorldACL(zk.PermRead), evil...), "belongs to somebody else: its ACL is digest:evil/"},
		"of others":                  {evil, "znode "},
		"of others, ours may delete": {append([]zk.ACL{{Perms: zk.PermDelete | zk.PermRead, Scheme: own[0].Scheme, ID: own[0].ID}}, evil...), "belongs to somebody else"},
	} {
		path := "/planted-" + strings.ReplaceAll(name, " ", "-")
		if _, err := other.zk.Create(path, nil, 0, c.acl); err != nil {
			t.Fatal(err)
		}
		err := s.CheckOwner(t.Context(), path)
		if (err == nil) != (c.refused == "") || err != nil && (!strings.Contains(err.Error(), c.refused) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%s: %v", name, err)
		}
		if err := other.CheckOwner(t.Context(), path); err != nil {
			t.Errorf("%s, to a session that creates open znodes: %v", name, err)
		}
	}
	if err := s.CheckOwner(t.Context(), "/planted-nowhere"); err != nil {
		t.Error(err)
	}
}

// A root is not closed before everything below it: a planted znode that the group cannot close would be trusted from then on.
func TestTheRootIsClosedLast(t *testing.T) {
	other := open(t, Options{})
	p := root(t, other)
	planted := append(zk.WorldACL(zk.PermAll&^zk.PermAdmin), zk.DigestACL(zk.PermAdmin, "evil", "password")...)
	if _, err := other.zk.SetACL(p.Leader(), planted, -1); err != nil {
		t.Fatal(err)
	}
	s := open(t, Options{Access: Access{Auth: credentialsFile(t, "zkelectd:right"), ACL: ACLPrivate}})
	err := s.ApplyACLs(t.Context(), p, "the test", func(ZnodeACL) {})
	if err == nil || !strings.Contains(err.Error(), p.Leader()) {
		t.Errorf("it applied: %v", err)
	}
	if err := s.CheckOwner(t.Context(), p.Root); err == nil {
		t.Error("the root is accepted")
	}
}
