package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/test/faultproxy"
)

// allOfLeadership deletes leader and the znodes below it in one transaction.
func (f *fleet) allOfLeadership() []cluster.Op {
	return []cluster.Op{remove(f.paths.Current()), remove(f.paths.Elected()), remove(f.paths.Leader())}
}

// Missing znodes do not prove that there is no leader: a new group waits once, and logs that.
func TestTheFirstLeaderOfAFreshGroupWaits(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.paths.Root += "-fresh"
	f.startLeader("a", "")
	f.logged("a", "there is no record of an earlier leader: the first leader waits 2.45s for a lease that may still be running; 'zkelectd init' on a new group avoids this")
	f.logged("a", "now lease-wait")
	if n := strings.Count(f.daemons["a"].Output(), "there is no record of an earlier leader"); n != 1 {
		t.Errorf("it logs it %d times", n)
	}
	f.failsWith("is in use, or has been: znode "+f.paths.Election()+" has 1 incarnations", "init")
	f.checkInvariants()
}

func TestInit(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.paths.Root += "-new"
	f.succeedsWith("the group "+f.paths.Root+" is initialized: its first leader need not wait", "init")
	for range 2 { // there is nothing left to do
		f.succeedsWith("the group "+f.paths.Root+" was initialized before, and is left as it is: it has had no leader yet", "init")
	}
	f.succeedsWith(`"existed": true`, "init", "-o", "json")
	mistyped := f.paths.Root + "w"
	if out, err := zkelectd("init", "--zk", f.servers[0], "--root", mistyped); err != nil || !strings.Contains(out, fmt.Sprintf(
		"warning: there is a group at %s as well: if that one is meant, correct zookeeper.root, and remove this one with 'zkelectd group delete --root %s'", f.paths.Root, mistyped)) {
		t.Errorf("a similar root: %v, %s", err, out)
	}
	f.startLeader("a", "")
	f.waitForChild("a", 1)
	f.stop("a")
	if out := f.daemons["a"].Output(); strings.Contains(out, "lease-wait") {
		t.Errorf("it waits although the group was initialized:\n%s", out)
	}
	for _, want := range []string{"znode " + f.paths.Elected() + " exists", "znode " + f.paths.Leader() + " holds term ", "Just start its daemons"} {
		f.failsWith(want, "init")
	}
	f.checkInvariants()
}

// A record of a newer version stays as it is, whatever happens to the leader.
func TestALeadershipOfANewerVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	const newer = `{"v":3,"term":7,"state":"RELEASED","later":true}`
	f := newFleet(t)
	f.join("a", "b")
	for _, c := range []struct {
		path  string
		known int
		named []string // by whose logs: only the elector and the elected member, a, read the other records
	}{
		{f.paths.Elected(), 1, []string{"a", "b"}},
		{f.paths.Leader(), 2, []string{"a"}},
		{f.paths.Current(), 1, []string{"a"}},
	} {
		f.until("a leads", leads("a"))
		f.waitForWork("a")
		f.write(overwrite(c.path, newer))
		for _, id := range c.named {
			f.logged(id, "a record has a newer format")
			f.logged(id, "reason=\"znode "+c.path+" has format version 3")
		}
		g := f.until("status shows it", func(g status.Group) bool { return len(g.Problems) > 0 })
		if want := fmt.Sprintf("znode %s has format version 3, this zkelectd reads up to %d: upgrade this host, or stop its daemon", c.path, c.known); !strings.Contains(g.Problems[0], want) {
			t.Errorf("problems %q", g.Problems)
		}
		if c.path == f.paths.Current() { // its owner may have ended, and the record with it
			break
		}
		closed := func() int { return strings.Count(f.daemons["b"].Output(), "closed the dead daemon's session") }
		before := closed()
		syscall.Kill(f.daemon("b"), syscall.SIGKILL) // a new session checks the record as well
		f.eventually("b's session is closed", func() bool { return closed() > before })
		f.until("b is back", func(g status.Group) bool { return len(g.Members) == 2 })
		data, _, err := f.session.Get(context.Background(), c.path, false)
		if err != nil || string(data) != newer {
			t.Errorf("it was overwritten: %s, %v", data, err)
		}
		f.write(overwrite(c.path, "damaged")) // which any elector may repair
		f.waitForWork(f.leadership("a leadership again").Elected.Record.Node)
	}
	f.checkInvariants()
}

func TestRepair(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	if out, err := f.run("repair"); err != nil || out != "nothing is damaged\n" {
		t.Errorf("%v: %s", err, out)
	}
	f.configure("b", "dc1", 500, "policy: {sites: {dc1: 7}}\n")
	f.eventually("a history", func() bool { _, _, err := f.session.Get(t.Context(), f.paths.History(), false); return err == nil })
	f.write(overwrite(f.paths.Policy(), "garbage"), overwrite(f.paths.History(), "garbage"),
		cluster.Op{Kind: cluster.OpCreate, Path: f.paths.Control(), Data: []byte("garbage")})
	f.failsWith(f.hint("'zkelectd repair policy --config /etc/zkelectd.yaml'"), "policy", "--apply", f.file("b"))
	control := strings.TrimSuffix(f.hint("'zkelectd repair control'"), "'") + " --" // and where the group is
	f.failsWith(control, "resume")
	f.failsWith(control, "reelect")
	problems := strings.Join(f.until("a status", func(status.Group) bool { return true }).Problems, "\n")
	for _, want := range []string{"policy does not replace a healthy leader", f.hint("'zkelectd repair policy'"), f.hint("'zkelectd repair control'")} {
		if !strings.Contains(problems, want) {
			t.Errorf("status does not say %q: %s", want, problems)
		}
	}
	f.failsWith("name the file that has the policy", "repair", "policy")
	f.failsWith(`there is no record "nodes"`, "repair", "nodes")
	for _, want := range []string{"control: znode " + f.paths.Control(), "would be emptied", "would be replaced by the policy of the configuration"} {
		f.succeedsWith(want, "repair", "policy", "control", "--dry-run", "--file", f.file("b"))
	}
	if s := f.snapshot(); s.Policy.Err == nil || s.Control.Err == nil {
		t.Error("--dry-run repairs")
	}
	f.succeedsWith("control: ", "repair", "--file", f.file("b"))
	if s := f.snapshot(); !s.Policy.Readable() || s.Policy.Record.Rules.Sites["dc1"] != 7 || s.Policy.Record.Revision < 2 || !s.Control.Readable() {
		t.Errorf("policy %+v, control %+v", s.Policy, s.Control)
	}
	f.submit("reelect")
	f.succeedsWith("", "history")
	f.write(overwrite(f.paths.Control(), `{"v":2}`))
	f.failsWith("not repaired: control: upgrade this host", "repair")
	f.checkInvariants()
}

// The elector replaces a damaged history by itself, and leaves a history of a newer version alone.
func TestADamagedHistoryIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	read := func() string {
		data, _, err := f.session.Get(t.Context(), f.paths.History(), false)
		if err != nil {
			return ""
		}
		return string(data)
	}
	f.eventually("a history", func() bool { return read() != "" })
	move := func(to string) {
		t.Helper()
		f.submit("move", "--to", to, "--wait")
	}
	f.write(overwrite(f.paths.History(), "garbage"))
	move("b")
	f.eventually("a new history is started", func() bool { return strings.Contains(read(), `"node":"b"`) })
	const newer = `{"v":2,"terms":"many"}`
	f.write(overwrite(f.paths.History(), newer))
	move("a")
	elector := f.until("a status", func(status.Group) bool { return true }).Elector
	f.logged(elector, "cannot write the history; retrying")
	if got := read(); got != newer {
		t.Errorf("it was overwritten: %s", got)
	}
	f.checkInvariants()
}

// After all znodes of the group were deleted at once, under a leader that is cut off, all daemons register again, and
// no work starts before the old work is dead.
func TestTheWholeTreeIsDeleted(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	l := newLink(t, shared.Addr())
	f.pair(l, "session_timeout: 4s", "plain")
	s := f.snapshot()
	l.SetMode(faultproxy.Refuse)
	ops := []cluster.Op{remove(f.paths.Current()), remove(f.paths.Elected()), remove(f.paths.Leader()), remove(f.paths.Policy())}
	for _, m := range s.Members {
		ops = append(ops, remove(f.paths.Incarnation(m.Name)), remove(f.paths.Node(m.ID)))
	}
	f.write(append(ops, remove(f.paths.Election()), remove(f.paths.Nodes()))...)
	g := f.until("a leadership again, in a newer term", func(g status.Group) bool {
		return g.State == string(cluster.CurrentReady) && g.Term > s.Elected.Record.Term && g.Next == ""
	})
	f.waitForWork(g.Leader)
	l.SetMode(faultproxy.Pass)
	f.until("both are back", func(g status.Group) bool { return len(g.Members) == 2 })
	f.checkInvariants()
}

// Each trace of an earlier use is found by itself.
func TestInitRefusesAGroupThatIsInUse(t *testing.T) {
	t.Parallel()
	create := func(path, data string) cluster.Op {
		return cluster.Op{Kind: cluster.OpCreate, Path: path, Data: []byte(data)}
	}
	for name, op := range map[string]func(p cluster.Paths) cluster.Op{
		"incarnation": func(p cluster.Paths) cluster.Op { return create(p.Incarnation("a-0000000000000001-n_0000000001"), "") },
		"node":        func(p cluster.Paths) cluster.Op { return create(p.Node("a"), "x") },
		"elected":     func(p cluster.Paths) cluster.Op { return create(p.Elected(), "x") },
		"current":     func(p cluster.Paths) cluster.Op { return create(p.Current(), "x") },
		"history":     func(p cluster.Paths) cluster.Op { return create(p.History(), "x") },
		"roster":      func(p cluster.Paths) cluster.Op { return create(p.Roster(), "x") },
		"fence":       func(p cluster.Paths) cluster.Op { return overwrite(p.Leader(), `{"v":1,"term":7,"state":"RELEASED"}`) },
		"emptied":     func(p cluster.Paths) cluster.Op { return overwrite(p.Leader(), "") },
		"newer":       func(p cluster.Paths) cluster.Op { return overwrite(p.Leader(), `{"v":3}`) },
	} {
		f := newFleet(t)
		f.paths.Root += "-used"
		if err := store.EnsureTree(t.Context(), f.session, f.paths); err != nil {
			t.Fatal(err)
		}
		f.write(op(f.paths))
		var in *cluster.InUseError
		if err := store.Init(t.Context(), f.session, f.paths, "the test"); !errors.As(err, &in) || len(in.Found) != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
