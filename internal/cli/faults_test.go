package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/test/zkserver"
)

func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}

// put writes a file that only its owner can read.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func server(t *testing.T) *zkserver.Server {
	t.Helper()
	s, err := zkserver.Start(t.Context(), zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop() })
	return s
}

func TestEnsembleLosesItsLeader(t *testing.T) {
	t.Parallel()
	e, err := zkserver.StartEnsemble(t.Context(), 3, zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Stop() })
	f := newFleet(t, e.Addrs()...)
	for _, id := range []string{"a", "b", "c"} {
		f.configure(id, "dc1", 100, "zookeeper: {session_timeout: 60s}\n")
		f.start(id)
	}
	before := f.until("a leader", func(g status.Group) bool { return len(g.Members) == 3 && g.State == "READY" })
	zkLeader, err := e.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	zkLeader.Kill()
	after := f.until("the group is read again", func(g status.Group) bool { return len(g.Members) == 3 && leads(before.Leader)(g) })
	if after.Term != before.Term {
		t.Errorf("term %d, then %d", before.Term, after.Term)
	}
	f.daemons[before.Leader].signal(syscall.SIGTERM)
	f.until("another leader", func(g status.Group) bool { return g.State == "READY" && g.Leader != before.Leader })
	f.checkInvariants()
}

// Whatever an operator deletes or damages by hand, the group returns to one leader, and no daemon crashes.
func TestRecordsChangedByHand(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b", "c")
	const garbage, absurd = "\x00garbage", `{"v":1,"term":9007199254740992}`
	p := f.paths
	for _, c := range []struct {
		name string
		op   cluster.Op
	}{
		{"elected deleted", remove(p.Elected())},
		{"elected damaged", overwrite(p.Elected(), garbage)},
		{"elected in a term that no group gets to", overwrite(p.Elected(), absurd)},
		{"elected emptied", overwrite(p.Elected(), "")},
		{"the fence damaged", overwrite(p.Leader(), garbage)},
		{"the fence in a term that no group gets to", overwrite(p.Leader(), absurd)},
		{"the fence emptied", overwrite(p.Leader(), "")},
		{"current deleted", remove(p.Current())},
		{"current damaged", overwrite(p.Current(), garbage)},
		{"current emptied", overwrite(p.Current(), "")},
		{"a node's record damaged", overwrite(p.Node("b"), garbage)},
	} {
		before := f.leadership("a leadership").Elected.Record.Term
		f.write(c.op)
		after := f.leadership("one leader after: " + c.name)
		if again := c.op.Path == p.Elected() || c.op.Path == p.Leader(); again && after.Elected.Record.Term <= before {
			t.Errorf("%s: term %d, then %d", c.name, before, after.Elected.Record.Term)
		}
		f.until("all are members", func(g status.Group) bool { return g.State == "READY" && len(g.Members) == 3 })
	}
	f.checkInvariants()
}

func TestRootWithoutWritePermission(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	owner := f.session
	// An ephemeral znode can have no children, which stands in for a root without permission.
	if _, err := owner.Do(ctx, cluster.Op{Kind: cluster.OpCreate, Path: "/leaf" + strings.ReplaceAll(f.paths.Root, "/", "-"), Ephemeral: true}); err != nil {
		t.Fatal(err)
	}
	f.start("a", "--zk", shared.Addr(), "--id", "a", "--root", "/leaf"+strings.ReplaceAll(f.paths.Root, "/", "-")+"/group")
	if code := f.exit("a"); code != 1 {
		t.Errorf("exit status %d", code)
	}
	if out := f.daemons["a"].output(); !strings.Contains(out, "cannot create znode /leaf") {
		t.Errorf("output of a: %s", out)
	}
}

func TestStopTimeoutBeyondTheLeaseIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.configure("a", "dc1", 1, "child: {command: [ledger-child], stop_timeout: 10s}\n")
	f.start("a")
	if code := f.exit("a"); code != 1 {
		t.Errorf("exit status %d", code)
	}
	if out := f.daemons["a"].output(); !strings.Contains(out, "child.stop_timeout 10s does not fit the lease of 1.8s") {
		t.Errorf("output of a: %s", out)
	}
}

// docs/operations.md, The ensemble is lost with its data: the daemons recover by themselves, and the tokens keep growing.
func TestEnsembleThatLostItsData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	zk, err := zkserver.Start(t.Context(), zkserver.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { zk.Stop() })
	f := newFleet(t, zk.Addr())
	f.join("a", "b")
	f.waitForChild("a", 1)
	before := f.until("a leads", leads("a"))
	// However many transactions the new server has seen when a daemon comes back to it, this one has seen more.
	f.write(cluster.Op{Kind: cluster.OpCreate, Path: "/transactions"})
	for range 1000 {
		f.write(overwrite("/transactions", ""))
	}
	f.submit("pause", "--reason", "it will be forgotten")
	zk.Kill()
	f.logged("a", "ZooKeeper does not answer: stopping the work before the lease ends")
	// The old lease must be over before an ensemble without knowledge of it may serve.
	f.eventually("the child is dead", func() bool {
		return !slices.ContainsFunc(ledger(t, f.ledgerFile()), func(one tenure) bool { return !one.ended })
	})
	if err := os.RemoveAll(filepath.Join(dir, "data", "version-2")); err != nil {
		t.Fatal(err)
	}
	if err := zk.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	var after status.Group
	f.eventually("the group is readable again", func() bool {
		out, err := f.run("status", "-o", "json")
		after = status.Group{} // fields that are absent now must not keep their old values
		return err == nil && json.Unmarshal([]byte(out), &after) == nil && len(after.Members) == 2 && leads("a")(after)
	})
	for _, id := range []string{"a", "b"} {
		f.logged(id, "the ZooKeeper servers no longer have this session")
	}
	if after.Term <= before.Term || len(after.Requests) != 0 {
		t.Errorf("term %d after %d, requests %v", after.Term, before.Term, after.Requests)
	}
	f.waitForChild("a", 2)
	f.checkInvariants()
}

// If ZooKeeper closes the connection on each attempt to write a decision, status says which znode that is, and what to do.
func TestADecisionThatIsTooLarge(t *testing.T) {
	zk := server(t)
	f := newFleet(t, zk.Addr())
	t.Setenv("JAVA_TOOL_OPTIONS", "-Djute.maxbuffer=800 -Dzookeeper.jute.maxbuffer.extrasize=65536") // it reads its own larger log
	if err := zk.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.configure("a", "dc1", 1, "")
	f.start("a")
	want := "a is not ready to lead: as the elector it cannot write " + f.paths.Elected() + ": ZooKeeper closes the connection each time; " +
		"if the servers log 'Len error', raise jute.maxbuffer on all of them"
	f.until("the problem", func(g status.Group) bool {
		return g.Leader == "" && strings.Contains(strings.Join(g.Problems, "\n"), want)
	})
	f.logged("a", "raise jute.maxbuffer on all servers")
}
