package cluster_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store/storetest"
)

const (
	session = 7
	own     = "n1-0000000000000001-n_0000000001"
)

var group = cluster.Paths{Root: "/c"}

// departing returns what a leader in its lease wait reads, with a change.
func departing(change func(*cluster.Departure)) cluster.Departure {
	d := cluster.Departure{
		ID: "n1", Session: session, Self: own, Incarnations: []string{own}, Reason: "the group was removed", Requested: true, Wall: time.Unix(1, 0),
		Node: cluster.Stored[cluster.Node]{Exists: true, Stat: cluster.Stat{Owner: session, Version: 3}},
		Leaderships: []cluster.Leadership{{
			Fence:   fenceOf(cluster.Fence{Term: 8, Node: "n1", Incarnation: own, State: cluster.FenceReady}),
			Current: cluster.Stored[cluster.Current]{Exists: true, Stat: cluster.Stat{Owner: session, Version: 5}},
		}},
	}
	change(&d)
	return d
}

func fenceOf(f cluster.Fence) cluster.Stored[cluster.Fence] {
	f.Header.V = cluster.FormatVersion // as it was read
	return cluster.Stored[cluster.Fence]{Exists: true, Stat: cluster.Stat{Version: 4}, Record: f}
}

func unreadable(text string, version int32) cluster.Stored[cluster.Fence] {
	return cluster.ReadFence("/c/leader", []byte(text), cluster.Stat{Version: version}, true)
}

func TestLeave(t *testing.T) {
	const (
		set     = "set /c/leader@4"
		check   = "check /c/leader@4"
		current = "delete /c/leader/current@5"
		self    = "delete /c/election/" + own + "@-1"
		node    = "delete /c/nodes/n1@3"
	)
	state := func(s cluster.FenceState) func(*cluster.Departure) {
		return func(d *cluster.Departure) { d.Leaderships[0].Fence.Record.State = s }
	}
	for name, c := range map[string]struct {
		change func(*cluster.Departure)
		want   string
	}{
		"a leader":    {func(*cluster.Departure) {}, set + " " + current + " " + self + " " + node},
		"a candidate": {state(cluster.FenceHeld), set + " " + current + " " + self + " " + node},
		"released":    {state(cluster.FenceReleased), check + " " + current + " " + self + " " + node},
		"unclean":     {state(cluster.FenceUnclean), check + " " + current + " " + self + " " + node},
		"revoked":     {state(cluster.FenceRevoked), check + " " + current + " " + self + " " + node},
		"another leads": {func(d *cluster.Departure) {
			d.Leaderships[0].Fence.Record.Incarnation = "n2-0000000000000001-n_0000000002"
			d.Leaderships[0].Current.Stat.Owner = 8
		}, check + " " + self + " " + node},
		"a standby": {func(d *cluster.Departure) {
			d.Leaderships[0].Fence.Record.State = cluster.FenceReleased
			d.Leaderships[0].Current.Exists = false
		}, check + " " + self + " " + node},
		"a slot of another": {func(d *cluster.Departure) {
			l := &d.Leaderships[0]
			l.Fence.Record.Incarnation, l.Current.Stat.Owner = "n2-0000000000000001-n_0000000002", 8
			l.Slot, l.Elected = "3", cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Node: "n2"}}
		}, self + " " + node},
		"a slot that it is elected for": {func(d *cluster.Departure) {
			l := &d.Leaderships[0]
			l.Fence.Record.Incarnation, l.Current.Stat.Owner = "n2-0000000000000001-n_0000000002", 8
			l.Slot, l.Elected = "3", cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Node: "n1"}}
		}, "check /c/slots/3@4 " + self + " " + node},
		"a slot without a readable decision": {func(d *cluster.Departure) {
			l := &d.Leaderships[0]
			l.Fence.Record.Incarnation, l.Current.Stat.Owner = "n2-0000000000000001-n_0000000002", 8
			l.Slot, l.Elected = "3", cluster.Stored[cluster.Elected]{Exists: true, Err: cluster.ErrInvalid}
		}, "check /c/slots/3@4 " + self + " " + node},
		"a slot that another is elected for": {func(d *cluster.Departure) {
			l := &d.Leaderships[0]
			l.Slot, l.Elected = "3", cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Node: "n2"}}
		}, "set /c/slots/3@4 delete /c/slots/3/current@5 " + self + " " + node},
		"no fence":               {func(d *cluster.Departure) { d.Leaderships[0].Fence = cluster.Stored[cluster.Fence]{} }, current + " " + self + " " + node},
		"a damaged fence":        {func(d *cluster.Departure) { d.Leaderships[0].Fence = unreadable("garbage", 4) }, check + " " + current + " " + self + " " + node},
		"a fence never written":  {func(d *cluster.Departure) { d.Leaderships[0].Fence = unreadable("", 0) }, "check /c/leader@0 " + current + " " + self + " " + node},
		"another's node":         {func(d *cluster.Departure) { d.Node.Stat.Owner = 8 }, set + " " + current + " " + self},
		"no node":                {func(d *cluster.Departure) { d.Node.Exists = false }, set + " " + current + " " + self},
		"no incarnation":         {func(d *cluster.Departure) { d.Incarnations = nil }, set + " " + current + " " + node},
		"an unknown incarnation": {func(d *cluster.Departure) { d.Self = "" }, set + " " + current + " " + self + " " + node},
		"two incarnations": {func(d *cluster.Departure) {
			d.Incarnations = append(d.Incarnations, "n1-0000000000000001-n_0000000009")
		}, set + " " + current + " " + self + " delete /c/election/n1-0000000000000001-n_0000000009@-1 " + node},
		"only the fence": {func(d *cluster.Departure) {
			d.Incarnations, d.Leaderships[0].Current.Exists, d.Node.Exists = nil, false, false
		}, set},
		"nothing": {func(d *cluster.Departure) {
			state(cluster.FenceReleased)(d)
			d.Incarnations, d.Leaderships[0].Current.Exists, d.Node.Exists = nil, false, false
		}, ""},
		"nothing, and no fence": {func(d *cluster.Departure) { *d = cluster.Departure{ID: "n1", Session: session} }, ""},
		"never known, others lead": {func(d *cluster.Departure) {
			d.Leaderships = []cluster.Leadership{{Fence: fenceOf(cluster.Fence{State: cluster.FenceReady, Incarnation: "n2-0000000000000001-n_0000000002"})}}
			*d = cluster.Departure{ID: "n1", Session: session, Leaderships: d.Leaderships}
		}, ""},
	} {
		ops, err := group.LeaveTx(departing(c.change))
		got := cluster.Brief(ops, func(op cluster.Op) string { return fmt.Sprintf("%s %s@%d", op.Kind, op.Path, op.Version) })
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v\n got %q\nwant %q", name, err, got, c.want)
		}
	}
}

// A newer zkelectd may have written that this member leads, in words that this one does not know.
func TestLeaveDoesNotTouchAFenceOfANewerVersion(t *testing.T) {
	ops, err := group.LeaveTx(departing(func(d *cluster.Departure) { d.Leaderships[0].Fence = unreadable(`{"v":3}`, 4) }))
	var newer *cluster.NewerVersionError
	if len(ops) != 0 || !errors.As(err, &newer) || !strings.Contains(err.Error(), "/c/leader") {
		t.Errorf("%v, %v", ops, err)
	}
}

// The successor waits for what this member, or a holder before it, still owes.
func TestLeaveLeavesTheFence(t *testing.T) {
	const wait, unproven = 4 * time.Second, 5 * time.Second
	base := cluster.Fence{Term: 8, Node: "n1", Site: "dc1", Incarnation: own, LeaseWait: 9, Kill: 2, RevokeTimeout: 3, Wait: "why"}
	for name, c := range map[string]struct {
		state       cluster.FenceState
		owed, knows time.Duration
		requested   bool
		want        func(*cluster.Fence)
	}{
		"a leader": {cluster.FenceReady, 0, 0, true, func(f *cluster.Fence) {
			f.State, f.Led, f.Requested = cluster.FenceReleased, true, true
			f.Idle = cluster.AtLeast(0)
		}},
		"a leader that failed": {cluster.FenceReady, 0, 0, false, func(f *cluster.Fence) {
			f.State, f.Led, f.Lost = cluster.FenceReleased, true, true
			f.Idle = cluster.AtLeast(0)
		}},
		"post_stop failed": {cluster.FenceReady, 0, wait, true, func(f *cluster.Fence) {
			f.State, f.Led, f.Requested, f.Owed, f.Idle = cluster.FenceUnclean, true, true, cluster.Duration(wait), cluster.AtLeast(0)
		}},
		"in its lease wait": {cluster.FenceHeld, wait, 1, true, func(f *cluster.Fence) {
			f.State, f.Requested, f.Owed = cluster.FenceUnclean, true, cluster.Duration(wait)
		}},
		"a candidate": {cluster.FenceHeld, 0, 0, true, func(f *cluster.Fence) { f.State, f.Requested = cluster.FenceReleased, true }},
		"unproven":    {cluster.FenceReady, 0, unproven, false, func(f *cluster.Fence) { f.State, f.Led = cluster.FenceRevoked, true; f.Idle = cluster.AtLeast(0) }},
		"unproven, in its lease wait": {cluster.FenceHeld, wait, unproven, true, func(f *cluster.Fence) {
			f.State, f.Requested, f.Owed = cluster.FenceRevoked, true, cluster.Duration(wait)
		}},
	} {
		f, want := base, base
		f.State, f.Owed = c.state, cluster.Duration(c.owed)
		want.Reason, want.Time, want.V = "the reason", time.Unix(5, 0).UTC(), cluster.FormatVersion
		c.want(&want)
		ops, err := group.LeaveTx(departing(func(d *cluster.Departure) {
			d.Leaderships[0].Fence, d.Leaderships[0].Owed, d.Leaderships[0].Unproven = fenceOf(f), c.knows, c.knows == unproven
			d.Requested, d.Reason, d.Wall = c.requested, "the reason", time.Unix(5, 0).UTC()
		}))
		if err != nil {
			t.Fatal(err)
		}
		write := ops[0]
		if got := cluster.ReadFence(write.Path, write.Data, cluster.Stat{Version: 5}, true); got.Err != nil || !reflect.DeepEqual(got.Record, want) {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", name, got.Record, got.Err, want)
		}
	}
}

// leaver is a member on the model of ZooKeeper.
type leaver struct {
	t    *testing.T
	tree *storetest.Tree
	id   int64
	snap cluster.Snapshot
}

func newLeaver(t *testing.T) *leaver {
	l := &leaver{t: t, tree: storetest.NewTree()}
	admin := l.tree.Open()
	for _, path := range group.Skeleton() {
		l.do(admin, cluster.Op{Kind: cluster.OpCreate, Path: path})
	}
	fence := cluster.Fence{Term: 6, State: cluster.FenceReleased}
	l.do(admin, cluster.Op{Kind: cluster.OpSet, Path: group.Leader(), Data: cluster.Encode(&fence)})
	l.id = l.tree.Open()
	self := l.do(l.id, group.RegisterTx(cluster.Node{ID: "n1", Instance: cluster.NewInstance(1)})...)[1].Path[len(group.Election())+1:]
	elected := cluster.Elected{Term: 7, Incarnation: self}
	l.do(admin, cluster.Op{Kind: cluster.OpCreate, Path: group.Elected(), Data: cluster.Encode(&elected)})
	l.snap = cluster.Snapshot{Self: cluster.Incarnation{Name: self, ID: "n1"}}
	l.snap.Fence.Stat.Version = 1
	return l
}

func (l *leaver) do(session int64, ops ...cluster.Op) []cluster.Result {
	l.t.Helper()
	results, _, err := l.tree.Apply(session, ops)
	if err != nil {
		l.t.Fatal(err)
	}
	return results
}

func (l *leaver) acquire() []cluster.Op {
	fence := cluster.Fence{Term: 7, Incarnation: l.snap.Self.Name, State: cluster.FenceHeld}
	return group.AcquireTx(l.snap, fence, cluster.Current{Term: 7})
}

func (l *leaver) read() cluster.Departure {
	d := cluster.Departure{ID: "n1", Session: l.id, Self: l.snap.Self.Name, Requested: true, Leaderships: make([]cluster.Leadership, 1)}
	data, stat, err := l.tree.Get(0, group.Leader(), false)
	d.Leaderships[0].Fence = cluster.ReadFence(group.Leader(), data, stat, err == nil)
	_, d.Leaderships[0].Current.Stat, err = l.tree.Get(0, group.Current(), false)
	d.Leaderships[0].Current.Exists = err == nil
	_, d.Node.Stat, err = l.tree.Get(0, group.Node("n1"), false)
	d.Node.Exists = err == nil
	d.Incarnations, _, _ = l.tree.Children(0, group.Election(), false)
	return d
}

func (l *leaver) leave(d cluster.Departure) error {
	l.t.Helper()
	ops, err := group.LeaveTx(d)
	if err != nil {
		l.t.Fatal(err)
	}
	_, _, err = l.tree.Apply(l.id, ops)
	return err
}

// gone checks that nothing of the member is left.
func (l *leaver) gone() {
	l.t.Helper()
	if ops, err := group.LeaveTx(l.read()); ops != nil || err != nil {
		l.t.Errorf("left: %+v, %v", ops, err)
	}
}

// A late ACQUIRE either makes LEAVE fail, which is repeated then, or finds no incarnation.
func TestLeaveAndALateAcquire(t *testing.T) {
	l := newLeaver(t)
	before := l.read()
	l.do(l.id, l.acquire()...)
	if err := l.leave(before); !errors.Is(err, cluster.ErrBadVersion) {
		t.Errorf("LEAVE is based on an old fence: %v", err)
	}
	after := l.read()
	if err := l.leave(after); err != nil {
		t.Fatal(err)
	}
	l.gone()
	if f := l.read().Leaderships[0].Fence.Record; f.State != cluster.FenceReleased || f.Term != 7 {
		t.Errorf("left behind: %+v", f)
	}
	if err := l.leave(after); !errors.Is(err, cluster.ErrBadVersion) {
		t.Errorf("a late LEAVE: %v", err)
	}

	l = newLeaver(t)
	if err := l.leave(l.read()); err != nil {
		t.Fatal(err)
	}
	l.gone()
	if _, _, err := l.tree.Apply(l.id, l.acquire()); !errors.Is(err, cluster.ErrNoNode) {
		t.Errorf("ACQUIRE after LEAVE: %v", err)
	}
}

// A current whose fence was deleted would stay for as long as the session, and nobody could acquire.
func TestLeaveDeletesACurrentWithoutAFence(t *testing.T) {
	l := newLeaver(t)
	l.do(l.id, l.acquire()...)
	elected, _, err := l.tree.Get(0, group.Elected(), false)
	if err != nil {
		t.Fatal(err)
	}
	admin := l.tree.Open()
	fresh := cluster.Fence{Term: 7, State: cluster.FenceRevoked}
	l.do(admin, cluster.Op{Kind: cluster.OpSet, Path: group.Leader(), Version: cluster.AnyVersion, Data: cluster.Encode(&fresh)},
		cluster.Op{Kind: cluster.OpSet, Path: group.Elected(), Version: cluster.AnyVersion, Data: elected})
	if err := l.leave(l.read()); err != nil {
		t.Fatal(err)
	}
	l.gone()
	if names, _, _ := l.tree.Children(0, group.Leader(), false); slices.Contains(names, "current") {
		t.Error("current is left")
	}
}
