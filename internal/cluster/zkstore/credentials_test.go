package zkstore

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
	"zkelectd/internal/zkserver"
)

// rewrite replaces what a file with credentials holds.
func rewrite(t *testing.T, f AuthFile, text string) {
	t.Helper()
	if err := os.WriteFile(f.Path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// taken has a session take over its file.
func taken(t *testing.T, s *Session, p cluster.Paths, a Access) {
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

// reads reports whether a session may read a znode.
func reads(t *testing.T, s *Session, path string) bool {
	t.Helper()
	_, _, err := s.Get(t.Context(), path, false)
	if err != nil && !errors.Is(err, cluster.ErrNoAuth) {
		t.Errorf("%s: %v", path, err)
	}
	return err == nil
}

// A password is replaced on a live session, and at no time is the tree closed to a member.
func TestPasswordIsReplacedOnALiveSession(t *testing.T) {
	file := secret(t, "zkelectd:old")
	access := Access{Auth: file, ACL: ACLPrivate}
	s := open(t, Options{Access: access})
	p := root(t, s)
	created := furnish(t, s, p)
	before := open(t, Options{Access: Access{Auth: secret(t, "zkelectd:old"), ACL: ACLPrivate}})
	after := open(t, Options{Access: Access{Auth: secret(t, "zkelectd:new"), ACL: ACLPrivate}})
	apply := func() int {
		changed := 0
		if err := s.ApplyACLs(t.Context(), p, func(ZnodeACL) { changed++ }); err != nil {
			t.Fatal(err)
		}
		return changed
	}

	rewrite(t, file, "zkelectd:old\nzkelectd:new\n")
	taken(t, s, p, access)
	other, err := Register(t.Context(), s, p, cluster.Node{ID: "n2"})
	if err != nil {
		t.Fatal(err)
	}
	if fresh := p.Incarnation(other.Name); !reads(t, before, fresh) || !reads(t, after, fresh) || reads(t, after, p.Root) {
		t.Error("a new znode is not for both passwords, or an old one is")
	}
	if n := apply(); n != len(created) {
		t.Errorf("%d of %d znodes were changed", n, len(created))
	}
	for _, path := range created {
		if !reads(t, before, path) || !reads(t, after, path) {
			t.Errorf("%s is not for both passwords", path)
		}
	}

	rewrite(t, file, "zkelectd:new\n")
	taken(t, s, p, access)
	third, err := Register(t.Context(), s, p, cluster.Node{ID: "n3"})
	if err != nil {
		t.Fatal(err)
	}
	if fresh := p.Incarnation(third.Name); reads(t, before, fresh) || !reads(t, after, fresh) {
		t.Error("what the session creates is for the old password, which it has presented once")
	}
	apply()
	for _, path := range created {
		if reads(t, before, path) || !reads(t, after, path) {
			t.Errorf("%s is not for the new password alone", path)
		}
	}
	if n := apply(); n != 0 {
		t.Errorf("%d znodes were changed though all were right", n)
	}
	if s.Err() != nil {
		t.Errorf("the session has ended: %v", s.Err())
	}
}

// A file that would lock the next session out is refused, and the session goes on as it was.
func TestCredentialsThatOpenNothingAreRefused(t *testing.T) {
	file := secret(t, "zkelectd:old")
	access := Access{Auth: file, ACL: ACLPrivate}
	s := open(t, Options{Access: access})
	p := root(t, s)
	for text, want := range map[string]string{
		"zkelectd:new\n": "keep a line that has, run 'zkelectd acl apply'",
		"hunter2\n":      "line 1 is not user:password",
		"":               "has no user:password line",
	} {
		rewrite(t, file, text)
		_, err := s.PresentCredentials(t.Context(), p, access)
		contains(t, err, want)
	}
	furnish(t, s, p)
	if friend := open(t, Options{Access: Access{Auth: secret(t, "zkelectd:old"), ACL: ACLPrivate}}); !reads(t, friend, p.Current()) {
		t.Error("after a refusal it creates znodes for others")
	}
	rewrite(t, file, "zkelectd:old\n")
	change, err := s.PresentCredentials(t.Context(), p, access)
	if err != nil || change.Changed {
		t.Errorf("%+v, %v", change, err)
	}
}

// The connection breaks whenever credentials are written, for a while: what Present says is known is known on the
// connection that is there afterwards.
func TestCredentialsArePresentedAcrossReconnects(t *testing.T) {
	var broken atomic.Bool
	var failed atomic.Int32
	file := secret(t, "zkelectd:old")
	access := Access{Auth: file, ACL: ACLPrivate}
	s := open(t, Options{Timeout: 30 * time.Second, Access: access, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return cutAfterAuth{conn, &broken, &failed}, err
	}})
	p := root(t, s)
	owner := open(t, Options{Access: Access{Auth: secret(t, "zkelectd:new"), ACL: ACLPrivate}})
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
	if !reads(t, s, p.Root+"-new") {
		t.Error("the connection does not know the new identity")
	}
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	conn.Close()
	eventually(t, "a reconnect", func() bool { return s.Reconnects() > again })
	eventually(t, "the next connection knows it too", func() bool { return reads(t, s, p.Root+"-new") })
}

// cutAfterAuth breaks the connection right after credentials were sent, while broken: the server may have taken them.
type cutAfterAuth struct {
	net.Conn
	broken *atomic.Bool
	failed *atomic.Int32
}

func (c cutAfterAuth) Write(b []byte) (int, error) {
	const opAuth = 100
	n, err := c.Conn.Write(b)
	if c.broken.Load() && len(b) >= 12 && int32(binary.BigEndian.Uint32(b[8:])) == opAuth {
		c.failed.Add(1)
		c.Conn.Close()
	}
	return n, err
}

func TestApplyingACLs(t *testing.T) {
	free := open(t, Options{})
	p := root(t, free)
	all := furnish(t, free, p)
	file := secret(t, "zkelectd:right")
	s := open(t, Options{Access: Access{Auth: file, ACL: ACLPrivate}})
	second := open(t, Options{Access: Access{Auth: file, ACL: ACLPrivate}})
	listed, err := s.ACLs(t.Context(), p)
	if err != nil || len(listed) != len(all) || listed[0].Path != p.Root || listed[0].ACL != "world:anyone:cdrwa" || listed[0].Configured {
		t.Fatalf("%+v, %v", listed, err)
	}
	// Two at once: each znode's ACL is set by its version, and what one was overtaken in it finds done.
	done := make(chan error, 1)
	go func() { done <- second.ApplyACLs(t.Context(), p, func(ZnodeACL) {}) }()
	if err := errors.Join(s.ApplyACLs(t.Context(), p, func(ZnodeACL) {}), <-done); err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if reads(t, free, path) || !reads(t, s, path) {
			t.Errorf("%s is not private", path)
		}
	}
	listed, err = s.ACLs(t.Context(), p)
	want := "digest:" + Tag(identity{scheme: "digest", secret: []byte("zkelectd:right"), user: "zkelectd"}.aclID()) + ":cdrwa"
	if err != nil || len(listed) != len(all) || listed[5].ACL != want || !listed[5].Configured {
		t.Errorf("%+v, %v", listed, err)
	}
	contains(t, free.ApplyACLs(t.Context(), p, func(ZnodeACL) {}), "cannot test the ACL below "+p.Root, "set zookeeper.auth.file")
}

// An ACL that another has set since it was read is not overwritten unseen.
func TestAnACLIsSetFromTheVersionThatWasRead(t *testing.T) {
	free := open(t, Options{})
	p := root(t, free)
	s := open(t, Options{Access: Access{Auth: secret(t, "zkelectd:right"), ACL: ACLPrivate}})
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
	if !reads(t, free, p.Root) {
		t.Error("it was overwritten")
	}
}

// A znode that a stranger has put into an open tree is named, and keeps nothing else from being closed.
func TestForeignZnodeDoesNotKeepTheTreeOpen(t *testing.T) {
	free := open(t, Options{})
	p := root(t, free)
	stranger := open(t, Options{Access: Access{Auth: secret(t, "stranger:secret"), ACL: ACLPrivate}})
	if _, err := stranger.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: p.Node("evil"), Data: []byte{}}); err != nil {
		t.Fatal(err)
	}
	s := open(t, Options{Access: Access{Auth: secret(t, "zkelectd:right"), ACL: ACLPrivate}})
	contains(t, s.ApplyACLs(t.Context(), p, func(ZnodeACL) {}), "znode "+p.Node("evil"), "delete it")
	if reads(t, free, p.Root) || reads(t, free, p.Leader()) {
		t.Error("the others are not closed")
	}
}

// Servers that hash passwords in another way would not know the members in the ACL.
func TestACLThatWouldLockOutIsNotApplied(t *testing.T) {
	server, err := zkserver.Start(t.Context(), zkserver.Options{Settings: []string{"DigestAuthenticationProvider.digestAlg=SHA3-256"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Stop() })
	free := open(t, Options{Servers: []string{server.Addr()}})
	p := root(t, free)
	s := open(t, Options{Servers: []string{server.Addr()}, Access: Access{Auth: secret(t, "zkelectd:right"), ACL: ACLPrivate}})
	contains(t, s.ApplyACLs(t.Context(), p, func(ZnodeACL) {}), "nothing was changed", "SHA-1")
	if !reads(t, free, p.Root) || !reads(t, free, p.Leader()) {
		t.Error("it was changed all the same")
	}
	names, _, err := free.Children(t.Context(), p.Root, false)
	if err != nil || len(names) != 3 {
		t.Errorf("%v, %v", names, err)
	}
}

// A record tells passwords apart, and does not say enough to find one.
func TestTagsSayLittle(t *testing.T) {
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
