package zk

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/zkserver"
)

// rewrite replaces the contents of a credentials file.
func rewrite(t *testing.T, f AuthFile, text string) {
	t.Helper()
	if err := os.WriteFile(f.Path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// applyCredentials makes a session present and apply changed credentials.
func applyCredentials(t *testing.T, s *Session, p cluster.Paths, a Access) {
	t.Helper()
	change, err := s.PresentCredentials(t.Context(), p, a)
	if err != nil {
		t.Fatal(err)
	}
	if !change.Changed {
		t.Error("nothing has changed")
	}
	change.Apply()
}

// canRead reports whether a session may read a znode.
func canRead(t *testing.T, s *Session, path string) bool {
	t.Helper()
	_, _, err := s.Get(t.Context(), path, false)
	if err != nil && !errors.Is(err, cluster.ErrNoAuth) {
		t.Errorf("%s: %v", path, err)
	}
	return err == nil
}

// A password is replaced on a live session, and no member ever loses access to the tree.
func TestPasswordRotationOnALiveSession(t *testing.T) {
	file := credentialsFile(t, "zkelectd:old")
	access := Access{Auth: file, ACL: ACLPrivate}
	s := open(t, Options{Access: access})
	p := root(t, s)
	created := createAllZnodes(t, s, p)
	before := open(t, Options{Access: Access{Auth: credentialsFile(t, "zkelectd:old"), ACL: ACLPrivate}})
	after := open(t, Options{Access: Access{Auth: credentialsFile(t, "zkelectd:new"), ACL: ACLPrivate}})
	apply := func() int {
		changed := 0
		if err := s.ApplyACLs(t.Context(), p, "ann@host", func(ZnodeACL) { changed++ }); err != nil {
			t.Fatal(err)
		}
		return changed
	}

	rewrite(t, file, "zkelectd:old\nzkelectd:new\n")
	applyCredentials(t, s, p, access)
	other, err := register(t, s, p, "n2")
	if err != nil {
		t.Fatal(err)
	}
	if fresh := p.Incarnation(other.Name); !canRead(t, before, fresh) || !canRead(t, after, fresh) || canRead(t, after, p.Root) {
		t.Error("a new znode does not accept both passwords, or an old one does")
	}
	if n := apply(); n != len(created) {
		t.Errorf("%d of %d znodes were changed", n, len(created))
	}
	for _, path := range created {
		if !canRead(t, before, path) || !canRead(t, after, path) {
			t.Errorf("%s does not accept both passwords", path)
		}
	}

	rewrite(t, file, "zkelectd:new\n")
	applyCredentials(t, s, p, access)
	third, err := register(t, s, p, "n3")
	if err != nil {
		t.Fatal(err)
	}
	if fresh := p.Incarnation(third.Name); canRead(t, before, fresh) || !canRead(t, after, fresh) {
		t.Error("the session creates znodes for the old password, which it presented earlier")
	}
	apply()
	for _, path := range created {
		if canRead(t, before, path) || !canRead(t, after, path) {
			t.Errorf("%s does not accept only the new password", path)
		}
	}
	if n := apply(); n != 0 {
		t.Errorf("%d znodes were changed although all were correct", n)
	}
	if s.Err() != nil {
		t.Errorf("the session has ended: %v", s.Err())
	}
}

// A file that would lock the next session out is rejected, and the session continues unchanged.
func TestCredentialsWithoutAccessAreRejected(t *testing.T) {
	file := credentialsFile(t, "zkelectd:old")
	access := Access{Auth: file, ACL: ACLPrivate}
	s := open(t, Options{Access: access})
	p := root(t, s)
	for text, want := range map[string]string{
		"zkelectd:new\n": "keep a line that has, run 'zkelectd acl --apply'",
		"hunter2\n":      "line 1 is not user:password",
		"":               "has no user:password line",
	} {
		rewrite(t, file, text)
		_, err := s.PresentCredentials(t.Context(), p, access)
		contains(t, err, want)
	}
	createAllZnodes(t, s, p)
	if friend := open(t, Options{Access: Access{Auth: credentialsFile(t, "zkelectd:old"), ACL: ACLPrivate}}); !canRead(t, friend, p.Current()) {
		t.Error("the session creates znodes for the rejected credentials")
	}
	rewrite(t, file, "zkelectd:old\n")
	change, err := s.PresentCredentials(t.Context(), p, access)
	if err != nil || change.Changed {
		t.Errorf("%+v, %v", change, err)
	}
}

// For a while, the connection breaks whenever credentials are written. When PresentCredentials returns, the current connection
// has presented them.
func TestCredentialsArePresentedAcrossReconnects(t *testing.T) {
	var broken atomic.Bool
	var failed atomic.Int32
	file := credentialsFile(t, "zkelectd:old")
	access := Access{Auth: file, ACL: ACLPrivate}
	s := open(t, Options{Timeout: 30 * time.Second, Access: access, dialer: dialBy(func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return authConn{conn, &broken, &failed, true}, err
	})})
	p := root(t, s)
	owner := open(t, Options{Access: Access{Auth: credentialsFile(t, "zkelectd:new"), ACL: ACLPrivate}})
	if _, err := owner.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: p.Root + "-new", Data: []byte{}}); err != nil {
		t.Fatal(err)
	}
	rewrite(t, file, "zkelectd:old\nzkelectd:new\n")
	broken.Store(true)
	presented := make(chan error, 1)
	go func() {
		_, err := s.PresentCredentials(t.Context(), p, access)
		presented <- err
	}()
	eventually(t, "credentials are lost", func() bool { return failed.Load() > 2 })
	broken.Store(false)
	if err := <-presented; err != nil {
		t.Fatal(err)
	}
	again := s.Reconnects()
	if !canRead(t, s, p.Root+"-new") {
		t.Error("the connection does not know the new identity")
	}
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	conn.Close()
	eventually(t, "a reconnect", func() bool { return s.Reconnects() > again })
	eventually(t, "the next connection has presented it too", func() bool { return canRead(t, s, p.Root+"-new") })
}

func TestApplyACLs(t *testing.T) {
	free := open(t, Options{})
	p := root(t, free)
	all := createAllZnodes(t, free, p)
	file := credentialsFile(t, "zkelectd:right")
	s := open(t, Options{Access: Access{Auth: file, ACL: ACLPrivate}})
	second := open(t, Options{Access: Access{Auth: file, ACL: ACLPrivate}})
	listed, err := s.ACLs(t.Context(), p)
	if err != nil || len(listed) != len(all) || listed[0].Path != p.Root || listed[0].ACL != "world:anyone:cdrwa" || listed[0].Configured {
		t.Fatalf("%+v, %v", listed, err)
	}
	// Two run concurrently: each ACL is set with its version, and a znode that the other has changed first is already correct.
	done := make(chan error, 1)
	go func() { done <- second.ApplyACLs(t.Context(), p, "ann@host", func(ZnodeACL) {}) }()
	if err := errors.Join(s.ApplyACLs(t.Context(), p, "ann@host", func(ZnodeACL) {}), <-done); err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if canRead(t, free, path) || !canRead(t, s, path) {
			t.Errorf("%s is not private", path)
		}
	}
	listed, err = s.ACLs(t.Context(), p)
	want := "digest:" + Tag(identity{digestScheme, "zkelectd", "right"}.aclID()) + ":cdrwa"
	if err != nil || len(listed) != len(all) || listed[5].ACL != want || !listed[5].Configured {
		t.Errorf("%+v, %v", listed, err)
	}
	contains(t, free.ApplyACLs(t.Context(), p, "ann@host", func(ZnodeACL) {}), "cannot test the ACL below "+p.Root, "set zookeeper.auth.file")
}

// An ACL that another client has changed since it was read is not overwritten.
func TestSetACLChecksTheVersion(t *testing.T) {
	free := open(t, Options{})
	p := root(t, free)
	s := open(t, Options{Access: Access{Auth: credentialsFile(t, "zkelectd:right"), ACL: ACLPrivate}})
	listed, err := s.ACLs(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := free.zk.SetACL(p.Root, zk.WorldACL(zk.PermAll), -1); err != nil {
		t.Fatal(err)
	}
	if changed, err := s.setACL(t.Context(), listed[0]); changed || err != nil {
		t.Errorf("changed %t, %v", changed, err)
	}
	if !canRead(t, free, p.Root) {
		t.Error("it was overwritten")
	}
}

// A znode that an unauthorized client has created in an open tree is reported, and the ACLs of all others are set.
func TestApplyACLsDespiteAForeignZnode(t *testing.T) {
	free := open(t, Options{})
	p := root(t, free)
	outsider := open(t, Options{Access: Access{Auth: credentialsFile(t, "outsider:secret"), ACL: ACLPrivate}})
	if _, err := outsider.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: p.Node("evil"), Data: []byte{}}); err != nil {
		t.Fatal(err)
	}
	s := open(t, Options{Access: Access{Auth: credentialsFile(t, "zkelectd:right"), ACL: ACLPrivate}})
	contains(t, s.ApplyACLs(t.Context(), p, "ann@host", func(ZnodeACL) {}), "znode "+p.Node("evil"), "delete it")
	if canRead(t, free, p.Root) || canRead(t, free, p.Leader()) {
		t.Error("the ACLs of the others are not set")
	}
}

// Servers with another password hash would not match the members with the ACL.
func TestApplyACLsRefusesToLockTheGroupOut(t *testing.T) {
	algorithm := []string{"DigestAuthenticationProvider.digestAlg=SHA3-256"}
	server := zkserver.ForTest(t, zkserver.Options{ExtraConfig: algorithm})
	free := open(t, Options{Servers: []string{server.Addr()}})
	p := root(t, free)
	s := open(t, Options{Servers: []string{server.Addr()}, Access: Access{Auth: credentialsFile(t, "zkelectd:right"), ACL: ACLPrivate}})
	contains(t, s.ApplyACLs(t.Context(), p, "ann@host", func(ZnodeACL) {}), "nothing was changed", "SHA-1")
	if !canRead(t, free, p.Root) || !canRead(t, free, p.Leader()) {
		t.Error("an ACL was changed")
	}
	names, _, err := free.Children(t.Context(), p.Root, false)
	if err != nil || len(names) != 3 {
		t.Errorf("%v, %v", names, err)
	}
}

// A tag distinguishes passwords but contains too little to recover one.
func TestTagRevealsNoPassword(t *testing.T) {
	tag := func(line string) string {
		i, err := parseIdentity(line)
		if err != nil {
			t.Fatal(err)
		}
		return Tag(i.aclID())
	}
	if a, b := tag("zkelectd:old"), tag("zkelectd:new"); a == b || len(a) != len("zkelectd/0000") {
		t.Errorf("%s, %s", a, b)
	}
}
