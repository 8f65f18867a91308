package main

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/status"
)

// docs/security.md, Closing a tree that is open: step by step, with a leader at every step.
func TestOpenTreeIsClosedWithoutAnOutage(t *testing.T) {
	t.Parallel()
	f := newClosedFleet(t, zkstore.ACLOpen)
	ids := []string{"a", "b", "c"}
	credentials := f.env
	configure := func(acl string) {
		for i, id := range ids {
			f.configure(id, "dc1", 100-i, "zookeeper: {session_timeout: 10s, acl: "+acl+"}\n")
		}
	}
	all := func(g status.Group) bool {
		unreadable := slices.ContainsFunc(g.Members, func(m status.Member) bool { return m.Site == "" })
		return len(g.Members) == len(ids) && leads("a")(g) && !unreadable
	}
	restart := func() {
		for _, id := range ids {
			f.daemons[id].signal(syscall.SIGTERM)
			if code := f.exit(id); code != 0 {
				t.Errorf("%s: exit status %d", id, code)
			}
			f.start(id)
			f.until("all of them after the restart of "+id, all)
		}
	}
	f.env = nil
	configure("open")
	for _, id := range ids {
		f.start(id)
	}
	f.until("all without credentials", all)

	f.env = credentials
	restart()
	configure("private")
	restart()
	f.logged("a", "setAcl -R "+f.paths.Root+" auth::cdrwa")

	operator, _, err := zk.Connect(f.servers, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	if err := operator.AddAuth("digest", []byte("zkelectd:"+password)); err != nil {
		t.Fatal(err)
	}
	closeAll(t, operator, f.paths.Root)
	f.until("all in a closed tree", all)
	f.daemons["a"].signal(syscall.SIGTERM)
	f.exit("a")
	f.until("b leads", leads("b"))
	stranger := newFleet(t).session
	for _, path := range []string{f.paths.Root, f.paths.Leader(), f.paths.Elected(), f.paths.Current(), f.paths.Policy(), f.paths.Node("b")} {
		if _, _, err := stranger.Get(t.Context(), path, false); err == nil {
			t.Errorf("a stranger reads %s", path)
		}
	}
	f.sane()
}

// closeAll is setAcl -R.
func closeAll(t *testing.T, operator *zk.Conn, path string) {
	t.Helper()
	if _, err := operator.SetACL(path, zk.AuthACL(zk.PermAll), -1); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	children, _, err := operator.Children(path)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for _, child := range children {
		closeAll(t, operator, path+"/"+child)
	}
}
