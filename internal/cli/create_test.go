package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
)

// startAsUsual starts a daemon that may create no group, with a state directory.
func (f *fleet) startAsUsual(id string) {
	f.t.Helper()
	cmd := exec.Command("zkelectd", "run", "--config", f.file(id))
	cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+f.stateDir(id))
	mkdir(f.t, f.stateDir(id))
	f.startCommand(id, cmd)
}

func (f *fleet) stateDir(id string) string { return filepath.Join(f.dir, id+".state") }

// exists reports whether a znode exists.
func (f *fleet) exists(znode string) bool {
	f.t.Helper()
	_, _, err := f.session.Get(f.t.Context(), znode, false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		f.t.Fatal(err)
	}
	return err == nil
}

// deleteTree deletes a znode with all znodes below it.
func (f *fleet) deleteTree(znode string) {
	f.t.Helper()
	names, _, err := f.session.Children(f.t.Context(), znode, false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		f.t.Fatal(err)
	}
	for _, name := range names {
		f.deleteTree(znode + "/" + name)
	}
	f.write(cluster.Op{Kind: cluster.OpDelete, Path: znode, Version: cluster.AnyVersion})
}

// A host does not create a group that it has never been in: it waits until init has done so. One that has been in it does, also after a restart
// without a server that knows the group.
func TestAGroupIsNotCreatedByChance(t *testing.T) {
	t.Parallel()
	f := openFleet(t, fmt.Sprintf("/groups/g%d", groups.Add(1)))
	f.configure("a", "dc1", 100, "")
	f.startAsUsual("a")
	missing := "there is no group at " + f.paths.Root + " on " + f.servers[0]
	f.logged("a", "level=ERROR msg=\"this host takes no part in the group\"")
	f.logged("a", missing)
	if f.exists(f.paths.Root) {
		t.Error("the daemon has created the root")
	}
	f.succeedsWith("warning: new: "+missing, "check", "--config", f.file("a"))
	f.logged("a", "'zkelectd init --config "+f.file("a")+"' once")
	out, err := zkelectd("init", "--config", f.file("a"), "--zk", f.servers[0]+",127.0.0.1:1")
	if err == nil || !strings.Contains(out, "nothing was created at "+f.paths.Root+": only 1 of 2 servers are known to be of one ensemble") {
		t.Errorf("init with a server that does not answer: %v: %s", err, out)
	}
	if out, err := zkelectd("init", "--config", f.file("a")); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, _ = zkelectd("init", "--config", f.file("a"), "--zk", f.servers[0]+",127.0.0.1:1")
	if strings.Contains(out, "nothing was created") { // there is nothing to create any more
		t.Errorf("init of a group that exists: %s", out)
	}
	f.until("a leads", leads("a"))
	f.waitForChild("a", 1)
	f.stop("a")
	f.deleteTree(f.paths.Root)
	f.configure("b", "dc1", 90, "")
	f.startAsUsual("b")
	f.logged("b", missing)
	f.startAsUsual("a")
	f.until("a leads again", leads("a"))
	f.logged("a", "creating the group, as these servers have none")
	f.waitForChild("a", 2)
	f.until("b has joined", func(g status.Group) bool { return len(g.Members) == 2 && leads("a")(g) })
	f.checkInvariants()
}

// A job does not create its group either.
func TestAJobIsNotCreatedByChance(t *testing.T) {
	t.Parallel()
	f := openFleet(t, fmt.Sprintf("/groups/g%d", groups.Add(1)))
	job := f.exec("n1", `echo run >>"$RUNS"`)
	if code := f.exit("n1"); code != 125 || !strings.Contains(job.Output(), "there is no group at "+f.paths.Root) {
		t.Errorf("exit status %d:\n%s", code, job.Output())
	}
	if f.exists(f.paths.Root) || f.countRuns("run") != 0 {
		t.Error("the job was run, or its root created")
	}
}

// Check says which groups are new, and creates nothing: a mistyped root would start the work a second time.
func TestCheckSaysWhatIsNew(t *testing.T) {
	t.Parallel()
	base := fmt.Sprintf("/estates/e%d", groups.Add(1))
	f := openFleet(t, base+"/billing")
	check := func(root string, isNew bool, texts ...string) {
		t.Helper()
		out, err := zkelectd("check", "--zk", f.servers[0], "--root", root, "--", "sleep", "1")
		if err != nil || strings.Contains(out, "warning: new: there is no group at "+root+" on "+f.servers[0]) != isNew {
			t.Errorf("%s: %v\n%s", root, err, out)
		}
		for _, text := range texts {
			if !strings.Contains(out, text) {
				t.Errorf("%s: want %q:\n%s", root, text, out)
			}
		}
	}
	check(f.paths.Root, true)
	if err := store.EnsureIdentity(t.Context(), f.session, base, "billing", cluster.Identity{Root: f.paths.Root, Kind: cluster.KindSingle}); err != nil {
		t.Fatal(err)
	}
	check(f.paths.Root, false)
	check(base+"/biling", true, " (is "+f.paths.Root+" meant?): a host that has never been in it does not create it")
	check(base+"/other", true, f.servers[0]+": a host that has never been in it does not create it")
	if _, _, err := f.session.Get(t.Context(), base+"/biling", false); err == nil {
		t.Error("check has created the group")
	}
}
