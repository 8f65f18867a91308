package storetest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
	"zkelectd/internal/store/storetest"
	"zkelectd/internal/zk"
)

// syncer is a session of either environment, as LEAVE uses it.
type syncer interface {
	storetest.Conn
	Sync(context.Context) error
}

// departure is a member that leaves. before runs once, just before LEAVE is sent.
type departure struct {
	syncer
	paths  cluster.Paths
	self   cluster.Incarnation
	before func()

	leaving, synced bool // since the last write
	cut             bool // the next sync has no answer
	blind           bool // it has read without a sync
}

func (d *departure) Sync(ctx context.Context) error {
	if d.cut {
		d.cut = false
		return cluster.ErrNotSent
	}
	d.synced = true
	return d.syncer.Sync(ctx)
}

func (d *departure) Get(ctx context.Context, path string, watch bool) ([]byte, cluster.Stat, error) {
	if d.leaving && !d.synced {
		d.blind = true
		return nil, cluster.Stat{}, errors.New("a read without a sync may show less than what was written")
	}
	return d.syncer.Get(ctx, path, watch)
}

func (d *departure) Do(ctx context.Context, ops ...cluster.Op) ([]cluster.Result, error) {
	d.synced = false
	if before := d.before; before != nil {
		d.before = nil
		before()
	}
	return d.syncer.Do(ctx, ops...)
}

func (d *departure) leave(t *testing.T) {
	t.Helper()
	d.leaving, d.synced, d.cut = true, false, true
	defer func() { d.leaving = false }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	o := cluster.Departure{ID: "n1", Self: d.self.Name, Reason: "the group was removed", Requested: true, Slots: []cluster.DepartingSlot{{}}}
	if err := store.Leave(ctx, d, d.paths, o); err != nil || d.blind {
		t.Fatalf("%v; reads without a sync: %t", err, d.blind)
	}
}

// snapshot reads what this member needs for ACQUIRE.
func (d *departure) snapshot(t *testing.T) cluster.Snapshot {
	t.Helper()
	snap, err := store.ReadAll(t.Context(), d.syncer, d.paths, false)
	if err != nil {
		t.Fatal(err)
	}
	snap.Self = d.self
	return snap
}

func (d *departure) acquire(t *testing.T) []cluster.Op {
	t.Helper()
	return d.paths.AcquireTx(d.snapshot(t), cluster.Fence{
		Term: 7, Node: "n1", Incarnation: d.self.Name, State: cluster.FenceHeld,
	}, cluster.Current{Term: 7, Node: "n1", Incarnation: d.self.Name})
}

func (d *departure) do(t *testing.T, ops ...cluster.Op) {
	t.Helper()
	if _, err := d.syncer.Do(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
}

// gone checks that nothing of the member is left, and returns the fence.
func (d *departure) gone(t *testing.T) cluster.Stored[cluster.Fence] {
	t.Helper()
	snap := d.snapshot(t)
	if len(snap.Members) != 0 || snap.Current.Exists {
		t.Errorf("left over: %+v, current: %t", snap.Members, snap.Current.Exists)
	}
	if _, _, err := d.Get(t.Context(), d.paths.Node("n1"), false); !errors.Is(err, cluster.ErrNoNode) {
		t.Errorf("the node's record: %v", err)
	}
	return snap.Fence
}

// TestLeave tests LEAVE in both environments.
func TestLeave(t *testing.T) {
	for env, start := range map[string]func(testing.TB) storetest.Env{"model": model, "real": realServer} {
		for name, part := range map[string]func(*testing.T, *departure){
			"of a standby":                         leaveStandby,
			"after an acquire":                     leaveAfterAcquire,
			"overtaken by a late acquire":          leaveOvertaken,
			"after the fence was deleted":          leaveWithoutFence,
			"of a registration without a reply":    leaveUnknownRegistration,
			"of what is another session's":         leaveForeign,
			"removed and added again":              leaveAndReturn,
			"twice":                                leaveTwice,
			"of an incarnation deleted by hand":    leaveWithoutIncarnation,
			"of a group whose tree does not exist": leaveNothing,
		} {
			t.Run(env+": "+name, func(t *testing.T) {
				e := start(t)
				d := &departure{syncer: handle(t, e), paths: cluster.Paths{Root: e.Root + "/g"}}
				if err := store.EnsureTree(t.Context(), d.syncer, d.paths); err != nil {
					t.Fatal(err)
				}
				d.register(t, cluster.NewInstance(1))
				fence := cluster.Fence{Term: 6, State: cluster.FenceReleased}
				elected := cluster.Elected{Term: 7, Node: "n1", Incarnation: d.self.Name}
				d.do(t, cluster.Op{Kind: cluster.OpSet, Path: d.paths.Leader(), Data: cluster.Encode(&fence)},
					cluster.Op{Kind: cluster.OpCreate, Path: d.paths.Elected(), Data: cluster.Encode(&elected)})
				part(t, d)
			})
		}
	}
}

// handle returns a session's handle in the real environment, and a session of the model otherwise.
func handle(t *testing.T, e storetest.Env) syncer {
	c := e.Connect(t)
	if s, ok := c.(*zk.Session); ok {
		return realHandle{s.Group(cluster.Paths{Root: e.Root + "/g"}), s}
	}
	return c.(syncer)
}

type realHandle struct {
	*zk.Group
	s *zk.Session
}

func (h realHandle) Close(ctx context.Context) error { return h.s.Close(ctx) }

func (d *departure) register(t *testing.T, instance string) {
	t.Helper()
	self, err := store.Register(t.Context(), d.syncer, d.paths, cluster.Node{ID: "n1", Instance: instance})
	if err != nil {
		t.Fatal(err)
	}
	d.self = self
}

func leaveStandby(t *testing.T, d *departure) {
	d.leave(t)
	if f := d.gone(t).Record; f.Term != 6 || f.State != cluster.FenceReleased {
		t.Errorf("the fence was written: %+v", f)
	}
}

func leaveAfterAcquire(t *testing.T, d *departure) {
	d.do(t, d.acquire(t)...)
	d.leave(t)
	if f := d.gone(t).Record; f.Term != 7 || f.State != cluster.FenceReleased || !f.Requested || f.Lost {
		t.Errorf("%+v", f)
	}
}

// An ACQUIRE that was sent before takes effect after LEAVE has read the fence: it is released like any other. Any later one is
// void.
func leaveOvertaken(t *testing.T, d *departure) {
	late := d.acquire(t)
	d.before = func() { d.do(t, late...) }
	d.leave(t)
	if f := d.gone(t).Record; f.Term != 7 || f.State != cluster.FenceReleased || !f.Requested {
		t.Errorf("%+v", f)
	}
	var refused *cluster.TxError
	if _, err := d.Do(t.Context(), late...); !errors.As(err, &refused) || refused.Index != 0 || !errors.Is(err, cluster.ErrNoNode) {
		t.Errorf("an ACQUIRE after LEAVE: %v", err)
	}
}

func leaveWithoutFence(t *testing.T, d *departure) {
	d.do(t, d.acquire(t)...)
	snap := d.snapshot(t)
	// By hand: current has to go before leader can, and a late ACQUIRE creates it again.
	d.do(t, cluster.Op{Kind: cluster.OpDelete, Path: d.paths.Current(), Version: snap.Current.Stat.Version},
		cluster.Op{Kind: cluster.OpDelete, Path: d.paths.Elected(), Version: snap.Elected.Stat.Version},
		cluster.Op{Kind: cluster.OpDelete, Path: d.paths.Leader(), Version: snap.Fence.Stat.Version},
		cluster.Op{Kind: cluster.OpCreate, Path: d.paths.Leader()},
		cluster.Op{Kind: cluster.OpCreate, Path: d.paths.Current(), Ephemeral: true})
	d.leave(t)
	if f := d.gone(t); !errors.Is(f.Err, cluster.ErrNeverWritten) {
		t.Errorf("the fence was written: %+v", f)
	}
}

func leaveUnknownRegistration(t *testing.T, d *departure) {
	d.self = cluster.Incarnation{}
	d.leave(t)
	d.gone(t)
}

func leaveForeign(t *testing.T, d *departure) {
	d.do(t, cluster.Op{Kind: cluster.OpDelete, Path: d.paths.Node("n1")}, cluster.Op{Kind: cluster.OpCreate, Path: d.paths.Node("n1")},
		cluster.Op{Kind: cluster.OpCreate, Path: d.paths.Incarnation("n1-0000000000000002-n_"), Sequential: true}, cluster.Op{Kind: cluster.OpCreate, Path: d.paths.Current()})
	d.leave(t)
	snap := d.snapshot(t)
	if len(snap.Members) != 1 || snap.Members[0].Name == d.self.Name || !snap.Current.Exists {
		t.Errorf("left over: %+v, current: %t", snap.Members, snap.Current.Exists)
	}
	if _, _, err := d.Get(t.Context(), d.paths.Node("n1"), false); err != nil {
		t.Errorf("the node's record: %v", err)
	}
}

func leaveAndReturn(t *testing.T, d *departure) {
	var older *store.OlderInstanceError
	if _, err := store.Register(t.Context(), d.syncer, d.paths, cluster.Node{ID: "n1", Instance: cluster.NewInstance(2)}); !errors.As(err, &older) {
		t.Errorf("a second instance beside the first: %v", err)
	}
	first := d.self
	d.leave(t)
	d.register(t, cluster.NewInstance(2))
	if d.self == first {
		t.Error("it has the old incarnation")
	}
	d.leave(t)
	d.gone(t)
}

func leaveTwice(t *testing.T, d *departure) {
	d.do(t, d.acquire(t)...)
	d.leave(t)
	version := d.gone(t).Stat.Version
	d.leave(t)
	if again := d.gone(t).Stat.Version; again != version {
		t.Errorf("the fence was written again: version %d after %d", again, version)
	}
}

func leaveWithoutIncarnation(t *testing.T, d *departure) {
	d.do(t, d.acquire(t)...)
	d.do(t, cluster.Op{Kind: cluster.OpDelete, Path: d.paths.Incarnation(d.self.Name)})
	d.leave(t)
	if f := d.gone(t).Record; f.State != cluster.FenceReleased {
		t.Errorf("%+v", f)
	}
}

func leaveNothing(t *testing.T, d *departure) {
	d.leave(t)
	d.paths.Root += "/none"
	d.leave(t)
}
