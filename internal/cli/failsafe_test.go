package cli

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
)

// promisers returns the nodes that the fence names.
func (f *fleet) promisers() []string {
	f.t.Helper()
	data, stat, err := f.session.Get(f.t.Context(), f.paths.Leader(), false)
	if err != nil {
		return nil
	}
	var ids []string
	if fs := cluster.ReadFence(f.paths.Leader(), data, stat, true).Record.Failsafe; fs != nil {
		for _, m := range fs.Members {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// After the loss of a leader in failsafe mode, a member that was to promise takes over by itself, and lets one that was not take over.
func TestTakeoverFromALeaderInFailsafeMode(t *testing.T) {
	t.Parallel()
	f := newClosedFleet(t, zk.ACLPrivate)
	ports, err := zkserver.FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	start := func(id string, priority, port int, enabled bool) {
		f.configure(id, "dc1", priority, fmt.Sprintf("zookeeper: {session_timeout: 4s, acl: private}\nelection: {exclusion: 1s}\nfailsafe: {enabled: %t, listen: '127.0.0.1:%d'}\n"+
			"child: {command: [ledger-child], env: {LEDGER: LEDGERFILE}, stop_timeout: 200ms}\n", enabled, port))
		f.startWith([]string{"STATE_DIRECTORY=" + filepath.Join(f.dir, "state-"+id)}, id, "--config", f.file(id))
	}
	named := func() bool {
		return leads("a")(f.until("a leads", leads("a"))) && slices.Equal(f.promisers(), []string{"b"})
	}
	start("a", 100, ports[0], true)
	f.until("a leads", leads("a"))
	start("b", 50, ports[1], true)
	f.eventually("the fence names b", named)
	f.crash("a")
	f.until("b leads", leads("b"))
	start("a", 100, ports[0], true)
	f.eventually("the fence names b again", named)
	start("x", 90, ports[2], false)
	f.until("x has joined", func(g status.Group) bool { return len(g.Members) == 3 })
	f.crash("a")
	f.until("x leads", leads("x"))
	if data := read(filepath.Join(f.dir, "state-b", "failsafe.json")); !strings.Contains(data, `"vetoed":{"`+f.paths.Leader()+`":`) {
		t.Errorf("b has recorded %s", data)
	}
	if strings.Contains(f.daemons["x"].output(), "failsafe.json") || read(filepath.Join(f.dir, "state-x", "failsafe.json")) != "" {
		t.Error("x, which takes no part, has a state")
	}
	f.checkInvariants()
}
