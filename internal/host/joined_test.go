package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/group"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
)

// Only a record of the same root and of all servers lets a host create a group.
func TestOnlyTheOwnRecordLetsAHostCreateAGroup(t *testing.T) {
	dir := t.TempDir()
	const root = "/groups/billing"
	at := func(root, servers string) *resource {
		cfg := load(t, "ZKELECTD_NODE_ID=me", "ZKELECTD_NODE_SITE=dc1", "ZKELECTD_ZOOKEEPER_ROOT="+root, "ZKELECTD_ZOOKEEPER_SERVERS="+servers,
			"ZKELECTD_CHILD_NONE=true")
		return New(Options{Config: cfg, StateDir: dir, Log: slog.New(slog.DiscardHandler), Guard: guardClient}).resources()[0]
	}
	same := func(context.Context) error { return nil }
	may := func(r *resource) bool { return r.mayCreate(t.Context(), same) == nil }
	own := at(root, "zk1:2181,zk2:2181")
	if may(own) {
		t.Error("a host that was never in the group may create it")
	}
	own.recordJoined("")
	if !may(at(root, "zk2:2181")) {
		t.Error("a host that was in the group may not create it on one of the servers")
	}
	other := errors.New("another ensemble")
	if err := at(root, "zk2:2181").mayCreate(t.Context(), func(context.Context) error { return other }); !errors.Is(err, other) {
		t.Errorf("a host that was in the group may create it on another ensemble: %v", err)
	}
	if may(at(root, "zk2:2181,zk3:2181")) || may(at("/groups/biling", "zk1:2181")) {
		t.Error("the record counts for another root, or for other servers")
	}
	recorded, err := os.ReadFile(filepath.Join(dir, joinedFile(root)))
	if err != nil {
		t.Fatal(err)
	}
	forged := filepath.Join(dir, joinedFile("/groups/other"))
	for text, mode := range map[string]os.FileMode{string(recorded): 0o600, "{": 0o600, `{"root": "/groups/other", "servers": ["zk1:2181"]}`: 0o666} {
		if err := os.WriteFile(forged, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(forged, mode); err != nil {
			t.Fatal(err)
		}
		switch why := at("/groups/other", "zk1:2181").mayCreate(t.Context(), same); {
		case why == nil:
			t.Errorf("%s with mode %o lets the host create the group", text, mode)
		case text != string(recorded) && !strings.Contains(why.Error(), "its record cannot be read: "+forged):
			t.Errorf("%s with mode %o: %v", text, mode, why)
		}
	}
}

// A host takes no part in a group with another id on servers that it does not know, and gives its own only to those that it knows.
func TestAGroupWithAnotherIDIsAnotherGroup(t *testing.T) {
	same := func(context.Context) error { return nil }
	for dir, remedy := range map[string]string{t.TempDir(): "remove ", "": "restart this zkelectd"} {
		cfg := load(t, "ZKELECTD_NODE_ID=me", "ZKELECTD_NODE_SITE=dc1", "ZKELECTD_ZOOKEEPER_ROOT=/ids/billing", "ZKELECTD_ZOOKEEPER_SERVERS=zk1:2181,zk2:2181",
			"ZKELECTD_CHILD_NONE=true")
		start := func() *resource {
			return New(Options{Config: cfg, StateDir: dir, Log: slog.New(slog.DiscardHandler), Guard: guardClient}).resources()[0]
		}
		r := start()
		if err := r.checkGroupID(t.Context(), "A", "zk1:2181", same); err != nil {
			t.Error("a host that was in no group knows an id:", err)
		}
		r.recordJoined("A")
		r.recordJoined("") // a root without an id
		if dir != "" {
			r = start()
		}
		if r.recordOpen(true); dir != "" {
			r = start()
		}
		if !r.wasOpen() {
			t.Error("it does not know that the group was open")
		}
		if r.recordOpen(false); r.wasOpen() {
			t.Error("it does not know that the group was closed")
		}
		if got := r.newGroupID("zk2:2181"); got != "A" {
			t.Errorf("the servers lost their data: the new root gets the id %s", got)
		}
		if got := r.newGroupID("zk9:2181"); got == "A" {
			t.Error("a server that this host does not know gets the id")
		}
		for id, server := range map[string]string{"A": "zk9:2181", "B": "zk1:2181", "": "zk9:2181"} {
			if err := r.checkGroupID(t.Context(), id, server, same); err != nil {
				t.Errorf("%s at %s: %v", id, server, err)
			}
		}
		alone := &zk.EnsembleError{Here: "zk1:2181", Of: 2, Doubts: []string{"zk2:2181: no answer"}}
		other := r.checkGroupID(t.Context(), "B", "zk1:2181", func(context.Context) error { return alone })
		if !errors.As(other, new(*store.MissingError)) || !strings.Contains(other.Error(), "only 1 of 2 servers") {
			t.Errorf("another id at one of its servers that may be of another ensemble: %v", other)
		}
		err := r.checkGroupID(t.Context(), "B", "zk9:2181", same)
		if !errors.As(err, new(*group.PermanentError)) || !strings.Contains(err.Error(), remedy) || !strings.Contains(err.Error(), "zk9:2181") {
			t.Errorf("another id at an unknown server: %v", err)
		}
		if err := r.checkGroupID(t.Context(), "B", "", same); !group.IsTransient(err) {
			t.Errorf("another id, and no connection: %v", err)
		}
	}
}

// What a check records while a registration does is not lost, nor does it replace that.
func TestRecordsOfAGroupAreNotLost(t *testing.T) {
	cfg := load(t, "ZKELECTD_NODE_ID=me", "ZKELECTD_NODE_SITE=dc1", "ZKELECTD_ZOOKEEPER_ROOT=/ids/mail", "ZKELECTD_ZOOKEEPER_SERVERS=zk1:2181",
		"ZKELECTD_CHILD_NONE=true")
	r := New(Options{Config: cfg, Log: slog.New(slog.DiscardHandler), Guard: guardClient}).resources()[0]
	var checks sync.WaitGroup
	checks.Go(func() {
		for i := range 20000 {
			if r.recordOpen(i%2 == 0); r.wasOpen() != (i%2 == 0) {
				t.Errorf("lost that the group was open: %t", i%2 == 0)
				return
			}
		}
	})
	for i := range 20000 {
		id := fmt.Sprint("id", i)
		if r.recordJoined(id); r.lastJoined().ID != id {
			t.Errorf("%s became %s", id, r.lastJoined().ID)
			break
		}
	}
	checks.Wait()
}

// A member that reaches a server of another ensemble does not create its group there, although it was in it, and comes back to its own.
func TestAMemberCreatesNothingOnAnotherEnsemble(t *testing.T) {
	f := newFleet(t)
	ports, err := zkserver.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	mistyped := fmt.Sprintf("127.0.0.1:%d", ports[0])
	f.env = []string{"ZKELECTD_ZOOKEEPER_SERVERS=" + f.server.Addr() + "," + mistyped}
	f.setUp = func(h *Host) { h.opt.Create = false }
	f.start(false, "a")
	a := f.hosts[0]
	until(t, a.only, "a leads", status.Daemon.Leads)
	proxy, err := faultproxy.Listen(mistyped, server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	f.server.Kill()
	until(t, a.only, "it takes no part", func(d status.Daemon) bool {
		return strings.Contains(d.MembershipReason, "only 1 of 2 servers are known to be of one ensemble with "+mistyped)
	})
	other, err := zk.Open(t.Context(), zk.Options{Servers: []string{server.Addr()}, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	if _, _, err := other.Get(t.Context(), f.root, false); !errors.Is(err, cluster.ErrNoNode) {
		t.Errorf("the group was created on the other ensemble: %v", err)
	}
	// Nor does it take part in another group with the same root there.
	data := cluster.Encode(&cluster.Identity{Root: f.root, Kind: cluster.KindSingle, ID: "another"})
	if _, err := other.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: f.root, Data: data}); err != nil {
		t.Fatal(err)
	}
	until(t, a.only, "it takes no part in the other group", func(d status.Daemon) bool {
		return strings.Contains(d.MembershipReason, "is the root of the group with the id another, but this host was in the one with the id")
	})
	if err := f.server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, a.only, "a leads again", status.Daemon.Leads)
}
