package electing

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
)

// written keeps what was written last. Nothing else may be called.
type written struct {
	cluster.ReadWriter
	ops []cluster.Op
}

func (w *written) Do(_ context.Context, ops ...cluster.Op) ([]cluster.Result, error) {
	w.ops = ops
	return nil, nil
}

// After SILENCE nobody waits for the lease of the holder, so it must fail if the holder has renewed since the sighting.
func TestSilenceFailsAfterARenewal(t *testing.T) {
	const znode = "/.leases/a-1"
	conn := &written{}
	e := New(Options{
		Conn: conn, Paths: cluster.Paths{Root: "/g"}, Log: slog.New(slog.DiscardHandler),
		Run:       func(_ time.Duration, work func(context.Context), done func()) { work(t.Context()); done() },
		Unwritten: func(string) {}, RereadDecision: func() {},
	})
	e.SetSilent(nil, cluster.LeaseZnodeSeen{Znode: znode, Stat: cluster.Stat{Version: 7}})
	var snap cluster.Snapshot
	snap.Fence.Record = cluster.Fence{Term: 3, Node: "a", State: cluster.FenceReady, LeaseZnode: znode}
	fence := snap.SilentFence(nil, "", time.Time{})
	e.carryOut(elector.Decision{Revoke: &fence, Take: true}, time.Hour, snap, nil)
	if !slices.ContainsFunc(conn.ops, func(op cluster.Op) bool {
		return op.Kind == cluster.OpCheck && op.Path == znode && op.Version == 7
	}) {
		t.Error("it is written whatever the lease znode is like by then")
	}
}
