package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
)

// hostDaemon writes the configuration of a daemon for many groups with the node id, and starts it. One group is the fleet's own.
func (f *fleet) hostDaemon(id, base string, priority int) (groupFile string) {
	f.t.Helper()
	dir := filepath.Join(f.dir, id+".d")
	mkdir(f.t, dir)
	write := func(name, text string) string {
		put(f.t, name, text)
		return name
	}
	main := write(filepath.Join(f.dir, id+"-host.yaml"), fmt.Sprintf(
		"node: {id: %s, site: dc1, priority: %d}\nzookeeper: {servers: [%s], root: %s, session_timeout: 4s}\ngroups_dir: %s\n", id, priority, f.servers[0], base, dir))
	write(filepath.Join(dir, "other.yaml"), "child: {none: true}\n")
	write(filepath.Join(dir, "wrong.yaml"), "child: {none: true}\n")
	file := write(filepath.Join(dir, "billing.yaml"), fmt.Sprintf(
		"zookeeper: {root: %s}\nchild: {command: [ledger-child], env: {LEDGER: %s}, stop_timeout: 400ms}\nelection: {exclusion: 1s}\n", f.paths.Root, f.ledgerFile()))
	f.start(hostKey(id), "--config", main)
	return file
}

// hostKey is the name of the daemon for many groups in the fleet.
func hostKey(id string) string { return id + "-host" }

// A group that has its own daemons migrates to daemons with many groups, and back, without two leaders at work. While the old daemon of a
// host runs, the host's daemon takes no part in the group.
func TestMigrationIntoTheHostsDaemonsAndBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	base := f.paths.Root + "-hosts"
	f.join("a", "b")
	f.waitForChild("a", 1)
	first := f.snapshot().Elected.Record.Term
	other := fleet{t: t, session: f.session, servers: f.servers, dir: f.dir}
	other.paths.Root = base + "/other"

	// Other hosts have another root for this one, so it is refused; that is no fault of the others.
	if err := store.EnsureIdentity(t.Context(), f.session, base, "wrong", cluster.Identity{Root: base + "-elsewhere/wrong", Kind: cluster.KindSingle}); err != nil {
		t.Fatal(err)
	}

	files := make(map[string]string)
	pid := func(id string) int {
		for _, m := range f.until("all members", func(g status.Group) bool { return len(g.Members) == 2 }).Members {
			if m.Node == id {
				return m.PID
			}
		}
		return 0
	}
	for i, id := range []string{"b", "a"} {
		old := pid(id)
		files[id] = f.hostDaemon(id, base, 90+10*i)
		other.until("the host's daemon has joined another group", func(g status.Group) bool { return len(g.Members) == i+1 })
		f.logged(hostKey(id), "is taken: ")
		f.logged(hostKey(id), "says that the group's root is "+base+"-elsewhere/wrong, but the configuration of this host says "+base+"/wrong")
		if now := pid(id); now != old {
			t.Errorf("%s is process %d, not %d", id, now, old)
		}
		f.stop(id)
		f.until(id+" is back", func(g status.Group) bool { return len(g.Members) == 2 })
	}
	f.until("a leads from the host's daemon", leads("a"))
	f.waitForChild("a", 2)

	for _, id := range []string{"b", "a"} {
		if err := os.Rename(files[id], files[id]+".disabled"); err != nil {
			t.Fatal(err)
		}
		f.daemons[hostKey(id)].Signal(syscall.SIGHUP)
		f.until(id+" has left", func(g status.Group) bool { return len(g.Members) == 1 })
		f.start(id)
		f.until(id+" is back", func(g status.Group) bool { return len(g.Members) == 2 })
	}
	f.until("a leads again", func(g status.Group) bool { return leads("a")(g) && g.Term > first })
	f.waitForChild("a", 3)
	other.until("the other group goes on", func(g status.Group) bool { return len(g.Members) == 2 })
	if _, _, err := f.session.Get(t.Context(), base+"/wrong/election", false); !errors.Is(err, cluster.ErrNoNode) {
		t.Errorf("the tree of the refused group: %v", err)
	}
	f.checkInvariants()
}
