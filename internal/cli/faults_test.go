package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

// docs/operations.md, The ensemble is lost with its data: the daemons recover by themselves, and the tokens keep growing.
func TestEnsembleThatLostItsData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	zk := zkserver.ForTest(t, zkserver.Options{Dir: dir})
	f := newFleet(t, zk.Addr())
	f.join("a", "b")
	f.waitForChild("a", 1)
	before := f.until("a leads", leads("a"))
	// However many transactions the new server has seen when a daemon comes back to it, this one has seen more.
	f.write(cluster.Op{Kind: cluster.OpCreate, Path: "/transactions"})
	for range 1000 {
		f.write(overwrite("/transactions", ""))
	}
	// Nor does a daemon know of them before it has had a reply since, and b gets one as it reads the heir.
	var heir []byte
	f.eventually("an heir is published", func() bool {
		var err error
		heir, _, err = f.session.Get(t.Context(), f.paths.Heir(), false)
		return err == nil
	})
	f.write(overwrite(f.paths.Heir(), string(heir)))
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
	zk := zkserver.ForTest(t, zkserver.Options{})
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
