package zkstore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// secret makes a file with credentials.
func secret(t *testing.T, text string) AuthFile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "auth")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return AuthFile{Path: path}
}

// furnish makes every znode that a group can have, as its daemons do, and returns the paths.
func furnish(t *testing.T, s *Session, p cluster.Paths) []string {
	t.Helper()
	in, err := Register(t.Context(), s, p, cluster.Node{ID: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	create := func(path string, ephemeral bool) cluster.Op {
		return cluster.Op{Kind: cluster.OpCreate, Path: path, Data: []byte("{}"), Ephemeral: ephemeral}
	}
	if _, err := s.Do(t.Context(), create(p.Elected(), false), create(p.Policy(), false), create(p.Control(), false),
		create(p.History(), false), create(p.Current(), true)); err != nil {
		t.Fatal(err)
	}
	return []string{p.Root, p.Nodes(), p.Election(), p.Leader(), p.Node("n1"), p.Incarnation(in.Name),
		p.Elected(), p.Policy(), p.Control(), p.History(), p.Current()}
}

func TestStrangersAreKeptOut(t *testing.T) {
	auth := secret(t, "zkelectd:right")
	for _, acl := range []ACL{ACLPrivate, ACLReadable} {
		t.Run(string(acl), func(t *testing.T) {
			access := Access{Auth: auth, ACL: acl}
			creator := open(t, Options{Access: access})
			p := root(t, creator)
			all := furnish(t, creator, p)
			wrong := secret(t, "zkelectd:wrong")
			for who, s := range map[string]*Session{
				"without credentials": open(t, Options{}),
				"with another word":   open(t, Options{Access: Access{Auth: wrong, ACL: acl}}),
			} {
				advice := "zookeeper.auth.file"
				if who == "with another word" {
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
					if path != p.Root { // its parent is anybody's, but it has children
						_, err = s.Do(t.Context(), cluster.Op{Kind: cluster.OpDelete, Path: path, Version: cluster.AnyVersion})
						refused("deletes", path, err)
					}
				}
			}
			// The others of the group may do all that the creator may.
			friend := open(t, Options{Access: access})
			for i := len(all) - 1; i > 3; i-- {
				if _, err := friend.Do(t.Context(), cluster.Op{Kind: cluster.OpDelete, Path: all[i], Version: cluster.AnyVersion}); err != nil {
					t.Errorf("a friend can't delete %s: %v", all[i], err)
				}
			}
		})
	}
}

func TestWrongPasswordIsToldOfWhereTheTreeIsClosed(t *testing.T) {
	creator := open(t, Options{Access: Access{Auth: secret(t, "zkelectd:right"), ACL: ACLPrivate}})
	p := root(t, creator)
	impostor := open(t, Options{Access: Access{Auth: secret(t, "zkelectd:hunter2"), ACL: ACLPrivate}})
	err := Prepare(t.Context(), impostor, p)
	contains(t, err, "cannot read znode "+p.Root, "not permitted", `user "zkelectd" of zookeeper.auth.file `, "password")
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the password is in %v", err)
	}
	_, err = Register(t.Context(), impostor, p, cluster.Node{ID: "n1"})
	contains(t, err, "create "+p.Node("n1"), "its parent "+p.Nodes(), "zookeeper.auth.file")
}

// A member that nobody else can read must not blind the elector.
func TestMemberThatMayNotBeReadIsNotInTheWay(t *testing.T) {
	p := root(t, open(t, Options{}))
	elector := join(t, p, "elector")
	closedOff := open(t, Options{Access: Access{Auth: secret(t, "somebody:else"), ACL: ACLPrivate}})
	if _, err := Register(t.Context(), closedOff, p, cluster.Node{ID: "closed"}); err != nil {
		t.Fatal(err)
	}
	elector.until(t, "both", func(s cluster.Snapshot) bool { return s.Elector && len(s.Members) == 2 })
	if m := elector.last.Members[1]; m.Node.Readable() || !errors.Is(m.Node.Err, cluster.ErrNoAuth) {
		t.Errorf("%+v", m)
	}
	contains(t, elector.last.Members[1].Node.Err, p.Node("closed"), "zookeeper.auth.file")
	snap, err := ReadAll(t.Context(), open(t, Options{}), p, false)
	if err != nil || len(snap.Members) != 2 || !errors.Is(snap.Members[1].Node.Err, cluster.ErrNoAuth) {
		t.Errorf("%v, %+v", err, snap.Members)
	}
}

func TestAuditNamesWhatIsMoreOpenThanItShouldBe(t *testing.T) {
	auth := secret(t, "zkelectd:right")
	free := open(t, Options{})
	p := root(t, free)
	owner := open(t, Options{Access: Access{Auth: auth, ACL: ACLReadable}})
	if _, err := owner.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: p.Control(), Data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	odd, err := owner.Audit(t.Context(), p)
	if err != nil || strings.Join(odd.Znodes, " ") != strings.Join([]string{p.Root, p.Nodes(), p.Election(), p.Leader()}, " ") {
		t.Errorf("%+v, %v", odd, err)
	}
	if want := "setAcl -R " + p.Root + " auth::cdrwa,world:anyone:r"; !strings.Contains(odd.Advice, want) {
		t.Errorf("%q lacks %q", odd.Advice, want)
	}
	if odd, err = free.Audit(t.Context(), p); err != nil || len(odd.Znodes) != 1 || odd.Znodes[0] != p.Control() {
		t.Errorf("%+v, %v", odd, err)
	}
	own := root(t, owner)
	if odd, err = owner.Audit(t.Context(), own); err != nil || len(odd.Znodes) != 0 || odd.Advice != "" {
		t.Errorf("a tree as it should be: %+v, %v", odd, err)
	}
	_, err = free.Audit(t.Context(), root(t, open(t, Options{Access: Access{Auth: auth, ACL: ACLPrivate}})))
	contains(t, err, "cannot read the ACL of znode /test", "zookeeper.auth.file")
}

// A command is often given the credentials alone. What it creates must be no way in.
func TestAdoptedACL(t *testing.T) {
	auth := secret(t, "zkelectd:right")
	p := root(t, open(t, Options{Access: Access{Auth: auth, ACL: ACLPrivate}}))
	command := open(t, Options{Access: Access{Auth: auth}})
	if err := command.Adopt(t.Context(), p.Root); err != nil {
		t.Fatal(err)
	}
	if _, err := command.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: p.Control(), Data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	stranger := open(t, Options{})
	if _, _, err := stranger.Get(t.Context(), p.Control(), false); !errors.Is(err, cluster.ErrNoAuth) {
		t.Errorf("a stranger reads it: %v", err)
	}
	contains(t, stranger.Adopt(t.Context(), p.Root), "cannot read the ACL of znode "+p.Root)
	if err := stranger.Adopt(t.Context(), "/no/such/root"); err != nil {
		t.Errorf("a root that is not there: %v", err)
	}
}
