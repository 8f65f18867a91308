package cli

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/request"
)

// A group with slots is skipped, and that is said.
func TestRebalanceSkipsGroupsWithSlots(t *testing.T) {
	c := &groupChange{Group: "ingest"}
	var out strings.Builder
	r := rollout{out: &out, changes: []*groupChange{c, {Group: "other", Error: "it cannot be read"}}}
	r.planReelections([]whatif.Question{{Slots: []whatif.Question{}}, {}})
	if err := r.showBalance(); err != nil {
		t.Fatal(err)
	}
	want := "ingest: skipped, because it has slots: to move the first one, run 'zkelectd reelect -g ingest/0'"
	if got := out.String(); !c.NotAffected || !strings.Contains(got, want) || strings.Contains(got, "other") {
		t.Errorf("%+v\n%s", c, got)
	}
}

// A reelection that another request has replaced, or that had nobody to elect, was not held.
func TestReelectionsThatWereNotHeld(t *testing.T) {
	plan := request.Plan{ID: 4}
	for outcome, c := range map[string]struct {
		done bool
		err  string
	}{
		"":                                {false, ""},
		"n2 was elected":                  {true, ""},
		"n1 leads and is the best":        {true, ""},
		"ended by a move":                 {false, "the request has ended: reelection: ended by a move"},
		"ended by another reelection":     {false, "ended by another reelection"},
		"no member is eligible: n1: sick": {false, "no member is eligible: n1: sick"},
		"dropped":                         {false, "another request has replaced it: pause by ann@host"},
	} {
		s := cluster.Snapshot{}.AfterElection(cluster.Elected{Term: 7, Node: "n1", Incarnation: "n1"})
		s.Control = cluster.Stored[cluster.Control]{Exists: true, Record: cluster.Control{LastRequest: "pause by ann@host"}}
		switch outcome {
		case "dropped":
		case "":
			s.Control.Record.Reelect = &cluster.Request{ID: 4}
		default:
			s.Control.Record.End(4, "reelection", outcome, time.Now())
		}
		done, err := reelected(s, plan)
		failed := err != nil && exitStatus(err) == statusFailed && strings.Contains(err.Error(), c.err)
		if done != c.done || failed != (c.err != "") {
			t.Errorf("%q: %v, %v", outcome, done, err)
		}
	}
}
