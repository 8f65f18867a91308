package store

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
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
