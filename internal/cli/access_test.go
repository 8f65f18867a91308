package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
)

// password must appear nowhere but in its file.
const password = "hunter2-of-the-tree"

// newClosedFleet returns a fleet with a private or readable tree, and its own root.
func newClosedFleet(t *testing.T, acl zk.ACL, servers ...string) *fleet {
	t.Helper()
	f := newFleet(t, servers...)
	if err := f.session.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.paths.Root = "/closed" + strings.ReplaceAll(f.paths.Root, "/", "-")
	auth := filepath.Join(f.dir, "auth")
	put(t, auth, "zkelectd:"+password)
	f.env = []string{"ZKELECTD_ZOOKEEPER_AUTH_FILE=" + auth, "ZKELECTD_LOG_LEVEL=debug"}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	var err error
	f.session, err = zk.Open(ctx, zk.Options{
		Servers: f.servers, Timeout: time.Minute, Access: zk.Access{Auth: zk.AuthFile{Path: auth}, ACL: acl},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// checkSecret checks that a secret is in no log, command line or environment.
func (f *fleet) checkSecret(secret string, pids ...int) {
	f.t.Helper()
	for id, p := range f.daemons {
		if strings.Contains(p.Output(), secret) {
			f.t.Errorf("%s has logged the password:\n%s", id, p.Output())
		}
	}
	for _, pid := range pids {
		for _, file := range []string{"cmdline", "environ"} {
			if strings.Contains(read(fmt.Sprintf("/proc/%d/%s", pid, file)), secret) {
				f.t.Errorf("the password is in %s of process %d", file, pid)
			}
		}
	}
}

func (f *fleet) runUnauthorized(args ...string) (string, error) {
	env := f.env
	f.env = nil
	defer func() { f.env = env }()
	return f.run(args...)
}

// checkClosed checks that a client without credentials can neither read nor change any znode from root on, and that these are among
// them.
func (f *fleet) checkClosed(root string, among ...string) {
	f.t.Helper()
	stranger := newFleet(f.t, f.servers...).session
	refused := func(what, path string, err error) {
		f.t.Helper()
		if !errors.Is(err, cluster.ErrNoAuth) {
			f.t.Errorf("an unauthorized client %s %s: %v", what, path, err)
		}
	}
	found := make(map[string]bool)
	var visit func(path string)
	visit = func(path string) {
		names, _, err := f.session.Children(f.t.Context(), path, false)
		if err != nil {
			f.t.Fatal(err)
		}
		found[path] = true
		_, _, err = stranger.Get(f.t.Context(), path, false)
		refused("reads", path, err)
		ops := map[string]cluster.Op{
			"sets":          {Kind: cluster.OpSet, Path: path, Version: cluster.AnyVersion, Data: []byte("x")},
			"creates below": {Kind: cluster.OpCreate, Path: path + "/evil", Data: []byte("x")},
		}
		if path != root { // its parent is open, but it has children
			ops["deletes"] = cluster.Op{Kind: cluster.OpDelete, Path: path, Version: cluster.AnyVersion}
		}
		for what, op := range ops {
			_, err := stranger.Do(f.t.Context(), op)
			refused(what, path, err)
		}
		for _, name := range names {
			visit(path + "/" + name)
		}
	}
	visit(root)
	for _, path := range among {
		if !found[path] {
			f.t.Errorf("there is no znode %s among %v", path, slices.Sorted(maps.Keys(found)))
		}
	}
}

// With credentials and without zookeeper.acl, a new group is private.
func TestGroupInAClosedTree(t *testing.T) {
	t.Parallel()
	f := newClosedFleet(t, zk.ACLPrivate)
	file := filepath.Join(f.dir, "session")
	f.joinWith(fmt.Sprintf("zookeeper: {session_timeout: 30s, session_file: %s-NODE}\n", file), "a", "b")
	f.succeedsWith("Configured  auto, digest:zkelectd/", "acl") // the default
	f.waitForWork("a")
	child := f.child("a")
	f.checkSecret(password, child, f.daemon("a"), f.daemons["a"].Process.Pid)
	if env := read(fmt.Sprintf("/proc/%d/environ", child)); strings.Contains(env, "AUTH_FILE") {
		t.Errorf("the child has the setting of the file: %q", env)
	}
	if kept := read(file + "-a"); strings.Contains(kept, password) || !strings.Contains(kept, `"path":`) {
		t.Errorf("kept of the session: %s", kept)
	}

	// The guard closes an authenticated session, so that no daemon waits for 30 s.
	syscall.Kill(f.daemon("a"), syscall.SIGKILL)
	f.until("b leads", func(g status.Group) bool {
		return g.Leader == "b" || g.Term > 0 && strings.Contains(g.Reason, "released leadership")
	})
	f.until("a leads again", leads("a"))

	f.succeedsWith("Leader   a", "status")
	f.succeedsWith("b (dc1) leads", "move", "--to", "b", "--wait")
	// The znodes that the command created are private too, although it was given only the credentials.
	f.checkClosed(f.paths.Root, f.paths.Control(), f.paths.Policy(), f.paths.History(), f.paths.Roster(), f.paths.Elected(), f.paths.Current(), f.paths.Node("a"))
	for _, args := range [][]string{{"status"}, {"move", "--to", "a"}, {"check", "--id", "x", "--no-child"}} {
		out, err := f.runUnauthorized(args...)
		if (err == nil) != (args[0] == "check") || !strings.Contains(out, "znode "+f.paths.Root) || !strings.Contains(out, "set zookeeper.auth.file") {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
	f.stop("b")
	f.until("a leads after a release", leads("a"))

	// If all processes are killed, the next leader need not wait either.
	f.crash("a")
	f.releasesSession(file + "-a")
	f.checkSecret(password)
	f.checkInvariants()
}

// Nor can anybody else change what a daemon with many groups creates, with slots among them.
func TestManyGroupsInAClosedTree(t *testing.T) {
	t.Parallel()
	f := newClosedFleet(t, zk.ACLPrivate)
	base, dir := f.paths.Root, filepath.Join(f.dir, "groups")
	mkdir(t, dir)
	main := filepath.Join(f.dir, "host.yaml")
	for file, text := range map[string]string{
		main:                               fmt.Sprintf("node: {id: a}\nzookeeper: {servers: [%s], root: %s, acl: private}\ngroups_dir: %s\n", strings.Join(f.servers, ", "), base, dir),
		filepath.Join(dir, "plain.yaml"):   "child: {none: true}\nelection: {settle: 0s}\n",
		filepath.Join(dir, "slotted.yaml"): "slots: {count: 2}\nchild: {none: true}\nelection: {settle: 0s}\n",
	} {
		put(t, file, text)
	}
	f.start("a", "--config", main)
	slotted := cluster.Paths{Root: base + "/slotted"}
	last := []string{cluster.Loads(base) + "/a", cluster.Paths{Root: base + "/plain"}.Current(), slotted.OfSlot(0).Current(), slotted.OfSlot(1).Current()}
	f.eventually("all znodes", func() bool {
		return !slices.ContainsFunc(last, func(path string) bool {
			_, _, err := f.session.Get(t.Context(), path, false)
			return err != nil
		})
	})
	f.checkClosed(base, last...)
}

func TestReadableTreeIsReadAndNotChanged(t *testing.T) {
	t.Parallel()
	f := newClosedFleet(t, zk.ACLReadable)
	f.startLeader("a", "zookeeper: {session_timeout: 30s, acl: readable}\n")
	if out, err := f.runUnauthorized("status"); err != nil || !strings.Contains(out, "Leader   a") {
		t.Errorf("%v: %s", err, out)
	}
	for _, args := range [][]string{{"pause"}, {"reelect"}, {"cordon", "a"}} {
		if out, err := f.runUnauthorized(args...); err == nil || !strings.Contains(out, "znode "+f.paths.Control()) || !strings.Contains(out, "set zookeeper.auth.file") {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
	unauthorized := newFleet(t).session
	_, err := unauthorized.Do(t.Context(), remove(f.paths.Current()))
	if err == nil || !strings.Contains(err.Error(), "not permitted") {
		t.Errorf("an unauthorized client deletes current: %v", err)
	}
	f.checkInvariants()
}

func TestBadCredentialsEndTheDaemonWithAReason(t *testing.T) {
	t.Parallel()
	f := newClosedFleet(t, zk.ACLPrivate)
	if err := store.EnsureTree(t.Context(), f.session, f.paths); err != nil {
		t.Fatal(err)
	}
	wrong, loose := filepath.Join(f.dir, "wrong"), filepath.Join(f.dir, "loose")
	for path, mode := range map[string]os.FileMode{wrong: 0o400, loose: 0o644} {
		if err := os.WriteFile(path, []byte("zkelectd:wrong-"+password), mode); err != nil {
			t.Fatal(err)
		}
	}
	for id, c := range map[string]struct {
		env, want string
		code      int
	}{
		"wrong": {"ZKELECTD_ZOOKEEPER_AUTH_FILE=" + wrong, `user \"zkelectd\" from zookeeper.auth.file ` + wrong, 1},
		"none":  {"ZKELECTD_NODE_ID=none", "set zookeeper.auth.file", 1},
		"loose": {"ZKELECTD_ZOOKEEPER_AUTH_FILE=" + loose, "zookeeper.auth.file: " + loose + " has mode 0644", 2},
		"name":  {"ZKELECTD_ZOOKEEPER_AUTH_FILE=zk", "$CREDENTIALS_DIRECTORY is not set", 2},
	} {
		f.env = []string{c.env}
		f.configure(id, "dc1", 1, "")
		p := f.start(id)
		if code := f.exit(id); code != c.code {
			t.Errorf("%s: exit status %d", id, code)
		}
		if out := strings.ReplaceAll(p.Output(), `\"`, `"`); !strings.Contains(out, strings.ReplaceAll(c.want, `\"`, `"`)) {
			t.Errorf("%s lacks %q:\n%s", id, c.want, out)
		}
	}
	f.checkSecret(password)

	// A systemd credential has another mode, which is permitted.
	if err := os.WriteFile(filepath.Join(f.dir, "zk"), []byte("zkelectd:"+password+"\n"), 0o440); err != nil {
		t.Fatal(err)
	}
	f.env = []string{"ZKELECTD_ZOOKEEPER_AUTH_FILE=zk", "CREDENTIALS_DIRECTORY=" + f.dir, "ZKELECTD_ZOOKEEPER_ACL=open"}
	f.start("name")
	f.until("it leads", leads("name"))
	f.waitForWork("name")
	if env := read(fmt.Sprintf("/proc/%d/environ", f.child("name"))); strings.Contains(env, "CREDENTIALS") {
		t.Errorf("the child has the credentials: %q", env)
	}
	// It does not have acl: private, and warns about the ACLs of the tree.
	f.logged("name", "run 'zkelectd acl --apply'")
	if _, _, err := newFleet(t).session.Get(t.Context(), f.paths.Nodes(), false); err == nil {
		t.Error("it has opened the tree")
	}
	f.checkInvariants()
}

// Daemons, commands, the guard when it closes a session, and release all use TLS, with a client certificate.
func TestGroupOverTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := authority(t, dir, "ca")
	chain := issue(t, ca, "zk.example").Chain
	issue(t, ca, "host")
	server := zkserver.ForTest(t, zkserver.Options{TLS: &zkserver.TLS{Chain: chain, CA: ca.CA, RequireClientCert: true}})
	f := newFleet(t, server.Addr()) // the test itself does not use TLS
	f.servers = []string{server.SecureAddr()}
	file := filepath.Join(f.dir, "session")
	f.env = []string{
		"ZKELECTD_ZOOKEEPER_TLS_CA=" + ca.CA, "ZKELECTD_ZOOKEEPER_TLS_SERVER_NAME=zk.example",
		"ZKELECTD_ZOOKEEPER_TLS_CERT=host.crt", "ZKELECTD_ZOOKEEPER_TLS_KEY=host.key", "CREDENTIALS_DIRECTORY=" + dir,
	}
	f.joinWith(fmt.Sprintf("zookeeper: {session_timeout: 60s, session_file: %s-NODE}\n", file), "a", "b")
	f.submit("move", "--to", "b", "--wait")
	f.submit("reelect", "--wait")
	f.until("a leads again", leads("a"))
	syscall.Kill(f.daemon("a"), syscall.SIGKILL)
	f.logged("a", "closed the dead daemon's session")
	f.until("a leads once more", leads("a"))
	// A certificate that was replaced by one that soon expires is a problem.
	c, err := ca.Issue("host", time.Now().Add(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	out, err := f.run("doctor", "--config", f.file("b"))
	if want := "zookeeper.tls.cert: " + c.Cert + " expires at "; !strings.Contains(out, want) {
		t.Errorf("%v\n%s\nlacks %s", err, out, want)
	}
	f.until("the problem is shown", func(g status.Group) bool {
		return strings.Contains(strings.Join(g.Problems, " "), "a is not ready to lead: zookeeper.tls.cert: "+c.Cert+" expires at ")
	})
	f.crash("a")
	f.releasesSession(file + "-a") // it has only the session file
	f.until("b leads", leads("b"))
	f.env = append(f.env, "ZKELECTD_ZOOKEEPER_TLS_SERVER_NAME=other.example", "ZKELECTD_ZOOKEEPER_CONNECT_TIMEOUT=1s")
	f.failsWith("set zookeeper.tls.server_name to one that it contains", "status")
	f.configure("c", "dc1", 1, "")
	f.start("c")
	if code := f.exit("c"); code != 1 {
		t.Errorf("exit status %d", code)
	}
	f.logged("c", "other.example")
	f.checkInvariants()
}
