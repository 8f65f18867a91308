package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store/storetest"
)

// The record is read only if another client has changed it.
func TestTheNodesRecordIsWrittenOverAnotherVersion(t *testing.T) {
	server := storetest.NewServer()
	conn, other, p := server.Connect(), server.Connect(), cluster.Paths{Root: "/g"}
	defer conn.Close(context.Background())
	defer other.Close(context.Background())
	if err := EnsureTree(t.Context(), conn, p); err != nil {
		t.Fatal(err)
	}
	self, err := Register(t.Context(), conn, p, cluster.Node{ID: "a", Instance: cluster.NewInstance(1), Since: time.Unix(7, 0)})
	if err != nil {
		t.Fatal(err)
	}
	w := NewNodeWriter(conn, p, self, time.Unix(7, 0))
	write := func(reason string) {
		t.Helper()
		if err := w.Write(t.Context(), cluster.Node{ID: "a", Leaving: reason}); err != nil {
			t.Fatal(err)
		}
		data, stat, err := other.Get(t.Context(), p.Node("a"), false)
		if n := cluster.ReadStored[cluster.Node](p.Node("a"), data, stat, true).Record; err != nil || n.Leaving != reason || n.Since.Unix() != 7 {
			t.Errorf("%+v, %v", n, err)
		}
	}
	write("first")
	do := func(op cluster.Op) {
		t.Helper()
		op.Version = cluster.AnyVersion
		if _, err := other.Do(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	do(cluster.Op{Kind: cluster.OpSet, Path: p.Node("a"), Data: []byte(`{"v":1,"since":"1970-01-01T00:00:07Z"}`)})
	write("second")
	write("third")
	do(cluster.Op{Kind: cluster.OpDelete, Path: p.Incarnation(self.Name)})
	if err := w.Write(t.Context(), cluster.Node{ID: "a"}); !errors.Is(err, cluster.ErrNoNode) {
		t.Errorf("without its incarnation: %v", err)
	}
}
