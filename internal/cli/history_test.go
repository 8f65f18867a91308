package cli

import (
	"io"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// The first read of a follower is shown as a table; later ones only add what is new, also what a gap has hidden.
func TestFollowedHistory(t *testing.T) {
	past := func(terms ...int64) cluster.History {
		var h cluster.History
		for _, n := range terms {
			h.Terms = append(h.Terms, cluster.PastTerm{Term: n, Node: "a"})
		}
		return h
	}
	var out strings.Builder
	d := newTerms{notices: notices{w: io.Discard}, out: &out, last: 2}
	for _, h := range []cluster.History{past(1, 2, 3), past(1, 2, 3), past(2, 3, 5, 6)} {
		if err := d.show(h); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Fields(line)[0])
	}
	if s := strings.Join(got, " "); s != "TERM 2 3 5 6" {
		t.Errorf("%s\n%s", s, out.String())
	}
}

// Each cause is described, in words of its own where its name would not say enough.
func TestTheLastChangeIsDescribed(t *testing.T) {
	for cause, want := range map[cluster.Cause]string{
		cluster.CauseFailure: "the failure of a (dc1)", cluster.CauseSilent: "a (dc1) fell silent",
		cluster.CauseLapsed: "ZooKeeper did not answer a (dc1) in time", cluster.CauseRepair: "repair of a (dc1)",
	} {
		if got := lastChange(cluster.Circumstances{Cause: cause, Node: "a", Site: "dc1"}); got != want {
			t.Errorf("%s: %q, want %q", cause, got, want)
		}
	}
}
