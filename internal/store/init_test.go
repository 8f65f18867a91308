package store

import (
	"errors"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store/storetest"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
)

// A first election, a first record of slots, and init succeed on a server that accepts small packets only.
func TestFirstWritesWithASmallBuffer(t *testing.T) {
	t.Setenv("JAVA_TOOL_OPTIONS", "-Djute.maxbuffer=8192")
	server := zkserver.ForTest(t, zkserver.Options{})
	s := open(t, zk.Options{Servers: []string{server.Addr()}})
	p := root(t, s)
	self, err := Register(t.Context(), s, p, cluster.Node{ID: "n1", Instance: cluster.NewInstance(1)})
	if err != nil {
		t.Fatal(err)
	}
	snap, err := ReadAll(t.Context(), s, p, false)
	if err != nil {
		t.Fatal(err)
	}
	snap.Self = self
	const term = 1<<31 - 1 // which begins with the highest version
	ops := p.ElectTx(snap, cluster.Elected{Term: term, Node: "n1", Incarnation: self.Name, Cause: cluster.CauseFirst}, &cluster.Fence{Term: term, State: cluster.FenceRevoked})
	if err := DoSplit(t.Context(), s, p, ops); err != nil {
		t.Fatal(err)
	}
	if snap, err = ReadAll(t.Context(), s, p, false); err != nil || !snap.Fence.Readable() || snap.Elected.Record.Term != term {
		t.Errorf("%+v, %v", snap.Fence, err)
	}
	if err := Init(t.Context(), s, root(t, s), "the test"); err != nil {
		t.Error(err)
	}
	p = root(t, s)
	next := cluster.NewSlots(cluster.SlotSize{Count: 3, PerNode: 1}, "n1", time.Unix(63, 0)) // which begins with the highest version
	if err := DoSplit(t.Context(), s, p, p.SlotsTx("", cluster.Stored[cluster.Slots]{}, next)); err != nil {
		t.Fatal(err)
	}
	if slots, err := EnsureSlots(t.Context(), s, p, cluster.SlotSize{Count: 5, PerNode: 1}, "n2"); err != nil || slots.Record.Count != 3 {
		t.Errorf("%+v, %v", slots, err)
	}
}

// Init finds each trace of an earlier use by itself (A1): the first leader of a group with a leader must wait.
func TestInitRefusesAGroupThatIsInUse(t *testing.T) {
	create := func(path, data string) cluster.Op {
		return cluster.Op{Kind: cluster.OpCreate, Path: path, Data: []byte(data)}
	}
	fence := func(p cluster.Paths, data string) cluster.Op {
		return cluster.Op{Kind: cluster.OpSet, Path: p.Leader(), Version: cluster.AnyVersion, Data: []byte(data)}
	}
	p := cluster.Paths{Root: "/c"}
	for name, op := range map[string]cluster.Op{
		"incarnation": create(p.Incarnation("a-0000000000000001-n_0000000001"), ""),
		"node":        create(p.Node("a"), "x"),
		"elected":     create(p.Elected(), "x"),
		"current":     create(p.Current(), "x"),
		"history":     create(p.History(), "x"),
		"roster":      create(p.Roster(), "x"),
		"fence":       fence(p, `{"v":1,"term":7,"state":"RELEASED"}`),
		"emptied":     fence(p, ""),
		"newer":       fence(p, `{"v":3}`),
	} {
		conn := storetest.NewServer().Connect()
		if err := EnsureTree(t.Context(), conn, p); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Do(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		var in *cluster.InUseError
		if err := Init(t.Context(), conn, p, "the test"); !errors.As(err, &in) || len(in.Found) != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
