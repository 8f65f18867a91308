package losses

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

func budget(t *testing.T, session time.Duration) cluster.Budget {
	t.Helper()
	b, err := cluster.NewBudget(session, 0, cluster.DefaultStop(session, 0))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// row is what the table says about one loss, in short.
func row(l Loss) string { return fmt.Sprintf("%s %s %s", l.Kind, l.Outcome, l.Time()) }

func TestTable(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		want   []string
	}{
		"the defaults": {Config{}, []string{
			"daemon next_leader 900ms", "host next_leader 3.67s", "partition next_leader 3.67s",
			"zookeeper no_leader 12.67s after it is back", "stand_still two_leaders 3.67s",
		}},
		"hooks": {Config{Hooks: 2}, []string{
			"daemon next_leader 2.7s", "host next_leader 3.67s", "partition next_leader 3.67s",
			"zookeeper no_leader 12.67s after it is back", "stand_still two_leaders 3.67s",
		}},
		"a longer silence": {Config{LostAfter: 5 * time.Second}, []string{
			"daemon next_leader 900ms", "host next_leader 5s", "partition next_leader 5s",
			"zookeeper no_leader 12.67s after it is back", "stand_still two_leaders 5s",
		}},
		"a silence that is too short to be safe": {Config{LostAfter: 2 * time.Second}, []string{
			"daemon next_leader 900ms", "host next_leader 3.67s", "partition next_leader 3.67s",
			"zookeeper no_leader 12.67s after it is back", "stand_still two_leaders 3.67s",
		}},
		"a device": {Config{DeviceUsed: true, DeviceRequired: true}, []string{
			"daemon next_leader 900ms", "host next_leader 3.67s", "partition next_leader 3.67s",
			"zookeeper no_leader 12.67s after it is back", "stand_still next_leader 3.67s",
		}},
		"required fencing": {Config{Fencing: 41 * time.Second}, []string{
			"daemon next_leader 900ms", "host next_leader 44.67s", "partition next_leader 44.67s",
			"zookeeper no_leader 50s after it is back", "stand_still next_leader 44.67s",
		}},
		"required fencing that is fast": {Config{Fencing: 2 * time.Second}, []string{
			"daemon next_leader 900ms", "host next_leader 5.67s", "partition next_leader 5.67s",
			"zookeeper no_leader 12.67s after it is back", "stand_still next_leader 5.67s",
		}},
		"required fencing that is fast, without the wait": {Config{Fencing: 2 * time.Second, SkipWait: true}, []string{
			"daemon next_leader 900ms", "host next_leader 5.67s", "partition next_leader 5.67s",
			"zookeeper no_leader 11s after it is back", "stand_still next_leader 5.67s",
		}},
		"failsafe mode": {Config{Failsafe: true}, []string{
			"daemon next_leader 900ms", "host next_leader 3.67s", "partition next_leader 3.67s",
			"zookeeper same_leader 0s", "stand_still two_leaders 3.67s",
		}},
		"alone, in failsafe mode": {Config{Alone: true, LostAfter: 5 * time.Second, Failsafe: true}, []string{
			"daemon next_leader 900ms", "host no_leader 12.67s after it is back", "partition no_leader 12.67s after it is back",
			"zookeeper no_leader 12.67s after it is back", "stand_still no_leader 12.67s after it is back",
		}},
	} {
		c.config.Budget = budget(t, 6*time.Second)
		table := Table(c.config)
		if len(table) != len(c.want) {
			t.Fatalf("%s: %d rows", name, len(table))
		}
		for i, l := range table {
			if row(l) != c.want[i] {
				t.Errorf("%s: %s, want %s", name, row(l), c.want[i])
			}
			if l.Why == "" || l.Survived() != (l.Outcome == NextLeader || l.Outcome == SameLeader) {
				t.Errorf("%s: %+v", name, l)
			}
			var sum cluster.Duration
			for _, p := range l.Parts {
				sum += p.For
			}
			if sum != l.Within || (l.Outcome == SameLeader) != (sum == 0) {
				t.Errorf("%s: %s, and the parts are %s", name, row(l), l.Sum())
			}
		}
	}
}

// Without a person nobody leads where one must approve.
func TestLossesWithApproval(t *testing.T) {
	c := Config{Budget: budget(t, 6*time.Second), Confirm: true}
	for _, l := range Table(c) {
		asks := strings.Contains(l.Why, "before a person approves it")
		if want := l.Kind == Host || l.Kind == Partition || l.Kind == StandStill; asks != want {
			t.Errorf("%s: %s", l.Kind, l.Why)
		}
	}
}
