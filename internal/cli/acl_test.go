package cli

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/zk"
)

// Changed credentials are applied without a configuration file, as in a container, and without a signal.
func TestChangedCredentialsAreApplied(t *testing.T) {
	t.Parallel()
	f := newClosedFleet(t, zk.ACLPrivate)
	f.env = append(f.env, "ZKELECTD_ZOOKEEPER_ACL=private", "ZKELECTD_RELOAD_WATCH=true", "LEDGER="+f.ledgerFile(), "ZKELECTD_CHILD_STOP_TIMEOUT=1s")
	f.start("a", "--zk", strings.Join(f.servers, ","), "--root", f.paths.Root, "--id", "a", "--session-timeout", "20s", "--", "ledger-child")
	f.until("a leads", leads("a"))
	f.waitForChild("a", 1)
	auth := filepath.Join(f.dir, "auth")
	rewritten := func(text, log string) {
		put(t, auth, text)
		f.logged("a", log)
	}
	rewritten("zkelectd:another\n", "keep a line that has, run 'zkelectd acl --apply', and only then remove that line")
	rewritten("zkelectd:"+password+"\nzkelectd:another\n", "the credentials for ZooKeeper have changed")
	f.until("a leads on, with both, and nothing is refused any more", func(g status.Group) bool {
		return leads("a")(g) && len(f.snapshot().Members[0].Node.Record.Identities) == 2 &&
			!strings.Contains(strings.Join(g.Problems, " "), "older configuration")
	})
	f.checkSecret(password)
	if all := f.checkInvariants(); len(all) != 1 {
		t.Errorf("invariants: got %+v", all)
	}
}

func TestACLCommand(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	f.until("b is the heir", func(g status.Group) bool { return g.Heir == "b" })
	file := filepath.Join(f.dir, "auth")
	put(t, file, "zkelectd:right\n")
	f.failsWith("zookeeper.acl is open: anyone could change", "acl", "--apply")
	f.env = []string{"ZKELECTD_ZOOKEEPER_AUTH_FILE=" + file, "ZKELECTD_ZOOKEEPER_ACL=private"}
	f.failsWith("no ACL was changed: a, b would be locked out", "acl", "--apply")
	f.failsWith("no ACL was changed: a, b would be locked out", "acl", "--apply", "--dry-run")
	f.failsWith("must be table or json", "acl", "-o", "xml")
	shown, err := f.run("acl", "-o", "json")
	for _, want := range []string{`"configured": "digest:zkelectd/`, `"znode": "` + f.paths.Node("a") + `"`, `"acl": "world:anyone:cdrwa"`, `"locked_out": true`} {
		if err != nil || !strings.Contains(shown, want) {
			t.Errorf("%v: lacks %s\n%s", err, want, shown)
		}
	}
	out, err := f.run("acl", "--apply", "--dry-run", "--force")
	if err != nil || !strings.Contains(out, f.paths.Current()+": would change world:anyone:cdrwa") || !strings.Contains(out, "17 of 17 znodes would get digest:zkelectd/") {
		t.Errorf("%v\n%s", err, out)
	}
	if again, err := f.run("acl", "-o", "json"); err != nil || again != shown {
		t.Errorf("a dry run has changed something: %v\n%s", err, again)
	}
	table, err := f.run("acl")
	if err != nil || !regexp.MustCompile(`(?m)^a +open +would be locked out *$`).MatchString(table) || !strings.Contains(table, "differs") {
		t.Errorf("%v\n%s", err, table)
	}
	f.env = append(f.env, "ZKELECTD_ZOOKEEPER_ACL=open")
	f.succeedsWith("0 znodes now have world:anyone:cdrwa", "acl", "--apply", "--open")
	f.until("a leads as before", leads("a"))
}

// With acl: private, nobody takes part in a group whose root somebody else may have created: neither a daemon, nor a job, which a
// planted leader would make believe that another host runs it.
func TestAPlantedRootIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t) // its znodes are open
	const incarnation = "evil-0000000000000001-n_0000000000"
	f.write(
		cluster.Op{Kind: cluster.OpSet, Path: f.paths.Leader(), Version: cluster.AnyVersion, Data: cluster.Encode(&cluster.Fence{
			Term: 7, Node: "evil", Site: "dc1", Incarnation: incarnation, Session: f.session.SessionID(), State: cluster.FenceReady,
		})},
		cluster.Op{Kind: cluster.OpCreate, Path: f.paths.Incarnation(incarnation), Ephemeral: true},
		cluster.Op{Kind: cluster.OpCreate, Path: f.paths.Current(), Ephemeral: true, Data: cluster.Encode(&cluster.Current{
			Term: 7, Node: "evil", Site: "dc1", Incarnation: incarnation, State: cluster.CurrentReady,
		})},
	)
	auth := filepath.Join(f.dir, "auth")
	put(t, auth, "zkelectd:right\n")
	f.env = []string{"ZKELECTD_ZOOKEEPER_AUTH_FILE=" + auth, "ZKELECTD_ZOOKEEPER_ACL=private"}
	want := "znode " + f.paths.Root + " was not created by this group, or not with this zookeeper.acl: its ACL is world:anyone:cdrwa"
	f.configure("a", "dc1", 100, "")
	f.startWith(f.env, "a", "--config", f.file("a"))
	if code := f.exit("a"); code != 1 || !strings.Contains(f.daemons["a"].Output(), want) {
		t.Errorf("the daemon: exit status %d\n%s", code, f.daemons["a"].Output())
	}
	job := f.execCommand("b", `echo run >>"$RUNS"`)
	job.Env = append(job.Env, f.env...)
	f.startCommand("b", job)
	if code := f.exit("b"); code != statusNotRun || !strings.Contains(f.daemons["b"].Output(), want) || f.countRuns("run") > 0 {
		t.Errorf("the job: exit status %d\n%s", code, f.daemons["b"].Output())
	}
}

// Closing an open tree takes several steps. A member that registers anew between them goes on, or an interruption of ZooKeeper would leave
// the group without a leader until the last step. A daemon that is new to the group refuses it.
func TestATreeIsClosedWhileAMemberRegistersAnew(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	auth := filepath.Join(f.dir, "auth")
	put(t, auth, "zkelectd:right\n")
	configure := func(id, acl string) {
		f.configure(id, "dc1", 100, fmt.Sprintf("zookeeper: {auth: {file: %s}, acl: %s, session_timeout: 4s}\n", auth, acl))
	}
	configure("a", "open")
	f.start("a")
	f.until("a leads", leads("a"))
	configure("a", "private")
	f.reload("a")
	f.until("a creates private znodes", func(status.Group) bool {
		return f.snapshot().Members[0].Node.Record.ACL == string(zk.ACLPrivate)
	})
	f.write(remove(f.paths.Node("a")))
	f.logged("a", "the root is still open")
	f.eventually("a leads again", func() bool { return strings.Count(f.daemons["a"].Output(), `msg="now leading"`) == 2 })
	configure("b", "private")
	f.start("b")
	if code := f.exit("b"); code != 1 || !strings.Contains(f.daemons["b"].Output(), "was not created by this group") {
		t.Errorf("exit status %d\n%s", code, f.daemons["b"].Output())
	}
	f.succeedsWith("", "acl", "--apply", "--config", f.file("a"))
	f.start("b")
	f.logged("b", "msg=registered")
	f.checkInvariants()
}
