package zk

import (
	"errors"
	"io"
	"testing"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// A watch that was lost is noticed: everything of its group is read again, and nothing of the others.
func TestLostWatchIsNoticed(t *testing.T) {
	s, other := open(t, Options{}), open(t, Options{})
	p, q := root(t, s), root(t, s)
	g, neighbor := s.Group(p), s.Group(q)
	if _, _, err := neighbor.Get(t.Context(), q.Leader(), true); err != nil {
		t.Fatal(err)
	}
	set := func(path string) func() {
		return func() {
			op := cluster.Op{Kind: cluster.OpSet, Path: path, Version: cluster.AnyVersion, Data: []byte("x")}
			if _, err := other.Do(t.Context(), op); err != nil {
				t.Fatal(err)
			}
		}
	}
	add := func(path string) func() {
		return func() {
			if _, err := other.Do(t.Context(), create(path, false)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		w      watch
		change func()
	}{
		"data":     {watch{p.Leader(), false}, set(p.Leader())},
		"creation": {watch{p.Elected(), false}, add(p.Elected())},
		"children": {watch{p.Election(), true}, add(p.Election() + "/x")},
	} {
		a := s.arm(c.w) // without setting it: as if it was lost
		var stat cluster.Stat
		var err error
		if c.w.children {
			_, stat, err = s.Children(t.Context(), c.w.path, false)
		} else {
			_, stat, err = s.Get(t.Context(), c.w.path, false)
		}
		s.checkWatch(c.w)
		s.noteRead(c.w, a, stat, err)
		s.checkWatch(c.w)
		if g.TakeHints().All || s.armed[c.w] != a {
			t.Errorf("%s: nothing has changed", name)
		}
		c.change()
		s.checkWatch(c.w)
		if !g.TakeHints().All || s.armed[c.w] != nil {
			t.Errorf("%s: the change is not noticed", name)
		}
		s.checkWatch(c.w) // not armed any more
		if g.TakeHints().All || neighbor.TakeHints().All || s.armed[watch{q.Leader(), false}] == nil {
			t.Errorf("%s: others are hinted", name)
		}
	}
}

// A check is compared only with the read of the same watch: if the watch has fired meanwhile, the check proves nothing.
func TestFiredWatchIsNotLost(t *testing.T) {
	s := open(t, Options{})
	g := s.Group(cluster.Paths{Root: "/a"})
	w := watch{"/a/b", false}
	old := s.arm(w)
	s.noteRead(w, old, cluster.Stat{Modified: 1}, nil)
	s.mu.Lock()
	delete(s.armed, w)
	s.mu.Unlock()
	fresh := s.arm(w)
	s.noteRead(w, fresh, cluster.Stat{Modified: 2}, nil)
	if s.compare(w, old, cluster.Stat{Modified: 1}) || g.TakeHints().All {
		t.Error("an old check counts")
	}
	if s.compare(w, fresh, cluster.Stat{Modified: 2}) {
		t.Error("nothing has changed")
	}
	s.noteRead(w, old, cluster.Stat{}, errors.New("a late failure of the first read"))
	if s.armed[w] != fresh {
		t.Error("it disarms another watch")
	}
	if !s.compare(w, fresh, cluster.Stat{}) {
		t.Error("the deletion is not noticed")
	}
}

// A second reader of a znode sets the watch as well while the first one is setting it: the server may answer the second one first.
func TestTwoReadersSetAWatch(t *testing.T) {
	s := bareSession(t, io.Discard)
	w := watch{"/a", false}
	first := s.arm(w)
	if second := s.arm(w); second == nil || s.armed[w] != first {
		t.Error("the second reader relies on a watch that may not be set yet")
	}
	s.noteRead(w, first, cluster.Stat{}, nil)
	if s.arm(w) != nil {
		t.Error("the watch is set twice")
	}
}

// The handle of a slot gets the hints of its slot and of what all slots share.
func TestHintsOfSlots(t *testing.T) {
	s := bareSession(t, io.Discard)
	p := cluster.Paths{Root: "/g"}
	one, ten := s.Group(p.OfSlot(1)), s.Group(p.OfSlot(10))
	for path, want := range map[string][2]bool{
		p.Slots(): {true, true}, p.Election(): {true, true}, p.Node("a"): {true, true},
		p.OfSlot(1).Leader(): {true, false}, p.OfSlot(1).Elected(): {true, false}, p.OfSlot(10).Current(): {false, true}, p.OfSlot(2).Leader(): {false, false},
	} {
		s.event(zk.Event{Type: zk.EventNodeDataChanged, Path: path})
		first, second := one.TakeHints(), ten.TakeHints()
		if got := [2]bool{first.Has(path), second.Has(path)}; got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
