package cluster

import (
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
	for _, name := range []string{"", "n1", "-n_0000000001", "n1-n_1", "n1-n_00000000xx", "n1-n_9999999999", "n1-n_+000000001"} {
		if got, err := ParseIncarnation(name); err == nil {
			t.Errorf("%q is taken for %+v", name, got)
		}
	}
}

// The counter of a parent is 32 bits wide and wraps: the elector must stay the oldest across that.
func TestOlderAcrossTheWrap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Int32().Draw(t, "first")
		var in []Incarnation
		for i := range int32(rapid.IntRange(2, 50).Draw(t, "members")) {
			in = append(in, Incarnation{Name: "x", Seq: first + i*1000})
		}
		shuffled := rapid.Permutation(in).Draw(t, "order")
		slices.SortFunc(shuffled, Older)
		if !slices.Equal(shuffled, in) {
			t.Fatalf("order %v, want %v", shuffled, in)
		}
	})
}

func TestForeignNamesAreKeptApart(t *testing.T) {
	in, foreign := ParseIncarnations([]string{"b-n_0000000002", "junk", "a-n_0000000001"})
	if len(in) != 2 || in[0].ID != "a" || in[1].ID != "b" || !slices.Equal(foreign, []string{"junk"}) {
		t.Errorf("incarnations %v, foreign %v", in, foreign)
	}
}
