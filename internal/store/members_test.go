package store

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// A follower determines its predecessor again after a failed read.
func TestFollowerThatCannotReadItsPredecessor(t *testing.T) {
	f := newFollower(t)
	before := f.p.Incarnation("elector-0000000000000001-n_0000000000")
	f.failing = map[string]error{before: cluster.ErrNotSent}
	if _, complete := f.collector.Collect(t.Context()); complete {
		t.Error("complete without its predecessor")
	}
	f.failing = nil
	f.collects("again", "election", "election/elector-0000000000000001-n_0000000000", "election/elector-0000000000000001-n_0000000000", "heir")
	f.leave("elector-0000000000000001-n_0000000000")
	f.failing = map[string]error{f.p.Election(): cluster.ErrNotSent}
	if _, complete := f.collector.Collect(t.Context()); complete {
		t.Error("complete without the list")
	}
	f.failing = nil
	if snap, complete := f.collector.Collect(t.Context()); !complete || !snap.Elector {
		t.Errorf("complete: %t, elector: %t", complete, snap.Elector)
	}
}

// An elector whose election list is gone has lost its registration, even before a hint arrives.
func TestElectorWithoutAList(t *testing.T) {
	f := newElector(t)
	f.collector.Collect(t.Context())
	f.before[f.p.Election()] = func() {
		f.do(cluster.Op{Kind: cluster.OpDelete, Path: f.p.Incarnation("b-0000000000000001-n_0000000002"), Version: cluster.AnyVersion},
			cluster.Op{Kind: cluster.OpDelete, Path: f.p.Incarnation(f.self.Name), Version: cluster.AnyVersion},
			cluster.Op{Kind: cluster.OpDelete, Path: f.p.Election(), Version: cluster.AnyVersion})
	}
	if b := f.join("b"); b.Name != "b-0000000000000001-n_0000000002" {
		t.Fatal(b.Name)
	}
	if snap, complete := f.collector.Collect(t.Context()); !complete || !snap.SelfLost || len(snap.Members) != 0 {
		t.Errorf("complete: %t, %+v", complete, snap)
	}
}

// At the end of the counter a newcomer may come before the elector, which then steps down until that one is gone. One that
// no session owns does not count.
func TestElectorThatIsOvertaken(t *testing.T) {
	const end = "-0000000000000001-n_2147483647"
	f := newElector(t)
	f.do(cluster.Op{Kind: cluster.OpDelete, Path: f.p.Incarnation(f.self.Name), Version: cluster.AnyVersion})
	f.self = cluster.Incarnation{Name: "a" + end, ID: "a", Seq: math.MaxInt32}
	if _, err := f.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: f.p.Incarnation(f.self.Name), Ephemeral: true}); err != nil {
		t.Fatal(err)
	}
	f.collector.opt.Self, f.collector.snap.Self = f.self, f.self
	join := func(name string, ephemeral bool) func() {
		return func() {
			f.do(cluster.Op{Kind: cluster.OpCreate, Path: f.p.Incarnation(name + end), Ephemeral: ephemeral})
		}
	}
	for _, step := range []struct {
		what    string
		change  func()
		elector bool
		members int
	}{
		{"alone", func() {}, true, 1},
		{"one comes after it", join("b", true), true, 2},
		{"a forged one comes before it", join("00", false), true, 2},
		{"one comes before it", join("01", true), false, 0},
		{"that one is gone", func() {
			f.do(cluster.Op{Kind: cluster.OpDelete, Path: f.p.Incarnation("01" + end), Version: cluster.AnyVersion})
		}, true, 2},
	} {
		step.change()
		snap, complete := f.collector.Collect(t.Context())
		if !complete || snap.SelfLost || snap.Elector != step.elector || len(snap.Members) != step.members {
			t.Errorf("%s: complete: %t, lost: %t, elector: %t, %d members", step.what, complete, snap.SelfLost, snap.Elector, len(snap.Members))
		}
	}
}

// Before the end of the counter nobody registers before the elector, so whatever appears there does not replace it.
func TestElectorIsNotOvertakenByALowerNumber(t *testing.T) {
	f := newElector(t)
	f.collector.Collect(t.Context())
	f.do(cluster.Op{Kind: cluster.OpCreate, Path: f.p.Incarnation("b-0000000000000001-n_0000000000"), Ephemeral: true})
	if snap, complete := f.collector.Collect(t.Context()); !complete || !snap.Elector {
		t.Errorf("complete: %t, elector: %t", complete, snap.Elector)
	}
}

// A registration is lost if it is gone, damaged or owned by another session.
func TestLostRegistration(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f *fakeSource)
		lost   bool
	}{
		"nothing": {func(*fakeSource) {}, false},
		"its node is gone": {func(f *fakeSource) {
			f.do(cluster.Op{Kind: cluster.OpDelete, Path: f.p.Node("a"), Version: cluster.AnyVersion})
		}, true},
		"its node is damaged": {func(f *fakeSource) { f.set(f.p.Node("a"), "no JSON") }, true},
		"its node is another's": {func(f *fakeSource) {
			f.do(cluster.Op{Kind: cluster.OpDelete, Path: f.p.Node("a"), Version: cluster.AnyVersion},
				cluster.Op{Kind: cluster.OpCreate, Path: f.p.Node("a"), Data: []byte(`{"v":1,"id":"a"}`), Ephemeral: true})
		}, true},
		"its incarnation is gone": {func(f *fakeSource) {
			f.do(cluster.Op{Kind: cluster.OpDelete, Path: f.p.Incarnation(f.self.Name), Version: cluster.AnyVersion})
		}, true},
		"its incarnation is another's": {func(f *fakeSource) {
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

// Incarnations that no session owns, and znodes that are not incarnations, do not prevent elections, and are logged.
func TestInvalidIncarnationsAreIgnored(t *testing.T) {
	f := newFollower(t)
	for i := range 3 {
		f.create(f.p.Incarnation(fmt.Sprintf("foreign%d", i)))
	}
	f.collects("a follower", "election/"+f.self.Name, "leader/elected", "nodes/a", "election", "election/elector-0000000000000001-n_0000000000", "election/elector-0000000000000001-n_0000000000", "heir")
	if f.log.Len() != 0 {
		t.Errorf("a follower logs %s", f.log.String())
	}
	// Its predecessor is created again, and no session owns it.
	f.do(cluster.Op{Kind: cluster.OpDelete, Path: f.p.Incarnation("elector-0000000000000001-n_0000000000"), Version: cluster.AnyVersion})
	f.create(f.p.Incarnation("elector-0000000000000001-n_0000000000"))
	f.log.Reset()
	snap, complete := f.collector.Collect(t.Context())
	if !complete || !snap.Elector || len(snap.Members) != 1 {
		t.Errorf("%t, %+v", complete, snap)
	}
	for _, w := range []string{
		"no session owns", "first=" + f.p.Incarnation("elector-0000000000000001-n_0000000000"), "foreign znodes", "znode=" + f.p.Election(), "count=3", "first=foreign0",
	} {
		if !strings.Contains(f.log.String(), w) {
			t.Errorf("%q is not in %s", w, f.log.String())
		}
	}
}
