package store

import (
	"context"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store/storetest"
	"zkelectd/internal/zk"
)

// Loads are followed from before their parent exists until their sessions end.
func TestFollowLoads(t *testing.T) {
	server := storetest.NewServer()
	reader := server.Connect()
	loads := make(chan map[string]cluster.Load, 1)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		FollowLoads(ctx, reader, "/base", time.Millisecond, func(m map[string]cluster.Load) {
			select {
			case <-loads:
			default:
			}
			loads <- m
		})
	}()
	t.Cleanup(func() { cancel(); <-over })
	until := func(what string, ok func(map[string]cluster.Load) bool) {
		t.Helper()
		limit := time.After(10 * time.Second)
		for {
			select {
			case m := <-loads:
				if ok(m) {
					return
				}
			case <-limit:
				t.Fatal("not seen: " + what)
			}
		}
	}
	until("nothing", func(m map[string]cluster.Load) bool { return len(m) == 0 })
	a, b := server.Connect(), server.Connect()
	if _, err := a.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: "/base", Data: []byte{}}); err != nil {
		t.Fatal(err)
	}
	write := func(conn registrar, id string, leaders int) error {
		return WriteLoad(t.Context(), conn, "/base", id, cluster.Load{Leaders: leaders})
	}
	if err := write(a, "a", 1); err != nil {
		t.Fatal(err)
	}
	until("a", func(m map[string]cluster.Load) bool { return len(m) == 1 && m["a"].Leaders == 1 })
	if err := write(b, "a", 9); err == nil {
		t.Error("another session has written the load of a")
	}
	if err := write(b, "b", 2); err != nil {
		t.Fatal(err)
	}
	if err := write(a, "a", 3); err != nil {
		t.Fatal(err)
	}
	until("both", func(m map[string]cluster.Load) bool { return len(m) == 2 && m["a"].Leaders == 3 && m["b"].Leaders == 2 })
	a.Close(t.Context())
	until("the end of a", func(m map[string]cluster.Load) bool { return len(m) == 1 && m["b"].Leaders == 2 })
}

// The loads beside a group's root have ACLs like its own znodes.
func TestACLsOfLoads(t *testing.T) {
	free := open(t, zk.Options{})
	base := root(t, free).Root
	p := cluster.Paths{Root: base + "/g"}
	if err := EnsureTree(t.Context(), free, p); err != nil {
		t.Fatal(err)
	}
	if err := WriteLoad(t.Context(), free, base, "n1", cluster.Load{}); err != nil {
		t.Fatal(err)
	}
	private := open(t, zk.Options{Access: zk.Access{Auth: credentialsFile(t, "zkelectd:right"), ACL: zk.ACLPrivate}})
	changed := make(map[string]bool)
	if err := private.ApplyACLs(t.Context(), p, "ann@host", func(z zk.ZnodeACL) { changed[z.Path] = true }); err != nil {
		t.Fatal(err)
	}
	if !changed[p.Loads()] || !changed[p.Loads()+"/n1"] || !changed[p.Root] {
		t.Errorf("changed: %v", changed)
	}
}

// A display shows what a host publishes once for all of its groups.
func TestReadAllKnowsTheLoads(t *testing.T) {
	host := storetest.NewServer().Connect()
	p := cluster.Paths{Root: "/base/billing"}
	latency := 1.5
	if err := EnsureTree(t.Context(), host, p); err != nil {
		t.Fatal(err)
	}
	if _, err := Register(t.Context(), host, p, cluster.Node{ID: "a", Instance: cluster.NewInstance(1)}); err != nil {
		t.Fatal(err)
	}
	_, err := ReadAll(t.Context(), host, cluster.Paths{Root: "/nothing/here"}, false)
	contains(t, err, "/nothing/here", "--root")
	for _, want := range []bool{false, true} {
		snap, err := ReadAll(t.Context(), host, p, false)
		if err != nil || len(snap.Members) != 1 {
			t.Fatal(len(snap.Members), err)
		}
		got := snap.Members[0].Node.Record.Latency
		if (got != nil) != want || want && *got != latency {
			t.Errorf("the latency is %v, want it: %v", got, want)
		}
		if err := WriteLoad(t.Context(), host, "/base", "a", cluster.Load{Latency: &latency}); err != nil {
			t.Fatal(err)
		}
	}
}
