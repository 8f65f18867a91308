package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/zk"
)

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

// Until each member has looked at the root again, acl --apply does not succeed, not even if nothing is left to
// change, and closes what one of them has created.
func TestACLApplyWaitsForEachMember(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	file := filepath.Join(f.dir, "auth")
	put(t, file, "zkelectd:right\n")
	f.env = []string{"ZKELECTD_ZOOKEEPER_AUTH_FILE=" + file}
	f.startLeader("b", "")
	record := f.snapshot().Members[0].Node.Record
	if record.ID = "slow"; !record.OpenTree {
		t.Fatalf("b has found that the tree is closed: %+v", record)
	}
	slow, err := zk.Open(t.Context(), zk.Options{Servers: f.servers, Timeout: time.Minute, Access: zk.Access{Auth: zk.AuthFile{Path: file}}})
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close(context.WithoutCancel(t.Context()))
	create := func(path string, data []byte) {
		t.Helper()
		if _, err := slow.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: path, Data: data, Ephemeral: true}); err != nil {
			t.Fatal(err)
		}
	}
	create(f.paths.Node("slow"), cluster.Encode(&record))
	create(f.paths.Incarnation("slow-0123456789abcdef-n_0999999999"), nil)
	for range 2 {
		f.failsWith("slow may still create open znodes", "acl", "--apply", "--timeout", "3s")
	}
	applied := make(chan error, 1)
	go func() {
		out, err := f.run("acl", "--apply")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		applied <- err
	}()
	create(f.paths.Fencings(), nil)
	f.eventually("what it has created is closed", func() bool {
		_, change, err := slow.Exposure(t.Context(), f.paths.Fencings())
		return err == nil && !change
	})
	record.OpenTree = false
	if _, err := slow.Do(t.Context(), cluster.Op{Kind: cluster.OpSet, Path: f.paths.Node("slow"), Data: cluster.Encode(&record), Version: cluster.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	if err := <-applied; err != nil {
		t.Error(err)
	}
}

// The znodes of a host that has many groups stay closed once one of them is closed, although the znode above is open.
// A stray open znode does not make a group count as open, which would be created open after a loss of all data.
func TestZnodesOfAHostStayClosed(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "billing")
	auth, dir, state := filepath.Join(e.dir, "auth"), filepath.Join(e.dir, "groups"), t.TempDir()
	put(t, auth, "zkelectd:right\n")
	mkdir(t, dir)
	put(t, e.file("n1"), fmt.Sprintf("node: {id: n1, site: dc1}\nzookeeper: {servers: [%s], root: %s, session_timeout: 4s, auth: {file: %s}}\ngroups_dir: %s\n",
		e.servers[0], e.base, auth, dir))
	put(t, filepath.Join(dir, "billing.yaml"), "child: {none: true}\n")
	e.startWith([]string{"STATE_DIRECTORY=" + state}, "n1")
	e.until("n1 leads", leads("n1"))
	if out, err := e.run("acl", "--apply", "-g", "billing", "--config", e.file("n1")); err != nil {
		t.Fatal(err, out)
	}
	e.stop("n1")

	s, err := zk.Open(t.Context(), zk.Options{Servers: e.servers, Timeout: time.Minute, Access: zk.Access{Auth: zk.AuthFile{Path: auth}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.WithoutCancel(t.Context()))
	if _, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: e.paths.Fencings(), Data: []byte{}}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(state, "joined-*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	put(t, files[0], strings.Replace(read(files[0]), "}", `,"open":true}`, 1))
	e.startWith([]string{"STATE_DIRECTORY=" + state}, "n1")
	for _, parent := range []string{e.paths.LeaseZnodes(), e.paths.Loads()} {
		e.eventually(parent+" has a closed znode of n1", func() bool {
			names, _, err := s.Children(t.Context(), parent, false)
			if err != nil || len(names) == 0 {
				return false
			}
			_, change, err := s.Exposure(t.Context(), parent+"/"+names[0])
			if change {
				t.Fatalf("%s/%s is open", parent, names[0])
			}
			return err == nil
		})
	}
	e.logged("n1", "the group's znodes are open")
	e.eventually("the root counts as closed", func() bool { return !strings.Contains(read(files[0]), `"open"`) })
}
