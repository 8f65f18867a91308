package losses

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

const ms = time.Millisecond

func budget(t *testing.T, session time.Duration) cluster.Budget {
	t.Helper()
	b, err := cluster.NewBudget(session, cluster.DefaultStop(session))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// row is what the table says about one loss, in short.
func row(l Loss) string { return fmt.Sprintf("%s %s %s", l.Kind, l.Outcome, l.Time()) }

func TestTable(t *testing.T) {
	fencing := Fencing{Enabled: true, Limit: 41 * time.Second}
	required := Fencing{Enabled: true, Required: true, Limit: 41 * time.Second}
	for name, c := range map[string]struct {
		config Config
		want   []string
	}{
		"the defaults": {Config{}, []string{
			"daemon next_leader 900ms", "host next_leader 12.67s", "partition next_leader 12.67s",
			"zookeeper no_leader 12.67s after it is back", "stand_still two_leaders 12.67s",
		}},
		"hooks": {Config{Hooks: 2}, []string{
			"daemon next_leader 2.7s", "host next_leader 12.67s", "partition next_leader 12.67s",
			"zookeeper no_leader 12.67s after it is back", "stand_still two_leaders 12.67s",
		}},
		"a device": {Config{Device: Device{Used: true, Required: true}}, []string{
			"daemon next_leader 900ms", "host next_leader 12.67s", "partition next_leader 12.67s",
			"zookeeper no_leader 12.67s after it is back", "stand_still next_leader 12.67s",
		}},
		"fencing that may fail": {Config{Fencing: Fencing{Enabled: true, SkipWait: true, Limit: fencing.Limit}}, []string{
			"daemon next_leader 900ms", "host next_leader 12.67s", "partition next_leader 12.67s",
			"zookeeper no_leader 12.67s after it is back", "stand_still two_leaders 12.67s",
		}},
		"required fencing": {Config{Fencing: required}, []string{
			"daemon next_leader 900ms", "host next_leader 50s", "partition next_leader 50s",
			"zookeeper no_leader 50s after it is back", "stand_still next_leader 50s",
		}},
		"required fencing that is fast": {Config{Fencing: Fencing{Enabled: true, Required: true, Limit: 2 * time.Second}}, []string{
			"daemon next_leader 900ms", "host next_leader 12.67s", "partition next_leader 12.67s",
			"zookeeper no_leader 12.67s after it is back", "stand_still next_leader 12.67s",
		}},
		"required fencing that is fast, without the wait": {Config{Fencing: Fencing{Enabled: true, Required: true, SkipWait: true, Limit: 2 * time.Second}}, []string{
			"daemon next_leader 900ms", "host next_leader 11s", "partition next_leader 11s",
			"zookeeper no_leader 11s after it is back", "stand_still next_leader 11s",
		}},
		"failsafe mode": {Config{Failsafe: Failsafe{Enabled: true}}, []string{
			"daemon next_leader 900ms", "host next_leader 12.67s", "partition next_leader 12.67s",
			"zookeeper same_leader 0s", "stand_still two_leaders 12.67s",
		}},
		"alone, in failsafe mode": {Config{Alone: true, Failsafe: Failsafe{Enabled: true}}, []string{
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

// What was measured with real servers takes no longer than what the table says: the loss of a host, and a partition.
func TestNothingMeasuredContradictsTheTable(t *testing.T) {
	for _, m := range []struct {
		session     time.Duration
		host, apart time.Duration
	}{
		{4 * time.Second, 7830 * ms, 7720 * ms}, {6 * time.Second, 10840 * ms, 11540 * ms}, {10 * time.Second, 17730 * ms, 17640 * ms},
	} {
		for _, l := range Table(Config{Budget: budget(t, m.session)}) {
			if measured := map[Kind]time.Duration{Host: m.host, Partition: m.apart}[l.Kind]; measured > time.Duration(l.Within) {
				t.Errorf("T = %s: %s took %s, said are %s", m.session, l.Kind, measured, l.Time())
			}
		}
	}
}

// The reasons name the limit of failsafe mode, and the sum its parts.
func TestWords(t *testing.T) {
	table := Table(Config{Budget: budget(t, 6*time.Second), Failsafe: Failsafe{Enabled: true, Max: time.Hour}})
	for i, want := range []string{"the guard kills the work", "veto", "at most 1h0m0s", "at most 1h0m0s", "watchdog_device.mode"} {
		if l := table[i]; !strings.Contains(l.Why, want) {
			t.Errorf("%s: %s", l.Kind, l.Why)
		}
	}
	if got := table[1].Sum(); got != "end of the session 9s + lease wait 3.67s" {
		t.Error(got)
	}
}
