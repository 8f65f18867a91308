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
