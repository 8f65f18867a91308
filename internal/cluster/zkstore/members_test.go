package zkstore

import (
	"fmt"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// Who stands before a follower is found out again where that has failed.
func TestAFollowerThatCannotReadWhoIsBeforeIt(t *testing.T) {
	f := newFollower(t)
	before := f.p.Incarnation("elector-n_0000000000")
	f.failing = map[string]error{before: cluster.ErrNotSent}
	if _, complete := f.collector.Collect(t.Context()); complete {
		t.Error("complete without its predecessor")
	}
	f.failing = nil
	f.collects("again", "election", "election/elector-n_0000000000", "election/elector-n_0000000000")
	f.leave("elector-n_0000000000")
	f.failing = map[string]error{f.p.Election(): cluster.ErrNotSent}
	if _, complete := f.collector.Collect(t.Context()); complete {
		t.Error("complete without the list")
	}
	f.failing = nil
	if snap, complete := f.collector.Collect(t.Context()); !complete || !snap.Elector {
		t.Errorf("complete: %t, elector: %t", complete, snap.Elector)
	}
}

// An elector whose list is gone is lost with it, before it is told.
func TestAnElectorWithoutAList(t *testing.T) {
	f := newElector(t)
	f.collector.Collect(t.Context())
	f.before[f.p.Election()] = func() {
		f.do(cluster.Op{Kind: cluster.OpDelete, Path: f.p.Incarnation("b-n_0000000002"), Version: cluster.AnyVersion},
			cluster.Op{Kind: cluster.OpDelete, Path: f.p.Incarnation(f.self.Name), Version: cluster.AnyVersion},
			cluster.Op{Kind: cluster.OpDelete, Path: f.p.Election(), Version: cluster.AnyVersion})
	}
	if b := f.join("b"); b.Name != "b-n_0000000002" {
		t.Fatal(b.Name)
	}
	if snap, complete := f.collector.Collect(t.Context()); !complete || !snap.SelfLost || len(snap.Members) != 0 {
		t.Errorf("complete: %t, %+v", complete, snap)
	}
}

// A registration that is gone, damaged or another's is lost.
func TestWhatLosesARegistration(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f *follower)
		lost   bool
	}{
		"nothing": {func(*follower) {}, false},
		"its node is gone": {func(f *follower) {
			f.do(cluster.Op{Kind: cluster.OpDelete, Path: f.p.Node("a"), Version: cluster.AnyVersion})
		}, true},
		"its node is damaged": {func(f *follower) { f.set(f.p.Node("a"), "no JSON") }, true},
		"its node is another's": {func(f *follower) {
			f.do(cluster.Op{Kind: cluster.OpDelete, Path: f.p.Node("a"), Version: cluster.AnyVersion},
				cluster.Op{Kind: cluster.OpCreate, Path: f.p.Node("a"), Data: []byte(`{"v":1,"id":"a"}`), Ephemeral: true})
		}, true},
		"its incarnation is gone": {func(f *follower) {
			f.do(cluster.Op{Kind: cluster.OpDelete, Path: f.p.Incarnation(f.self.Name), Version: cluster.AnyVersion})
		}, true},
		"its incarnation is another's": {func(f *follower) {
			f.do(cluster.Op{Kind: cluster.OpDelete, Path: f.p.Incarnation(f.self.Name), Version: cluster.AnyVersion},
				cluster.Op{Kind: cluster.OpCreate, Path: f.p.Incarnation(f.self.Name), Ephemeral: true})
		}, true},
	} {
		f := newFollower(t)
		c.change(f)
		if snap, complete := f.collector.Collect(t.Context()); !complete || snap.SelfLost != c.lost {
			t.Errorf("%s: complete: %t, lost: %t", name, complete, snap.SelfLost)
		}
	}
}

// Incarnations of no session, and what is no incarnation, keep nobody from electing, and are told to people.
func TestWhatIsNoIncarnation(t *testing.T) {
	f := newFollower(t)
	for i := range 3 {
		f.create(f.p.Incarnation(fmt.Sprintf("foreign%d", i)))
	}
	f.collects("a follower", "election/"+f.self.Name, "leader/elected", "nodes/a", "election", "election/elector-n_0000000000", "election/elector-n_0000000000")
	if f.log.Len() != 0 {
		t.Errorf("a follower says %s", f.log.String())
	}
	// The one before it is made anew without a session.
	f.do(cluster.Op{Kind: cluster.OpDelete, Path: f.p.Incarnation("elector-n_0000000000"), Version: cluster.AnyVersion})
	f.create(f.p.Incarnation("elector-n_0000000000"))
	warned := func(what string, times int, words ...string) {
		t.Helper()
		f.log.Reset()
		snap, complete := f.collector.Collect(t.Context())
		if !complete || !snap.Elector || len(snap.Members) != 1 {
			t.Errorf("%s: %t, %+v", what, complete, snap)
		}
		if strings.Count(f.log.String(), "level=WARN") != times {
			t.Errorf("%s: the log says %s", what, f.log.String())
		}
		for _, w := range words {
			if !strings.Contains(f.log.String(), w) {
				t.Errorf("%s: %q is not in %s", what, w, f.log.String())
			}
		}
	}
	warned("ignored", 2, "no session owns", "first="+f.p.Incarnation("elector-n_0000000000"), "foreign znodes", "znode="+f.p.Election(), "count=3", "first=foreign0")
	for i := 3; i < 6; i++ {
		f.create(f.p.Incarnation(fmt.Sprintf("foreign%d", i)))
		warned("some more", 0)
	}
	f.create(f.p.Incarnation("foreign6"))
	warned("more than twice as many", 1, "count=7")
	for i := range 7 {
		f.do(cluster.Op{Kind: cluster.OpDelete, Path: f.p.Incarnation(fmt.Sprintf("foreign%d", i)), Version: cluster.AnyVersion})
	}
	warned("none", 0)
	f.create(f.p.Incarnation("foreign"))
	warned("one again", 1, "count=1", "first=foreign")
	f.collector.InvalidateAll()
	warned("that one", 0)
}
