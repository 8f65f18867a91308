package status

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// states are the states of docs/operations.md, each with its severity and the first words that every view says.
func states(now time.Time) []struct {
	state string
	c     Condition
	want  Severity
	says  string
} {
	const ready, progress, bound = string(cluster.CurrentReady), string(cluster.CurrentProgress), 12 * time.Second
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	with := func(c Condition) Condition { c.Leader, c.Bound, c.Members = "n1", bound, 3; return c }
	return []struct {
		state string
		c     Condition
		want  Severity
		says  string
	}{
		{"a leader and a standby", with(Condition{State: ready}), SeverityOK, ""},
		{"a leader whose lease is not confirmed", with(Condition{State: ready, Unconfirmed: "no answer"}), SeverityWarning, "the lease of n1 is not confirmed: no answer"},
		{"a host is lost", with(Condition{State: ready, Lost: []string{"n4"}}), SeverityWarning, "lost: n4"},
		{"nobody could take over, or another problem", with(Condition{State: ready, Problems: []string{"nobody could take over from n1"}}), SeverityWarning, "nobody could take over from n1"},
		{"paused hard, with a leader", with(Condition{State: ready, HardPause: "PAUSED HARD, a leader that fails is not replaced"}), SeverityWarning, "PAUSED HARD, a leader that fails is not replaced"},
		{"a leader, but each member has failed: it crashes again and again", with(Condition{State: ready, ReadySince: ago(59 * time.Second), Failing: "every member that could lead has failed"}), SeverityCritical, "n1 leads, but may fail again: every member that could lead has failed"},
		{"the same, and it has been READY for a minute", with(Condition{State: ready, ReadySince: ago(time.Minute), Failing: "every member that could lead has failed"}), SeverityWarning, "n1 leads, but may fail again: every member that could lead has failed"},
		{"a failover, not longer than any takes", with(Condition{State: progress, LeaderlessSince: ago(bound)}), SeverityWarning, "no leader: n1 is taking over"},
		{"longer: the work does not get ready", with(Condition{State: progress, LeaderlessSince: ago(30 * time.Second)}), SeverityCritical, "no leader: n1 is taking over, for 30s, longer than a failover takes (12s)"},
		{"longer: the elected member does not take over", with(Condition{State: StateWaiting, LeaderlessSince: ago(30 * time.Second)}), SeverityCritical, "no leader: n1 is elected, and has not taken over, for 30s"},
		{"each member fails again and again", with(Condition{State: progress, LeaderlessSince: now, Failing: "every member that could lead has failed"}), SeverityCritical, "no leader: n1 is taking over; every member that could lead has failed"},
		{"no leader; an election is due", with(Condition{State: StateNone, LeaderlessSince: ago(time.Second)}), SeverityWarning, "no leader"},
		{"no leader, since when is not known", with(Condition{State: StateNone}), SeverityCritical, "no leader"},
		{"nobody can lead: all cordoned, unhealthy, or paused hard", with(Condition{State: StateNone, NoLeader: "n1: cordoned", LeaderlessSince: now}), SeverityCritical, "no leader: n1: cordoned"},
		{"the elected member can't take over: a foreign znode, failsafe stuck", with(Condition{State: StateWaiting, Blocked: true, Lost: []string{"n4"}, Problems: []string{"n4 may still work in failsafe mode"}, LeaderlessSince: now}), SeverityCritical, "no leader: n1 is elected, and has not taken over; n4 may still work in failsafe mode; lost"},
		{"no daemon is registered, also if that is on purpose", Condition{State: StateNone, LeaderlessSince: now}, SeverityCritical, "no leader: no daemon is registered"},
	}
}

// The table of docs/operations.md has exactly these states.
func TestSeverity(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	table := "| state of the group | severity | every view says |\n| --- | --- | --- |\n"
	for _, s := range states(now) {
		got, reasons := s.c.Judge(now)
		text := strings.Join(reasons, "; ")
		if got != s.want || !strings.HasPrefix(text, s.says) || s.says == "" && text != "" {
			t.Errorf("%s: got %s, %q, want %s, %q", s.state, got, text, s.want, s.says)
		}
		table += fmt.Sprintf("| %s | %s | %s |\n", s.state, got, text)
	}
	if !strings.Contains(string(doc), table) {
		t.Errorf("docs/operations.md does not have this table:\n%s", table)
	}
}

// What a snapshot shows of the time without a leader outlives failed takeovers.
func TestLeaderlessSince(t *testing.T) {
	t.Parallel()
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	elected := func(term int64, leaderless *cluster.Gap, made time.Time) cluster.Stored[cluster.Elected] {
		return cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Term: term, Incarnation: "i", Leaderless: leaderless, Time: made}}
	}
	fence := func(term int64, state cluster.FenceState, led bool) cluster.Stored[cluster.Fence] {
		return cluster.Stored[cluster.Fence]{Exists: true, Record: cluster.Fence{Term: term, Incarnation: "i", State: state, Led: led, Time: at(50)}}
	}
	idle := func(f cluster.Stored[cluster.Fence], gap *cluster.Gap, lost bool) cluster.Stored[cluster.Fence] {
		f.Record.Idle, f.Record.Lost, f.Stat.Time = gap, lost, at(60)
		return f
	}
	for name, c := range map[string]struct {
		s    cluster.Snapshot
		want time.Time
	}{
		"has stopped slowly":   {cluster.Snapshot{Elected: elected(4, nil, at(40)), Fence: idle(fence(3, cluster.FenceReleased, true), &cluster.Gap{For: cluster.Duration(2 * time.Second)}, false)}, at(48)},
		"FINAL, sent later":    {cluster.Snapshot{Elected: elected(3, nil, at(40)), Fence: idle(fence(3, cluster.FenceReleased, true), cluster.AtLeast(0), true)}, at(60)},
		"READY says of before": {cluster.Snapshot{Elected: elected(3, nil, at(40)), Fence: idle(fence(3, cluster.FenceReady, false), cluster.AtLeast(9), false)}, time.Time{}},
		"failed before":        {cluster.Snapshot{Elected: elected(3, cluster.AtMost(33*time.Second), at(40)), Fence: fence(3, cluster.FenceHeld, false)}, at(7)},
		"led, then released":   {cluster.Snapshot{Elected: elected(3, cluster.AtMost(33*time.Second), at(40)), Fence: fence(3, cluster.FenceReleased, true)}, at(50)},
		"never ready":          {cluster.Snapshot{Elected: elected(3, cluster.AtMost(33*time.Second), at(40)), Fence: fence(3, cluster.FenceRevoked, false)}, at(7)},
		"moved, has acquired":  {cluster.Snapshot{Elected: elected(3, nil, at(40)), Fence: fence(3, cluster.FenceHeld, false)}, at(50)},
		"elected, not current": {cluster.Snapshot{Elected: elected(4, nil, at(40)), Fence: fence(3, cluster.FenceReady, false)}, at(40)},
		"gone, not noted":      {cluster.Snapshot{Elected: elected(3, nil, at(40)), Fence: fence(3, cluster.FenceReady, false)}, time.Time{}},
	} {
		if got := c.s.LeaderlessSince(); !got.Equal(c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
