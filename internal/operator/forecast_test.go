package operator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/policy"
)

// failedGroup returns a group that n1 leads since led, in which the nodes have just failed.
func failedGroup(t *testing.T, wall, led time.Time, failed ...string) whatif.Question {
	t.Helper()
	var s cluster.Snapshot
	for i, id := range []string{"n1", "n2"} {
		s.Members = append(s.Members, cluster.Member{
			Incarnation: cluster.Incarnation{Name: id, ID: id, Seq: int32(i)},
			Node:        cluster.Stored[cluster.Node]{Exists: true, Record: cluster.Node{ID: id, Site: "dc1", Priority: 9 - i}},
		})
	}
	s = s.AfterElection(cluster.Elected{Term: 7, Node: "n1", Site: "dc1", Incarnation: "n1"})
	s.Current.Record.Time = led
	for i, id := range failed {
		x := cluster.Exclusion{Node: id, Strikes: 1, For: cluster.Duration(time.Hour), Term: int64(i + 1), Reason: id + " gave up", Time: wall, Since: wall}
		if id == "n1" {
			x.Expired, x.Suspended = true, true
		}
		s.Elected.Record.Exclusions = append(s.Elected.Record.Exclusions, x)
	}
	p, err := policy.New(cluster.Policy{Rules: cluster.Rules{Type: "priority"}})
	if err != nil {
		t.Fatal(err)
	}
	return whatif.Question{
		Snapshot: s, Policy: p, Wall: wall, StrikeResetAfter: 5 * time.Minute,
		Options: elector.Options{Exclusion: time.Minute, ExclusionMax: time.Hour},
	}
}

// The status says who could lead as the elector would decide, and what is wrong when members have failed.
func TestTheForecastAfterStrikes(t *testing.T) {
	wall := time.Now()
	for name, c := range map[string]struct {
		failed   []string
		led      time.Duration
		eligible string // of n2
		problem  string
		failing  bool
	}{
		"nobody has failed":                    {nil, time.Minute, "yes", "", false},
		"the other one has failed":             {[]string{"n2"}, time.Minute, "only if n1 is lost: excluded for 1h0m0s after strike 1: n2 gave up", "no other member is eligible: n2: only if n1 is lost: excluded", false},
		"both have failed":                     {[]string{"n2", "n1"}, time.Minute, "only if n1 is lost: ", "n1 leads, but may fail again: every member that could lead has failed since ", true},
		"both have, but the leader leads long": {[]string{"n2", "n1"}, 5 * time.Minute, "only if n1 is lost: ", "no other member is eligible: n2: ", false},
	} {
		q := failedGroup(t, wall, wall.Add(-c.led), c.failed...)
		view := WithForecast(status.Of("g", "/g", q.Snapshot), q)
		i := slices.IndexFunc(view.Members, func(m status.Member) bool { return m.Node == "n2" })
		if got := view.Members[i].Eligible; !strings.HasPrefix(got, c.eligible) || view.Members[1-i].Eligible != "yes" {
			t.Errorf("%s: n2 %q, n1 %q", name, got, view.Members[1-i].Eligible)
		}
		problems := strings.Join(view.Problems, "; ")
		if !strings.HasPrefix(problems, c.problem) || c.problem == "" && problems != "" {
			t.Errorf("%s: %s, want %s", name, problems, c.problem)
		}
		if failing := view.Failing != ""; failing != c.failing {
			t.Errorf("%s: failing %q", name, view.Failing)
		}
		if heir := whatif.Succession(q, "n1"); heir.Leader.ID != "n2" {
			t.Errorf("%s: %q follows n1: %s", name, heir.Leader.ID, heir.WhyNoLeader())
		}
	}
}

// A standby that a person would have to approve is one.
func TestAStandbyThatMustBeApproved(t *testing.T) {
	q := failedGroup(t, time.Now(), time.Now())
	q.Policy, _ = policy.New(cluster.Policy{Rules: cluster.Rules{Type: "priority", Confirm: "member.site != previous.site"}})
	q.Snapshot.Members[1].Node.Record.Site = "dc2"
	if view := WithForecast(status.Of("g", "/g", q.Snapshot), q); len(view.Problems) > 0 {
		t.Errorf("%q", view.Problems)
	}
	q.Snapshot.Members[1].Node.Record.Unhealthy = "sick"
	if view := WithForecast(status.Of("g", "/g", q.Snapshot), q); len(view.Problems) == 0 {
		t.Error("nobody could take over")
	}
}
