package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/zkserver"
)

func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
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

// A restart of ZooKeeper within the lease changes nothing while the session survives.
func TestZooKeeperRestartWithinTheLease(t *testing.T) {
	t.Parallel()
	zk := server(t)
	f := newFleet(t, zk.Addr())
	for _, id := range []string{"a", "b"} {
		f.configure(id, "dc1", 100, "zookeeper: {session_timeout: 60s}\n")
		f.start(id)
	}
	before := f.until("a leader", func(g status.Group) bool { return len(g.Members) == 2 && g.State == "READY" })
	f.waitForChild(before.Leader, 1)
	tenures := len(ledger(t, f.ledgerFile()))
	zk.Kill()
	if err := zk.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := f.until("the group is read again", leads(before.Leader))
	if after.Term != before.Term || len(after.Members) != 2 {
		t.Errorf("term %d, then %d with %d members", before.Term, after.Term, len(after.Members))
	}
	if all := f.checkInvariants(); len(all) != tenures || all[tenures-1].ended {
		t.Errorf("tenures %+v", all)
	}
}

// Without ZooKeeper the child is dead by the end of the lease. The daemon recovers by itself.
func TestLostZooKeeperEndsTheLease(t *testing.T) {
	t.Parallel()
	zk := server(t)
	f := newFleet(t, zk.Addr())
	f.join("a")
	f.waitForChild("a", 1)
	zk.Pause()
	lost := boottime.Now()
	f.logged("a", "child ended")
	zk.Resume()
	f.waitForChild("a", 2)
	f.until("a leads again", leads("a"))
	all := f.checkInvariants()
	// The lease of 1.8 s began before the loss; the rest allows for a slow machine.
	if over := time.Duration(all[0].end) - lost; over > 2200*time.Millisecond {
		t.Errorf("the child worked on for %s without ZooKeeper", over)
	}
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
	garbage := func(path string) cluster.Op {
		return cluster.Op{Kind: cluster.OpSet, Path: path, Version: cluster.AnyVersion, Data: []byte("\x00garbage")}
	}
	remove := func(path string) cluster.Op {
		return cluster.Op{Kind: cluster.OpDelete, Path: path, Version: cluster.AnyVersion}
	}
	absurd := func(path string) cluster.Op {
		return cluster.Op{Kind: cluster.OpSet, Path: path, Version: cluster.AnyVersion, Data: []byte(`{"v":1,"term":9007199254740992}`)}
	}
	empty := func(path string) cluster.Op {
		return cluster.Op{Kind: cluster.OpSet, Path: path, Version: cluster.AnyVersion}
	}
	p := f.paths
	incarnation := func() string {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		names, _, err := f.session.Children(ctx, p.Election(), false)
		if err != nil {
			t.Fatal(err)
		}
		in, _ := cluster.ParseIncarnations(names)
		for _, i := range in {
			if i.ID == "a" {
				return p.Incarnation(i.Name)
			}
		}
		t.Fatal("a has no incarnation")
		return ""
	}
	for _, c := range []struct {
		name string
		op   cluster.Op
	}{
		{"elected deleted", remove(p.Elected())},
		{"elected damaged", garbage(p.Elected())},
		{"elected in a term that no group gets to", absurd(p.Elected())},
		{"elected emptied", empty(p.Elected())},
		{"the fence damaged", garbage(p.Leader())},
		{"the fence emptied", empty(p.Leader())},
		{"current deleted", remove(p.Current())},
		{"current damaged", garbage(p.Current())},
		{"policy damaged", garbage(p.Policy())},
		{"policy deleted", remove(p.Policy())},
		{"a node's record damaged", garbage(p.Node("b"))},
		{"the leader's incarnation deleted", remove(incarnation())},
	} {
		if strings.Contains(c.name, "incarnation") {
			f.until("a leads", leads("a"))
			c.op = remove(incarnation())
		}
		f.write(c.op)
		f.until("one leader after: "+c.name, func(g status.Group) bool {
			return g.State == "READY" && len(g.Members) == 3
		})
	}
	f.until("the end of all that", func(g status.Group) bool { return g.State == "READY" && len(g.Members) == 3 })
	f.checkInvariants()
}

func TestRegistrationDeletedByHand(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	f.write(cluster.Op{Kind: cluster.OpDelete, Path: f.paths.Node("a"), Version: cluster.AnyVersion})
	f.until("a leads again, registered anew", func(g status.Group) bool {
		return leads("a")(g) && len(g.Members) == 2 && g.Elector == "b"
	})
	f.checkInvariants()
}

func TestUnreachableZooKeeper(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("a", "--zk", "127.0.0.1:1", "--id", "a", "--connect-timeout", "1s")
	if code := f.exit("a"); code != 1 {
		t.Errorf("exit status %d", code)
	}
	if out := f.daemons["a"].output(); !strings.Contains(out, "no ZooKeeper server answers: 127.0.0.1:1") {
		t.Errorf("output of a: %s", out)
	}
	f.start("b", "--zk", "127.0.0.1:1", "--id", "b")
	f.logged("b", "still trying")
	f.daemons["b"].signal(syscall.SIGTERM)
	if code := f.exit("b"); code != 0 {
		t.Errorf("exit status %d", code)
	}
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

// Without child.stop_timeout a short session timeout is no reason to refuse to start: the stop timeout follows from what the
// server grants.
func TestStopTimeoutFollowsTheLease(t *testing.T) {
	t.Parallel()
	for session, stop := range map[string]string{"3s": "1.12s", "4s": "1.5s"} {
		t.Run(session, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.configure("a", "dc1", 1, fmt.Sprintf("zookeeper: {session_timeout: %s}\nchild: {command: [ledger-child], env: {LEDGER: LEDGERFILE, MODE: ignore-term}}\n", session))
			f.start("a")
			f.until("a leads", leads("a"))
			f.logged("a", "session timeout "+session+" (negotiated)")
			f.logged("a", "stop timeout "+stop+", ")
			f.daemons["a"].signal(syscall.SIGTERM)
			if code := f.exit("a"); code != 0 {
				t.Errorf("exit status %d", code)
			}
			f.checkInvariants()
		})
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
	if out, err := f.run("pause", "--reason", "it will be forgotten"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
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
