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

func TestLossMovesOnlyWhatTheHostLed(t *testing.T) {
	for _, policyType := range []string{"spread", "fewest"} {
		rapid.Check(t, func(t *rapid.T) {
			for range 5 { // 500 worlds
				questions := settled(t, fleet(t, rapid.IntRange(2, 6).Draw(t, "hosts"), rapid.IntRange(1, 50).Draw(t, "groups"), func(int) cluster.Rules { return cluster.Rules{Type: policyType} }))
				lost := questions[0].Snapshot.Members[rapid.IntRange(0, len(questions[0].Snapshot.Members)-1).Draw(t, "lost")].ID
				for i := range questions {
					questions[i].Change.Without = []string{lost}
				}
				for i, out := range RunAll(questions) {
					before := questions[i].Snapshot.Elected.Record.Node
					if !out.HasLeader() || out.Leader.ID == lost || before != lost && (out.Leader.ID != before || len(out.Steps) > 0) {
						t.Fatalf("%s: %s led, and %s after the loss of %s", questions[i].Options.Group, before, out.Leader.ID, lost)
					}
				}
			}
		})
	}
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

// Groups that follow each other move together, in any order of the questions.
func TestForecastsFollow(t *testing.T) {
	questions := fleet(t, 3, 3, func(i int) cluster.Rules {
		return []cluster.Rules{{Rank: []string{"with:g1", "oldest"}}, {Rank: []string{"with:g2", "oldest"}}, {Rank: []string{"spread"}}}[i]
	})
	questions = settled(t, questions)
	was := questions[2].Snapshot.Elected.Record.Node
	for i := range questions {
		questions[i].Change.Without = []string{was}
	}
	outcomes := RunAll(questions)
	for i, out := range outcomes {
		if out.Leader.ID != outcomes[2].Leader.ID || out.Leader.ID == was || len(out.Steps) != 1 {
			t.Errorf("%s: %s leads after %d steps, g2 is led by %s", questions[i].Options.Group, out.Leader.ID, len(out.Steps), outcomes[2].Leader.ID)
		}
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
