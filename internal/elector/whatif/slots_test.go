package whatif

import (
	"maps"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// slots returns the questions about a group with slots, each led by the node of that index.
func slots(t *testing.T, perNode int, leaders ...string) []Question {
	record := cluster.NewSlots(cluster.SlotSize{Count: len(leaders), PerNode: perNode}, "a1", wall)
	var all []Question
	for i, id := range leaders {
		s := four()
		s.Slot, s.Slots = cluster.Paths{}.OfSlot(i).Slot, exists(record)
		all = append(all, question(t, led(s, id)))
	}
	return all
}

// whole returns the question about the group with these slots.
func whole(slots []Question) Question {
	q := slots[0]
	q.Slots = slots
	return q
}

func TestLossesOfSlots(t *testing.T) {
	got := make(map[string]string)
	for _, l := range Losses(whole(slots(t, 2, "a1", "a2", "b1", "b2"))) {
		var leaders []string
		for _, out := range l.Outcomes {
			leaders = append(leaders, out.Leader.ID)
		}
		got[l.Node+l.Site] = strings.Join(leaders, " ")
	}
	want := map[string]string{
		"a1": "a2 a2 b1 b2", "a2": "a1 a1 b1 b2", "b1": "a1 a2 a1 b2", "b2": "a1 a2 b1 a1",
		"dc1": "b1 b2 b1 b2", "dc2": "a1 a2 a1 a2",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	leaderless := 0
	for _, l := range Losses(whole(slots(t, 1, "a1", "a2", "b1", "b2"))) {
		for _, out := range l.Outcomes {
			if !out.HasLeader() {
				leaderless++
			}
		}
	}
	if leaderless != 4*1+2*2 {
		t.Errorf("%d slots have no leader, although each of three or two nodes can lead one", leaderless)
	}
}
