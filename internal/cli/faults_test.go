package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

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

func server(t *testing.T) *zkserver.Server {
	t.Helper()
	return serverWith(t, zkserver.Options{})
}

func serverWith(t *testing.T, opt zkserver.Options) *zkserver.Server {
	t.Helper()
	s, err := zkserver.Start(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop() })
	return s
}

// Another leader of ZooKeeper moves nobody.
func TestEnsembleLosesItsLeader(t *testing.T) {
	t.Parallel()
	e, err := zkserver.StartEnsemble(t.Context(), 3, zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Stop() })
	f := newFleet(t, e.Addrs()...)
	f.joinWith("zookeeper: {session_timeout: 60s}\n", "a", "b", "c")
	before := f.until("a leader", leads("a"))
	zkLeader, err := e.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	zkLeader.Kill()
	after := f.until("the group is read again", func(g status.Group) bool { return len(g.Members) == 3 && leads(before.Leader)(g) })
	if after.Term != before.Term {
		t.Errorf("term %d, then %d", before.Term, after.Term)
	}
	f.daemons[before.Leader].Signal(syscall.SIGTERM)
	f.until("another leader", func(g status.Group) bool { return g.State == "READY" && g.Leader != before.Leader })
	f.checkInvariants()
}

// Whatever an operator damages by hand, the group returns to one leader, and no daemon crashes; see also
// [TestLeadershipWipedUnderAChildThatIgnoresTerm].
func TestRecordsChangedByHand(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.joinWith("election: {exclusion: 1s}\npolicy: {failback: manual}\n", "a", "b", "c") // nobody preempts between two changes
	const garbage, absurd = "\x00garbage", `{"v":1,"term":9007199254740992}`
	p := f.paths
	replace := func(with cluster.Op) []cluster.Op { // whatever takes the place of current, another leadership begins
		with.Kind, with.Path = cluster.OpCreate, p.Current()
		return []cluster.Op{remove(p.Current()), with}
	}
	only := func(op cluster.Op) func([]byte) []cluster.Op {
		return func([]byte) []cluster.Op { return []cluster.Op{op} }
	}
	for _, c := range []struct {
		name  string
		ops   func(current []byte) []cluster.Op
		again bool // another term begins
	}{
		{"elected damaged", only(overwrite(p.Elected(), garbage)), true},
		{"elected in a term that no group gets to", only(overwrite(p.Elected(), absurd)), true},
		{"elected emptied", only(overwrite(p.Elected(), "")), true},
		{"the fence damaged", only(overwrite(p.Leader(), garbage)), true},
		{"the fence in a term that no group gets to", only(overwrite(p.Leader(), absurd)), true},
		{"all deleted", func([]byte) []cluster.Op { return f.allOfLeadership() }, true},
		{"current damaged", only(overwrite(p.Current(), garbage)), false},
		{"current emptied", only(overwrite(p.Current(), "")), false},
		{"current copied", func(current []byte) []cluster.Op { return replace(cluster.Op{Data: current}) }, true},
		{"current replaced by an empty one", func([]byte) []cluster.Op { return replace(cluster.Op{}) }, true},
		{"current replaced by junk", func([]byte) []cluster.Op { return replace(cluster.Op{Data: []byte(garbage)}) }, true},
		{"current of another session", func(current []byte) []cluster.Op {
			return replace(cluster.Op{Data: current, Ephemeral: true})
		}, true},
		{"a node's record damaged", only(overwrite(p.Node("b"), garbage)), false},
	} {
		before, elections := f.leadership("a leadership"), f.elections()
		began := time.Now()
		f.write(c.ops(cluster.Encode(&before.Current.Record))...)
		after := f.leadership("one leader after: " + c.name)
		if took := time.Since(began); took > 15*time.Second && c.name == "all deleted" {
			t.Errorf("%s: the group was without a leader for %s", c.name, took)
		}
		if term := before.Elected.Record.Term; c.again && after.Elected.Record.Term <= term {
			t.Errorf("%s: term %d, then %d", c.name, term, after.Elected.Record.Term)
		}
		f.until("all are members", func(g status.Group) bool { return g.State == "READY" && len(g.Members) == 3 })
		if n := f.elections() - elections; n > 5*len(f.daemons) {
			t.Errorf("%s: %d elections", c.name, n)
		}
	}
	f.waitForWork(f.leadership("a leadership").Elected.Record.Node)
	f.checkInvariants()
}

// elections returns how many decisions the daemons have logged.
func (f *fleet) elections() (n int) {
	for _, p := range f.daemons {
		n += strings.Count(p.Output(), "msg=electing")
	}
	return n
}

func TestRootWithoutWritePermission(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	// An ephemeral znode can have no children, which stands in for a root without permission.
	leaf := "/leaf" + strings.ReplaceAll(f.paths.Root, "/", "-")
	f.write(cluster.Op{Kind: cluster.OpCreate, Path: leaf, Ephemeral: true})
	f.paths.Root = leaf + "/group"
	f.failsWith("cannot create znode /leaf", "run", "--create", "--no-child", "--id", "a")
}

// docs/operations.md, The ensemble is lost with its data: the daemons recover by themselves, and the tokens keep growing.
func TestEnsembleThatLostItsData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	zk := serverWith(t, zkserver.Options{Dir: dir})
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
