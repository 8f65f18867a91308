package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/status"
)

// Changed credentials are applied without a configuration file, as in a container, and without a signal.
func TestChangedCredentialsAreApplied(t *testing.T) {
	t.Parallel()
	f := newClosedFleet(t, zkstore.ACLPrivate)
	f.env = append(f.env, "ZKELECTD_ZOOKEEPER_ACL=private", "ZKELECTD_RELOAD_WATCH=true", "LEDGER="+f.ledgerFile(), "ZKELECTD_CHILD_STOP_TIMEOUT=1s")
	f.start("a", "--zk", strings.Join(f.servers, ","), "--root", f.paths.Root, "--id", "a", "--session-timeout", "20s", "--", "ledger-child")
	f.until("a leads", leads("a"))
	f.waitForChild("a", 1)
	auth := filepath.Join(f.dir, "auth")
	rewritten := func(text, log string) {
		if err := os.WriteFile(auth, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f.logged("a", log)
	}
	rewritten("zkelectd:another\n", "keep a line that has, run 'zkelectd acl apply', and only then remove that line")
	rewritten("zkelectd:"+password+"\nzkelectd:another\n", "the credentials for ZooKeeper have changed")
	g := f.until("a leads on, with both", func(g status.Group) bool {
		return leads("a")(g) && len(f.snapshot().Members[0].Node.Record.Identities) == 2
	})
	if strings.Contains(strings.Join(g.Problems, " "), "older configuration") {
		t.Errorf("it is still reported as refused: %v", g.Problems)
	}
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
	if err := os.WriteFile(file, []byte("zkelectd:right\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.failsWith("zookeeper.acl is open: anyone could change", "acl", "apply")
	f.env = []string{"ZKELECTD_ZOOKEEPER_AUTH_FILE=" + file, "ZKELECTD_ZOOKEEPER_ACL=private"}
	f.failsWith("no ACL was changed: a, b would be locked out", "acl", "apply")
	f.failsWith("no ACL was changed: a, b would be locked out", "acl", "apply", "--dry-run")
	f.failsWith("must be table or json", "acl", "show", "-o", "xml")
	shown, err := f.run("acl", "show", "-o", "json")
	for _, want := range []string{`"configured": "digest:zkelectd/`, `"znode": "` + f.paths.Node("a") + `"`, `"acl": "world:anyone:cdrwa"`, `"locked_out": true`} {
		if err != nil || !strings.Contains(shown, want) {
			t.Errorf("%v: lacks %s\n%s", err, want, shown)
		}
	}
	out, err := f.run("acl", "apply", "--dry-run", "--force")
	if err != nil || !strings.Contains(out, f.paths.Current()+": would change world:anyone:cdrwa") || !strings.Contains(out, "14 of 14 znodes would get digest:zkelectd/") {
		t.Errorf("%v\n%s", err, out)
	}
	if again, err := f.run("acl", "show", "-o", "json"); err != nil || again != shown {
		t.Errorf("a dry run has changed something: %v\n%s", err, again)
	}
	table, err := f.run("acl", "show")
	if err != nil || !regexp.MustCompile(`(?m)^a +open +would be locked out *$`).MatchString(table) || !strings.Contains(table, "differs") {
		t.Errorf("%v\n%s", err, table)
	}
	f.env = append(f.env, "ZKELECTD_ZOOKEEPER_ACL=open")
	if out, err := f.run("acl", "apply", "--open"); err != nil || !strings.Contains(out, "0 znodes now have world:anyone:cdrwa") {
		t.Errorf("%v\n%s", err, out)
	}
	f.until("a leads as before", leads("a"))
}
