package failsafe

import (
	"maps"
	"slices"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// States are stored in any order: none may take away what another one has said (S1).
func TestMergedStatesForgetNothing(t *testing.T) {
	a := State{Key: "a", Wait: cluster.Duration(5 * time.Second), Vetoed: map[string]int64{"/g": 7, "/h": 2}, Groups: []string{"/g"}}
	b := State{Key: "b", Wait: cluster.Duration(3 * time.Second), Vetoed: map[string]int64{"/g": 6, "/h": 4, "/i": 1}, Groups: []string{"/h", "/g"}}
	before := a.clone()
	for _, got := range []State{a.Merge(b), b.Merge(a), State{Key: "c"}.Merge(a).Merge(b)} {
		slices.Sort(got.Groups)
		if got.Wait != a.Wait || !maps.Equal(got.Vetoed, map[string]int64{"/g": 7, "/h": 4, "/i": 1}) || !slices.Equal(got.Groups, []string{"/g", "/h"}) {
			t.Errorf("%+v", got)
		}
	}
	if got := a.Merge(b); got.Key != "a" || !a.Equal(before) {
		t.Errorf("key %s; changed: %+v", got.Key, a)
	}
	if !a.Equal(a.Merge(State{})) || !a.Equal(a.Merge(a)) {
		t.Error("there is nothing new to store")
	}
	for _, next := range []State{{Wait: a.Wait + 1}, {Vetoed: map[string]int64{"/g": 8}}, {Vetoed: map[string]int64{"/i": 1}}, {Groups: []string{"/i"}}} {
		if a.Equal(a.Merge(next)) {
			t.Errorf("%+v is not stored", next)
		}
	}
	if before.Key = "c"; a.Equal(before) {
		t.Error("two directories are the same")
	}
}

// An older version did not store the groups: then it may have been any.
func TestWhoTookPart(t *testing.T) {
	for _, c := range []struct {
		s    State
		want bool
	}{
		{State{Groups: []string{"/g"}}, true},
		{State{Groups: []string{"/h"}, Wait: 1}, false},
		{State{Wait: 1}, true},
		{State{}, false},
	} {
		if c.s.TookPart("/g") != c.want {
			t.Errorf("%+v: %t", c.s, !c.want)
		}
	}
}
