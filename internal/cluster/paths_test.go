package cluster

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestSkeletonListsParentsFirst(t *testing.T) {
	got := Paths{Root: "/a/b"}.Skeleton()
	want := []string{"/a", "/a/b", "/a/b/nodes", "/a/b/election", "/a/b/leader"}
	if !slices.Equal(got, want) {
		t.Errorf("skeleton %v, want %v", got, want)
	}
	p := Paths{Root: "/c"}
	if got := []string{p.Policy(), p.Control(), p.History()}; !slices.Equal(got, []string{"/c/policy", "/c/control", "/c/history"}) {
		t.Errorf("records at %v", got)
	}
	if got, want := p.Persistent(), []string{"/c", "/c/nodes", "/c/election", "/c/leader", "/c/leader/elected", "/c/policy", "/c/control", "/c/roster", "/c/history", "/c/heir", "/c/run", "/c/gamedays", "/c/failsafe-keys", "/c/fencings"}; !slices.Equal(got, want) {
		t.Errorf("persistent znodes %v, want %v", got, want)
	}
	if got := p.ACLProbe(); got != "/c/acl-probe-" {
		t.Errorf("ACL probe %q", got)
	}
}

func TestParseIncarnation(t *testing.T) {
	for name, want := range map[string]Incarnation{
		"n1-n_0000000007":      {ID: "n1", Seq: 7},
		"a-n_b-n_0000000000":   {ID: "a-n_b", Seq: 0},
		"n1-n_-2147483648":     {ID: "n1", Seq: -2147483648},
		"dc 1<x>-n_2147483647": {ID: "dc 1<x>", Seq: 2147483647},
	} {
		want.Name = name
		if got, err := ParseIncarnation(name); err != nil || got != want {
			t.Errorf("%q: %+v, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "n1", "-n_0000000001", "n1-n_1", "n1-n_00000000xx", "n1-n_9999999999", "n1-n_2147483648", "n1-n_000000001", "n1-n_+000000001"} {
		if got, err := ParseIncarnation(name); err == nil {
			t.Errorf("%q is parsed as %+v", name, got)
		}
	}
}

func itself(i Incarnation) Incarnation { return i }

// The counter of a parent has 32 bits and wraps: the oldest incarnation must stay first then.
func TestTheOldestIsFirstAcrossTheWrap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.OneOf(rapid.Int32(), rapid.Int32Range(math.MaxInt32-5000, math.MaxInt32), rapid.Int32Range(-5000, 5)).Draw(t, "first")
		var in []Incarnation
		for i := range int32(rapid.IntRange(1, 50).Draw(t, "members")) {
			in = append(in, Incarnation{Name: "x", Seq: first + i*1000})
		}
		shuffled := rapid.Permutation(in).Draw(t, "order")
		OldestFirst(shuffled, itself)
		if !slices.Equal(shuffled, in) {
			t.Fatalf("order %v, want %v", shuffled, in)
		}
	})
}

// Adjacent sequences are sorted, and so are equal ones, as in a group that was wiped.
func TestAdjacentAndEqualSequencesAreSorted(t *testing.T) {
	for _, want := range [][]Incarnation{
		{{Name: "b", Seq: 0}, {Name: "a", Seq: 1}}, {{Name: "a", Seq: 1}, {Name: "b", Seq: 1}}, {{Name: "b", Seq: -1}, {Name: "a", Seq: 0}},
		{{Name: "a", Seq: math.MaxInt32}, {Name: "b", Seq: math.MinInt32}}, {{Name: "a", Seq: 7}, {Name: "b", Seq: 7}, {Name: "a", Seq: 8}}, {},
	} {
		got := slices.Clone(want)
		slices.Reverse(got)
		if OldestFirst(got, itself); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// Daemons that see the same names get the same order, and forged names do not change the order of the others.
func TestForgedSequencesDoNotChangeTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var own, all []Incarnation
		for i := range int32(5) {
			own = append(own, Incarnation{Name: "real", Seq: 100 + i})
		}
		for _, seq := range rapid.SliceOfN(rapid.Int32(), 0, 40).Draw(t, "forged") {
			all = append(all, Incarnation{Name: "forged", Seq: seq})
		}
		all = append(all, own...)
		one, other := rapid.Permutation(all).Draw(t, "one"), rapid.Permutation(all).Draw(t, "other")
		OldestFirst(one, itself)
		OldestFirst(other, itself)
		rest := slices.DeleteFunc(slices.Clone(one), func(i Incarnation) bool { return i.Name == "forged" })
		if !slices.Equal(one, other) || !slices.Equal(rest, own) {
			t.Fatalf("%v and %v", one, other)
		}
	})
}

func TestForeignNamesAreSeparated(t *testing.T) {
	in, foreign := ParseIncarnations([]string{"b-n_0000000002", "junk", "a-n_0000000001"})
	if len(in) != 2 || in[0].ID != "a" || in[1].ID != "b" || !slices.Equal(foreign, []string{"junk"}) {
		t.Errorf("incarnations %v, foreign %v", in, foreign)
	}
}
