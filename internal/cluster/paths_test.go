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
	if got, want := p.Persistent(), []string{"/c", "/c/nodes", "/c/election", "/c/leader", "/c/leader/elected", "/c/policy", "/c/control", "/c/roster", "/c/history", "/c/heir", "/c/run", "/c/failsafe-keys", "/c/fencings", "/c/rollcall"}; !slices.Equal(got, want) {
		t.Errorf("persistent znodes %v, want %v", got, want)
	}
	if got := p.ACLProbe(); got != "/c/acl-probe-" {
		t.Errorf("ACL probe %q", got)
	}
}

func TestParseIncarnation(t *testing.T) {
	for name, want := range map[string]Incarnation{
		"n1-0123456789abcdef-n_0000000007":      {ID: "n1", Seq: 7},
		"a-n_b-0123456789abcdef-n_0000000000":   {ID: "a-n_b", Seq: 0},
		"n1-0123456789abcdef-n_-2147483648":     {ID: "n1", Seq: -2147483648},
		"dc 1<x>-0123456789abcdef-n_2147483647": {ID: "dc 1<x>", Seq: sequenceEnd},
	} {
		want.Name = name
		if got, err := ParseIncarnation(name); err != nil || got != want || got.AtSequenceEnd() != (want.Seq < 0 || want.Seq == math.MaxInt32) {
			t.Errorf("%q: %+v, %v", name, got, err)
		}
	}
	for _, name := range []string{
		"", "n1", "n1-n_0000000001", "n1-0123456789abcde-n_0000000001", "n1-0123456789ABCDEF-n_0000000001", "n1-0123456789abcde.-n_0000000001",
		"n1_0123456789abcdef-n_0000000001", "-0123456789abcdef-n_0000000001", "0123456789abcdef-n_0000000001",
	} {
		if got, err := ParseIncarnation(name); err == nil {
			t.Errorf("%q is parsed as %+v", name, got)
		}
	}
	for _, seq := range []string{"1", "00000000xx", "9999999999", "2147483648", "000000001", "+000000001"} {
		if got, err := ParseIncarnation("n1-0123456789abcdef-n_" + seq); err == nil {
			t.Errorf("%q is parsed as %+v", seq, got)
		}
	}
}

func TestRegisteredTellsIncarnationsApart(t *testing.T) {
	n := Node{ID: "n1", Instance: NewInstance(0xabc)}
	for name, want := range map[string]bool{
		"n1-0000000000000abc-n_0000000007":    true,
		"n1-0000000000000abd-n_0000000007":    false,
		"n2-0000000000000abc-n_0000000007":    false,
		"x-n1-0000000000000abc-n_0000000007":  false,
		"n1-n1-0000000000000abc-n_0000000007": false,
	} {
		if i, err := ParseIncarnation(name); err != nil || n.Registered(i) != want {
			t.Errorf("%s: %v, %v", name, n.Registered(i), err)
		}
	}
}

func itself(i Incarnation) Incarnation { return i }

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
	in, foreign := ParseIncarnations([]string{"b-0000000000000001-n_0000000002", "junk", "a-0000000000000001-n_0000000001"})
	if len(in) != 2 || in[0].ID != "a" || in[1].ID != "b" || !slices.Equal(foreign, []string{"junk"}) {
		t.Errorf("incarnations %v, foreign %v", in, foreign)
	}
}
