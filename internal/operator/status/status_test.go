package status

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

func snapshot() cluster.Snapshot {
	member := func(id string, seq int32) cluster.Member {
		return cluster.Member{
			Incarnation: cluster.Incarnation{Name: id + "-1", ID: id, Seq: seq},
			Node:        cluster.Stored[cluster.Node]{Exists: true, Record: cluster.Node{ID: id, Site: "dc1", Priority: 7}},
		}
	}
	return cluster.Snapshot{
		Members: []cluster.Member{member("b", 0), member("a", 1)},
		Elected: cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{
			Node: "a", Site: "dc1", Incarnation: "a-1", Term: 7, Cause: cluster.CauseFirst, Reason: "first election",
			Ranking:    []cluster.Verdict{{Node: "a", Incarnation: "a-1", Rank: 1, Reason: "priority 7"}},
			Exclusions: []cluster.Exclusion{{Node: "b", Strikes: 2, Reason: "stalled"}},
		}},
	}
}

func ready(s cluster.Snapshot) cluster.Snapshot {
	s.Fence = cluster.Stored[cluster.Fence]{Exists: true, Record: cluster.Fence{Node: "a", Incarnation: "a-1", Term: 7, State: cluster.FenceReady}}
	s.Current = cluster.Stored[cluster.Current]{Exists: true, Record: cluster.Current{Node: "a", Site: "dc1", Incarnation: "a-1", Term: 7, State: cluster.CurrentReady}}
	return s
}

func TestStates(t *testing.T) {
	released := snapshot()
	released.Fence = cluster.Stored[cluster.Fence]{Exists: true, Record: cluster.Fence{Incarnation: "a-1", Term: 7, State: cluster.FenceReleased}}
	gone := snapshot()
	gone.Members = gone.Members[:1]
	progress := ready(snapshot())
	progress.Current.Record.State = cluster.CurrentProgress
	for name, c := range map[string]struct {
		s             cluster.Snapshot
		state, leader string
	}{
		"empty":            {cluster.Snapshot{}, StateNone, ""},
		"elected":          {snapshot(), StateWaiting, "a"},
		"taking over":      {progress, "PROGRESS", "a"},
		"leading":          {ready(snapshot()), "READY", "a"},
		"released":         {released, StateNone, ""},
		"elected but gone": {gone, StateNone, ""},
	} {
		if g := Of("c", "/c", c.s); g.State != c.state || g.Leader != c.leader {
			t.Errorf("%s: %s %q, want %s %q", name, g.State, g.Leader, c.state, c.leader)
		}
	}
}

func TestHandoverInProgress(t *testing.T) {
	s := ready(snapshot())
	s.Elected.Record.Term, s.Elected.Record.Node, s.Elected.Record.Reason = 8, "b", "b is better"
	g := Of("c", "/c", s)
	if g.Leader != "a" || g.Term != 7 || g.Reason != "" || !strings.Contains(g.Table(), "Next     b, term 8 (first: b is better)") {
		t.Errorf("%+v\n%s", g, g.Table())
	}
}

func TestWaitIsShownWhileItLasts(t *testing.T) {
	s := ready(snapshot())
	s.Fence.Record.Wait = "3s, as a\tb"
	if g := Of("c", "/c", s); g.Waiting != "" {
		t.Errorf("READY, and waiting %s", g.Waiting)
	}
	s.Fence.Record.State, s.Current.Record.State = cluster.FenceHeld, cluster.CurrentProgress
	if g := Of("c", "/c", s); g.Waiting != s.Fence.Record.Wait || !strings.Contains(g.Table(), "\nWaiting  3s, as a?b\n") {
		t.Errorf("%q:\n%s", g.Waiting, g.Table())
	}
	s.Fence.Record.Term--
	if g := Of("c", "/c", s); g.Waiting != "" {
		t.Errorf("the wait of an earlier term: %s", g.Waiting)
	}
}

func TestQueuedTakeoverIsShown(t *testing.T) {
	s := ready(snapshot())
	s.Fence.Record.State, s.Current.Record.State = cluster.FenceHeld, cluster.CurrentProgress
	for i := range s.Members {
		s.Members[i].Node.Record.Queued = s.Members[i].ID == "a"
	}
	if g := Of("c", "/c", s); !g.Members[0].Queued || g.Members[1].Queued || g.Waiting != "a starts the work of other groups first" {
		t.Errorf("%q, %+v", g.Waiting, g.Members)
	}
	s.Current.Record.State = cluster.CurrentReady // in a group with slots, another slot is queued
	if g := Of("c", "/c", s); g.Waiting != "" {
		t.Errorf("READY, and waiting: %q", g.Waiting)
	}
}

// Versions that decide are shown, also during a rolling upgrade.
func TestTheTableHasTheVersionsByWhichThePolicyRanks(t *testing.T) {
	s := ready(snapshot())
	s.Policy.Exists, s.Policy.Err = true, nil
	s.Policy.Record.Rules.Rank = []string{"newest:app", "site", "oldest:data\tbase", "newest:app"}
	s.Members[0].Node.Record.Labels = map[string]string{"app": "1.10.2", "other": "x"}
	first := s.Members[0].ID
	s.Roster = cluster.Stored[cluster.Roster]{Exists: true, Record: cluster.Roster{Nodes: []cluster.RosterNode{
		{ID: "gone", Site: "dc1", Left: &cluster.Left{How: cluster.LeftLost}},
	}}}
	for _, table := range []string{Of("c", "/c", s).Table(), Of("c", "/c", s).WideTable()} {
		for _, want := range []string{`(?m)^NODE +SITE +PRIORITY +app +data\?base +ROLE `, `(?m)^` + first + ` .* 1\.10\.2 +- +`, `(?mi)^gone +dc1 +- +- +- +lost`} {
			if !regexp.MustCompile(want).MatchString(table) {
				t.Errorf("no %q in\n%s", want, table)
			}
		}
	}
}

func TestClearedOrExpiredStrikeIsNotInForce(t *testing.T) {
	for name, c := range map[string]struct {
		x        cluster.Exclusion
		cleared  []cluster.ClearedStrikes
		listed   bool
		excluded bool
	}{
		"in force":     {cluster.Exclusion{Time: time.Now(), For: cluster.Duration(time.Hour)}, nil, true, true},
		"run out":      {cluster.Exclusion{Time: time.Now().Add(-2 * time.Hour), For: cluster.Duration(time.Hour)}, nil, true, false},
		"cleared":      {cluster.Exclusion{Time: time.Now(), For: cluster.Duration(time.Hour)}, []cluster.ClearedStrikes{{Node: "b", Term: 7}}, false, false},
		"not cleared":  {cluster.Exclusion{Time: time.Now(), For: cluster.Duration(time.Hour)}, []cluster.ClearedStrikes{{Node: "a", Term: 7}}, true, true},
		"earned since": {cluster.Exclusion{Time: time.Now(), For: cluster.Duration(time.Hour), Term: 8}, []cluster.ClearedStrikes{{Term: 7}}, true, true},
	} {
		s := snapshot()
		c.x.Node, c.x.Strikes = "b", 1
		s.Elected.Record.Exclusions = []cluster.Exclusion{c.x}
		s.Control.Record.ClearedStrikes = c.cleared
		g := Of("c", "/c", s)
		if (len(g.Exclusions) == 1) != c.listed || strings.Contains(g.Members[1].Eligible, "excluded") != c.excluded || strings.Contains(g.Table(), "Excluded b") != c.excluded {
			t.Errorf("%s: %+v\n%s", name, g.Exclusions, g.Table())
		}
	}
}

// A member that may not lead keeps no other one from it, though its standby is warm.
func TestAWarmStandbyThatMayNotLead(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*cluster.Elected)
		want   string
	}{
		"it may": {func(*cluster.Elected) {}, "its standby is cold"},
		"excluded": {func(e *cluster.Elected) {
			e.Exclusions = []cluster.Exclusion{{Node: "a", Strikes: 1, Time: time.Now(), For: cluster.Duration(time.Hour)}}
		}, CanLead},
		"silent": {func(e *cluster.Elected) { e.Silent = []string{"a-1"} }, CanLead},
	} {
		s := snapshot()
		s.Elected.Record.Incarnation, s.Elected.Record.Exclusions = "gone", nil
		s.Members[0].Node.Record.Standby = &cluster.Standby{State: cluster.StandbyCold}
		c.change(&s.Elected.Record)
		if got := eligible(s, s.Members[0]); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Without a leader the reason of the last election is not why nobody leads.
func TestTableWithoutALeaderNamesTheLastElection(t *testing.T) {
	t.Parallel()
	g := Group{State: StateNone, Cause: "silent", Reason: "n2 is silent"}
	if text := g.Table(); strings.Contains(text, "Why ") || !strings.Contains(text, "Last     the last election was for silent: n2 is silent") {
		t.Error(text)
	}
}
