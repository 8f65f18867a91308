package whatif

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"zkelectd/internal/cluster"
)

func TestLossesHaveEachNodeAndSiteOnce(t *testing.T) {
	s := four()
	slices.Reverse(s.Members)
	old := member("a2", "dc3", 0, 99)
	old.Superseded = true
	s.Members = append([]cluster.Member{old}, s.Members...)
	q := question(t, led(s, "a1"))
	q.Change.Without = make([]string, 0, 8)
	q.Change.WithoutSites = make([]string, 0, 8)
	before := cloneSnapshot(q.Snapshot)
	var got []string
	for _, l := range Losses(q) {
		got = append(got, fmt.Sprintf("%s%s: %s", l.Node, l.Site, l.Outcomes[0].Leader.ID))
	}
	want := []string{"a1: a2", "a2: a1", "b1: a1", "b2: a1", "dc1: b1", "dc2: a1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if !reflect.DeepEqual(before, q.Snapshot) || len(q.Change.Without)+len(q.Change.WithoutSites) != 0 {
		t.Error("modified its input")
	}
}
