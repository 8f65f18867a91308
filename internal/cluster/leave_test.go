package cluster_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
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
		Slots: []cluster.DepartingSlot{{SlotState: cluster.SlotState{
			Fence:   fenceOf(cluster.Fence{Term: 8, Node: "n1", Incarnation: own, State: cluster.FenceReady}),
			Current: cluster.Stored[cluster.Current]{Exists: true, Stat: cluster.Stat{Owner: session, Version: 5}},
		}}},
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
		return func(d *cluster.Departure) { d.Slots[0].Fence.Record.State = s }
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
			d.Slots[0].Fence.Record.Incarnation = "n2-0000000000000001-n_0000000002"
			d.Slots[0].Current.Stat.Owner = 8
		}, check + " " + self + " " + node},
		"a standby": {func(d *cluster.Departure) {
			d.Slots[0].Fence.Record.State = cluster.FenceReleased
			d.Slots[0].Current.Exists = false
		}, check + " " + self + " " + node},
		"a slot of another": {func(d *cluster.Departure) {
			l := &d.Slots[0]
			l.Fence.Record.Incarnation, l.Current.Stat.Owner = "n2-0000000000000001-n_0000000002", 8
			l.Slot, l.Elected = "3", cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Node: "n2"}}
		}, self + " " + node},
		"a slot of another, which it has not left": {func(d *cluster.Departure) {
			l := &d.Slots[0]
			l.Fence.Record.State = cluster.FenceRevoked
			l.Slot, l.Elected = "3", cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Node: "n2"}}
		}, "check /c/slots/3@4 delete /c/slots/3/current@5 " + self + " " + node},
		"a slot that it is elected for": {func(d *cluster.Departure) {
			l := &d.Slots[0]
			l.Fence.Record.Incarnation, l.Current.Stat.Owner = "n2-0000000000000001-n_0000000002", 8
			l.Slot, l.Elected = "3", cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Node: "n1"}}
		}, "check /c/slots/3@4 " + self + " " + node},
		"a slot without a readable decision": {func(d *cluster.Departure) {
			l := &d.Slots[0]
			l.Fence.Record.Incarnation, l.Current.Stat.Owner = "n2-0000000000000001-n_0000000002", 8
			l.Slot, l.Elected = "3", cluster.Stored[cluster.Elected]{Exists: true, Err: cluster.ErrInvalid}
		}, "check /c/slots/3@4 " + self + " " + node},
		"a slot that another is elected for": {func(d *cluster.Departure) {
			l := &d.Slots[0]
			l.Slot, l.Elected = "3", cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Node: "n2"}}
		}, "set /c/slots/3@4 delete /c/slots/3/current@5 " + self + " " + node},
		"no fence":               {func(d *cluster.Departure) { d.Slots[0].Fence = cluster.Stored[cluster.Fence]{} }, current + " " + self + " " + node},
		"a damaged fence":        {func(d *cluster.Departure) { d.Slots[0].Fence = unreadable("garbage", 4) }, check + " " + current + " " + self + " " + node},
		"a fence never written":  {func(d *cluster.Departure) { d.Slots[0].Fence = unreadable("", 0) }, "check /c/leader@0 " + current + " " + self + " " + node},
		"another's node":         {func(d *cluster.Departure) { d.Node.Stat.Owner = 8 }, set + " " + current + " " + self},
		"no node":                {func(d *cluster.Departure) { d.Node.Exists = false }, set + " " + current + " " + self},
		"no incarnation":         {func(d *cluster.Departure) { d.Incarnations = nil }, set + " " + current + " " + node},
		"an unknown incarnation": {func(d *cluster.Departure) { d.Self = "" }, set + " " + current + " " + self + " " + node},
		"two incarnations": {func(d *cluster.Departure) {
			d.Incarnations = append(d.Incarnations, "n1-0000000000000001-n_0000000009")
		}, set + " " + current + " " + self + " delete /c/election/n1-0000000000000001-n_0000000009@-1 " + node},
		"only the fence": {func(d *cluster.Departure) {
			d.Incarnations, d.Slots[0].Current.Exists, d.Node.Exists = nil, false, false
		}, set},
		"nothing": {func(d *cluster.Departure) {
			state(cluster.FenceReleased)(d)
			d.Incarnations, d.Slots[0].Current.Exists, d.Node.Exists = nil, false, false
		}, ""},
		"nothing, and no fence": {func(d *cluster.Departure) { *d = cluster.Departure{ID: "n1", Session: session} }, ""},
		"never known, others lead": {func(d *cluster.Departure) {
			*d = cluster.Departure{ID: "n1", Session: session, Slots: make([]cluster.DepartingSlot, 1)}
			d.Slots[0].Fence = fenceOf(cluster.Fence{State: cluster.FenceReady, Incarnation: "n2-0000000000000001-n_0000000002"})
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
	ops, err := group.LeaveTx(departing(func(d *cluster.Departure) { d.Slots[0].Fence = unreadable(`{"v":3}`, 4) }))
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
			d.Slots[0].Fence, d.Slots[0].Owed, d.Slots[0].Unproven = fenceOf(f), c.knows, c.knows == unproven
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
