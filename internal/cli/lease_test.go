package cli

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"zkelectd/internal/cluster"
)

// countingServer starts a server that counts its requests.
func countingServer(t *testing.T, answer http.HandlerFunc) (addr string, hits *atomic.Int32) {
	t.Helper()
	hits = new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), hits
}

// An unauthorized client that writes into the tree cannot choose the address that an operator's status command asks. Only the
// address in the leader's own registration is asked, no address of this host for a leader on another host, and no redirect.
func TestStatusAsksOnlyTheLeader(t *testing.T) {
	t.Parallel()
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	victim, victims := countingServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"node":"evil","term":7,"lease_remaining":"1.5s"}`))
	})
	forged, asked := countingServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+victim+"/leader", http.StatusFound)
	})
	var root atomic.Value // of the group that is asked about
	honest, _ := countingServer(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"root":%q,"node":"evil","term":7,"lease_remaining":"1.5s"}`, root.Load())
	})
	_, port, _ := net.SplitHostPort(victim)
	for name, c := range map[string]struct {
		current, node, host string
		asked               int32
		lease               bool
	}{
		"an address that the member has not":        {current: victim, node: "192.0.2.1:1", host: here},
		"an address of a member without one":        {current: victim, host: here},
		"this host's, of a member elsewhere":        {current: victim, node: victim, host: "elsewhere"},
		"this host's, by a name":                    {current: "localhost:" + port, node: "localhost:" + port, host: "elsewhere"},
		"a name of this host's as that of a member": {current: ":" + port, node: ":" + port, host: "localhost"},
		"a redirect":   {current: forged, node: forged, host: here, asked: 1},
		"the leader's": {current: honest, node: honest, host: here, lease: true},
	} {
		f := newFleet(t)
		root.Store(f.paths.Root)
		ephemeral := func(path string, r any) cluster.Op {
			op := cluster.Op{Kind: cluster.OpCreate, Path: path, Ephemeral: true}
			switch r := r.(type) {
			case *cluster.Node:
				op.Data = cluster.Encode(r)
			case *cluster.Current:
				op.Data = cluster.Encode(r)
			}
			return op
		}
		const incarnation = "evil-0000000000000001-n_0000000000"
		f.write(
			cluster.Op{Kind: cluster.OpSet, Path: f.paths.Leader(), Version: cluster.AnyVersion, Data: cluster.Encode(&cluster.Fence{
				Term: 7, Node: "evil", Site: "dc1", Incarnation: incarnation, Session: f.session.SessionID(), State: cluster.FenceReady,
			})},
			ephemeral(f.paths.Election()+"/"+incarnation, nil),
			ephemeral(f.paths.Node("evil"), &cluster.Node{ID: "evil", Site: "dc1", Host: c.host, API: c.node}),
			ephemeral(f.paths.Current(), &cluster.Current{Term: 7, Node: "evil", Site: "dc1", Incarnation: incarnation, State: cluster.CurrentReady, API: c.current}),
		)
		asked.Store(0)
		out, err := f.run("status")
		if err != nil || !strings.Contains(out, "Leader   evil") || strings.Contains(out, "Lease    1.5s left") != c.lease || strings.Contains(out, "Lease    not confirmed") != (c.asked > 0) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if victims.Load() != 0 || asked.Load() != c.asked {
			t.Errorf("%s: the victim was asked %d times, the address in the tree %d times", name, victims.Swap(0), asked.Load())
		}
	}
}

// Explain says that a holder can't give up leadership because its work can't be killed, and that the elected member waits for it.
func TestExplainSaysWhatIsStuck(t *testing.T) {
	t.Parallel()
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t)
	term := int64(7)
	api, _ := countingServer(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"root":%q,"node":"old","term":%d,"unkillable":"process 9 runs as user 0"}`, f.paths.Root, term)
	})
	f.startLeader("new", "")
	fence := f.snapshot().Fence.Record
	current := f.snapshot().Current.Record
	f.daemons["new"].Signal(syscall.SIGSTOP)
	defer f.daemons["new"].Signal(syscall.SIGCONT)
	const incarnation = "old-0000000000000001-n_0000000099"
	current.Term, current.Node, current.Incarnation, current.API = term, "old", incarnation, api
	fence.Term, fence.Node, fence.Incarnation, fence.Session = term, "old", incarnation, f.session.SessionID()
	f.write(
		cluster.Op{Kind: cluster.OpSet, Path: f.paths.Leader(), Version: cluster.AnyVersion, Data: cluster.Encode(&fence)},
		cluster.Op{Kind: cluster.OpCreate, Path: f.paths.Incarnation(incarnation), Ephemeral: true},
		cluster.Op{Kind: cluster.OpCreate, Path: f.paths.Node("old"), Ephemeral: true, Data: cluster.Encode(&cluster.Node{ID: "old", Site: "dc1", Host: here, API: api})},
		cluster.Op{Kind: cluster.OpDelete, Path: f.paths.Current(), Version: cluster.AnyVersion},
		cluster.Op{Kind: cluster.OpCreate, Path: f.paths.Current(), Ephemeral: true, Data: cluster.Encode(&current)},
	)
	out, err := f.run("explain")
	for _, want := range []string{"Waiting  until old gives up leadership, which it has held since term 7", "Stuck    the work of old can't be killed, and old releases nothing while it runs: process 9 runs as user 0"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: lacks %q (the fence: %+v)\n%s", err, want, fence, out)
		}
	}
	f.succeedsWith(`"stuck": "the work of old can't be killed`, "explain", "-o", "json")
}
