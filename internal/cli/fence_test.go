package cli

import (
	"fmt"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

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
	f.failsWith(f.command("'zkelectd repair policy --config /etc/zkelectd.yaml'"), "policy", "--apply", f.file("b"))
	control := strings.TrimSuffix(f.command("'zkelectd repair control'"), "'") + " --" // and where the group is
	f.failsWith(control, "resume")
	f.failsWith(control, "reelect")
	problems := strings.Join(f.until("a status", func(status.Group) bool { return true }).Problems, "\n")
	for _, want := range []string{"policy does not replace a healthy leader", f.command("'zkelectd repair policy'"), f.command("'zkelectd repair control'")} {
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
