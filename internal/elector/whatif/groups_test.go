package whatif

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
)

// fleet returns questions about groups whose members are all hosts. All of them have leaders after [RunAll].
func fleet(t rapid.TB, hosts, groups int, rules func(i int) cluster.Rules) []Question {
	var s cluster.Snapshot
	for i := range hosts {
		s.Members = append(s.Members, member(fmt.Sprintf("h%d", i), "dc1", int32(i+1), 100))
	}
	var all []Question
	for i := range groups {
		q := question(t, s, rules(i))
		q.Options.Group = fmt.Sprintf("g%d", i)
		all = append(all, q)
	}
	return all
}

// settled returns the questions after their forecasts.
func settled(t rapid.TB, questions []Question) []Question {
	t.Helper()
	for i, out := range RunAll(questions) {
		if !out.HasLeader() {
			t.Fatalf("%s has no leader: %s", questions[i].Options.Group, out.Refusals())
		}
		questions[i].Snapshot = led(questions[i].Snapshot, out.Leader.ID)
	}
	return questions
}

func TestForecastsOfGroupsAreEven(t *testing.T) {
	questions := settled(t, fleet(t, 5, 40, func(int) cluster.Rules { return cluster.Rules{Type: "fewest"} }))
	b := BalanceOf(RunAll(questions))
	if b.Groups != 40 || b.Nodes != 5 || b.Most > 9 || b.Ratio > 1.1+1.0/8 || b.WeightedRatio != b.Ratio {
		t.Errorf("%+v", b)
	}
	for i := range questions {
		questions[i].Change.Without = []string{"h0"}
	}
	if b := BalanceOf(RunAll(questions)); b.Groups != 40 || b.Nodes != 4 || b.Most > 12 {
		t.Errorf("after a loss: %+v", b)
	}
}

func TestForecastsOfRelatedGroupsEnd(t *testing.T) {
	questions := fleet(t, 2, 2, func(i int) cluster.Rules {
		return cluster.Rules{Rank: []string{fmt.Sprintf("apart:g%d", 1-i), "oldest"}}
	})
	for i := range questions {
		questions[i].Snapshot = led(questions[i].Snapshot, "h0")
	}
	outcomes := RunAll(questions)
	if outcomes[0].Leader.ID != "h0" || outcomes[1].Leader.ID != "h1" || len(outcomes[0].Steps) != 0 || len(outcomes[1].Steps) != 1 {
		t.Errorf("%s and %s", outcomes[0].Leader.ID, outcomes[1].Leader.ID)
	}
}
