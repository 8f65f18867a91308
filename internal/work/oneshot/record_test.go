package oneshot

import (
	"errors"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// A run that has ended keeps others from running for a time, by one clock. If that clock has gone back, nothing is known.
func TestRuleByTheServersClock(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	hourly := Rule{OncePer: time.Hour}
	for name, c := range map[string]struct {
		rule  Rule
		ended bool
		ago   time.Duration
		want  string
	}{
		"recent":                         {hourly, true, time.Minute, "skipped"},
		"at the same moment":             {hourly, true, 0, "skipped"},
		"by the clock of another server": {hourly, true, -maxClockStep, "skipped"},
		"long ago":                       {hourly, true, time.Hour, "run"},
		"the clock has gone back":        {hourly, true, -time.Minute, "clock"},
		"back, without an end":           {hourly, false, -time.Minute, "run"},
		"back, at most once":             {Rule{OncePer: time.Hour, AtMostOnce: true}, false, -time.Minute, "clock"},
		"back, no limit":                 {Rule{}, true, -time.Minute, "run"},
	} {
		last := cluster.Stored[cluster.Run]{Exists: true, Record: cluster.Run{Node: "a", Ended: c.ended, Started: start}}
		err := c.rule.check(last, start.Add(c.ago))
		got := "run"
		switch {
		case errors.As(err, new(*SkippedError)):
			got = "skipped"
		case errors.As(err, new(*ClockError)):
			got = "clock"
		}
		if got != c.want {
			t.Errorf("%s: %s (%v), want %s", name, got, err, c.want)
		}
	}
}
