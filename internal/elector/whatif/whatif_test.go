package whatif

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

func TestChanges(t *testing.T) {
	for name, c := range map[string]struct {
		change Change
		rules  cluster.Rules
		leader string
		causes []cluster.Cause
	}{
		"nothing":                     {Change{}, cluster.Rules{}, "a1", nil},
		"the leader is lost":          {Change{Without: []string{"a1"}}, cluster.Rules{}, "a2", []cluster.Cause{cluster.CauseFailure}},
		"a standby is lost":           {Change{Without: []string{"a2"}}, cluster.Rules{}, "a1", nil},
		"the leader's site is lost":   {Change{WithoutSites: []string{"dc1"}}, cluster.Rules{}, "b1", []cluster.Cause{cluster.CauseFailure}},
		"another site is lost":        {Change{WithoutSites: []string{"dc2"}}, cluster.Rules{}, "a1", nil},
		"a site and a node are lost":  {Change{Without: []string{"b1"}, WithoutSites: []string{"dc1"}}, cluster.Rules{}, "b2", []cluster.Cause{cluster.CauseFailure}},
		"all are lost":                {Change{WithoutSites: []string{"dc1", "dc2"}}, cluster.Rules{}, "", nil},
		"unknown ones are lost":       {Change{Without: []string{"x"}, WithoutSites: []string{"y"}}, cluster.Rules{}, "a1", nil},
		"the leader is cordoned":      {Change{Cordon: []string{"a1"}}, cluster.Rules{}, "a1", nil},
		"the leader is drained":       {Change{Drain: []string{"a1"}}, cluster.Rules{}, "a2", []cluster.Cause{cluster.CauseDrain}},
		"drained, the next cordoned":  {Change{Cordon: []string{"a2"}, Drain: []string{"a1"}}, cluster.Rules{}, "b1", []cluster.Cause{cluster.CauseDrain}},
		"lost, the next cordoned":     {Change{Without: []string{"a1"}, Cordon: []string{"a2"}}, cluster.Rules{}, "b1", []cluster.Cause{cluster.CauseFailure}},
		"another policy":              {Change{}, cluster.Rules{Sites: map[string]int{"dc2": 5}}, "b1", []cluster.Cause{cluster.CausePreempt}},
		"another policy, but manual":  {Change{}, cluster.Rules{Sites: map[string]int{"dc2": 5}, Failback: cluster.FailbackManual}, "a1", nil},
		"a policy against the leader": {Change{}, cluster.Rules{Filter: []string{"member.id != 'a1'"}}, "a2", []cluster.Cause{cluster.CauseIneligible}},
		"failed, to the other site":   {Change{Without: []string{"a1"}}, cluster.Rules{Type: "other-site"}, "b1", []cluster.Cause{cluster.CauseFailure}},
		"a policy against all":        {Change{}, cluster.Rules{Filter: []string{"member.priority >= 1000"}}, "a1", nil},
		"lost, without a successor":   {Change{Without: []string{"a1"}}, cluster.Rules{Filter: []string{"member.priority >= 35"}}, "", nil},
	} {
		q := question(t, led(four(), "a1"), c.rules)
		q.Change = c.change
		out := forecast(t, q)
		if out.Leader.ID != c.leader || out.HasLeader() != (c.leader != "") || !slices.Equal(causes(out), c.causes) {
			t.Errorf("%s: %q leads after %q, want %q after %q", name, out.Leader.ID, causes(out), c.leader, c.causes)
		}
		last := wall.Unix() - 1
		for i, s := range out.Steps {
			if s.Term <= last || !s.Time.Equal(wall) {
				t.Errorf("%s: step %d is %+v", name, i, s)
			}
			last = s.Term
		}
	}
}

// A node that has just failed is eligible again after a moment, for which the forecast waits.
func TestRetryAfterAStrikeIsAwaited(t *testing.T) {
	s := led(four(), "a1")
	s.Members = s.Members[:2]
	for _, id := range []string{"a1", "a2"} {
		s.Elected.Record.Exclusions = append(s.Elected.Record.Exclusions, cluster.Exclusion{
			Node: id, Strikes: 5, For: cluster.Duration(16 * time.Minute), Term: 5, Reason: "its task failed",
		})
	}
	s.Fence.Record.State, s.Fence.Record.Reason = cluster.FenceReleased, "its task failed"
	s.Current = cluster.Stored[cluster.Current]{}
	out := forecast(t, question(t, s))
	if !out.HasLeader() || len(out.Steps) != 1 || out.Steps[0].Cause != cluster.CauseGaveUp {
		t.Fatalf("%q leads after %q: %s", out.Leader.ID, causes(out), out.Last.Note)
	}
	struck := out.Steps[0].Exclusions
	if i := slices.IndexFunc(struck, func(x cluster.Exclusion) bool { return x.Node == "a1" }); i < 0 || struck[i].Strikes != 6 {
		t.Errorf("the strike is not in %+v", struck)
	}
}

func TestEndOfRequestsIsNotAwaited(t *testing.T) {
	for name, strikes := range map[string]int{"cordoned": 0, "cordoned and excluded": 4} {
		s := led(four(), "a1")
		var c cluster.Control
		for _, m := range s.Members {
			lasts := cluster.Duration(10 * time.Minute)
			c.Cordons = append(c.Cordons, cluster.Cordon{Request: c.Next(cluster.Request{By: "ann@host", For: lasts}), Node: m.ID})
			if strikes > 0 {
				s.Elected.Record.Exclusions = append(s.Elected.Record.Exclusions, cluster.Exclusion{Node: m.ID, Strikes: strikes, For: cluster.Duration(time.Hour), Term: 5})
			}
		}
		s.Control = exists(c)
		q := question(t, s)
		q.Change.Without = []string{"a1"}
		if out := forecast(t, q); out.HasLeader() || !strings.Contains(out.Last.Note, "no member is eligible") {
			t.Errorf("%s: %q leads after %q", name, out.Leader.ID, causes(out))
		}
	}
}

// A move ends when its target is not eligible; what it has prevented happens then.
func TestRequestsEndAsInTheElector(t *testing.T) {
	s := led(four(), "a1")
	s.Members[0].Node.Record.Unhealthy = "no disk"
	s.Elected.Record.Exclusions = []cluster.Exclusion{{Node: "a1", Strikes: 1, For: cluster.Duration(time.Hour), Term: 5}}
	by := cluster.Request{By: "ann@host"}
	s.Control = exists(cluster.Control{Pause: &cluster.Pause{Request: by}, Move: &cluster.Move{Request: by, Node: "a1", Force: true}})
	if out := forecast(t, question(t, s)); out.Leader.ID != "a2" || !slices.Equal(causes(out), []cluster.Cause{cluster.CauseUnhealthy}) {
		t.Errorf("%q leads after %q", out.Leader.ID, causes(out))
	}
}

func TestExpiredStrikeExcludesNobody(t *testing.T) {
	for ago, leader := range map[time.Duration]string{
		59 * time.Second: "b1", time.Minute: "a2", time.Hour: "a2", -time.Hour: "b1",
	} {
		s := led(four(), "a1")
		s.Elected.Record.Exclusions = []cluster.Exclusion{{Node: "a2", Strikes: 1, For: cluster.Duration(time.Minute), Term: 5, Time: wall.Add(-ago)}}
		q := question(t, s)
		q.Change.Without = []string{"a1"}
		if out := forecast(t, q); out.Leader.ID != leader {
			t.Errorf("%s after the strike %q leads, want %q", ago, out.Leader.ID, leader)
		}
	}
}

func TestRankingProgramIsAsked(t *testing.T) {
	rules := cluster.Rules{Type: "exec"}
	q := question(t, led(four(), "a1"), rules)
	var asked []policy.Input
	q.Ask = func(in policy.Input) *policy.Answer {
		asked = append(asked, in)
		return &policy.Answer{Ranking: []string{"b2", "a2"}}
	}
	if out := forecast(t, q); out.Leader.ID != "b2" || len(asked) == 0 || len(asked[0].Members) != 4 {
		t.Errorf("%q leads, asked %d times", out.Leader.ID, len(asked))
	}
	q.Change.Without = []string{"b2"}
	if out := forecast(t, q); out.Leader.ID != "a2" {
		t.Errorf("without the first %q leads", out.Leader.ID)
	}
	q.Change = Change{Without: []string{"a1"}}
	for name, ask := range map[string]func(policy.Input) *policy.Answer{
		"no program": nil, "no answer": func(policy.Input) *policy.Answer { return &policy.Answer{Err: "it crashed"} },
	} {
		q.Ask = ask
		if out := forecast(t, q); out.Leader.ID != "a2" || len(out.Last.Ranking.Notes) == 0 {
			t.Errorf("%s: %q leads, notes %q", name, out.Leader.ID, out.Last.Ranking.Notes)
		}
	}
	q = question(t, led(four(), "a1"))
	q.Ask = func(policy.Input) *policy.Answer {
		t.Error("asked for a policy without a program")
		return nil
	}
	forecast(t, q)
}

func TestPolicyProblemsAreReported(t *testing.T) {
	q := question(t, led(four(), "a1"), cluster.Rules{Sites: map[string]int{"dc1": 1, "dc2": 0}})
	if out := forecast(t, q); len(out.Problems) != 0 {
		t.Errorf("%q", out.Problems)
	}
	q.Change.WithoutSites = []string{"dc2"}
	if out := forecast(t, q); len(out.Problems) != 1 || !strings.Contains(out.Problems[0], "dc2") {
		t.Errorf("%q", out.Problems)
	}
}

func TestLeaderThatHasReleasedIsReplaced(t *testing.T) {
	s := led(four(), "a1")
	f := &s.Fence.Record
	f.State, f.Requested, f.Stopping, f.Reason = cluster.FenceReleased, true, f.Incarnation, "stopped"
	s.Current = cluster.Stored[cluster.Current]{}
	out := forecast(t, question(t, s))
	if out.Leader.ID != "a2" || !slices.Equal(causes(out), []cluster.Cause{cluster.CauseStopped}) {
		t.Errorf("%q leads after %q", out.Leader.ID, causes(out))
	}
	s.Control = exists(cluster.Control{Pause: &cluster.Pause{Hard: true}})
	if out := forecast(t, question(t, s)); out.HasLeader() {
		t.Errorf("%q leads, although it has released", out.Leader.ID)
	}
}

// A member that is better, but not by enough, is named, with what it lacks.
func TestHysteresisIsSaid(t *testing.T) {
	s := led(four(), "a1")
	for i, score := range []float64{10, 11, 3, 4} {
		s.Members[i].Node.Record.Score = &score
	}
	rules := cluster.Rules{Type: "score", Hysteresis: 20}
	want := "a2 would be better than a1 (score 11 against score 10), but not by the 20 % that policy.hysteresis demands; 'zkelectd move --to a2' moves leadership there"
	if out := forecast(t, question(t, s, rules)); out.Leader.ID != "a1" || out.Blocked != want {
		t.Errorf("%s leads, blocked: %q", out.Leader.ID, out.Blocked)
	}
	rules.Hysteresis = 5
	if out := forecast(t, question(t, s, rules)); out.Leader.ID != "a2" || out.Blocked != "" {
		t.Errorf("%s leads, blocked: %q", out.Leader.ID, out.Blocked)
	}
	if out := forecast(t, question(t, s, cluster.Rules{Hysteresis: 20})); out.Blocked != "" {
		t.Errorf("without measurements: %q", out.Blocked)
	}
}

// An explanation names the member that would lead if the leader was lost.
func TestExplanationNamesTheHeir(t *testing.T) {
	q := question(t, led(four(), "a1"))
	if e := Explain(q); e.Heir != "a2" || !slices.Contains(e.Changes, "if a1 is lost, a2 (dc1) leads") {
		t.Errorf("%q: %q", e.Heir, e.Changes)
	}
	q.Change.Without = []string{"a2", "b1", "b2"}
	if e := Explain(q); e.Leader != "a1" || e.Heir != "" {
		t.Errorf("alone: %+v", e)
	}
}

// The record of a large group leaves most verdicts out. An explanation has all of them.
func TestExplanationOfALargeGroupHasAllMembers(t *testing.T) {
	var s cluster.Snapshot
	for i := range 60 {
		s.Members = append(s.Members, member(fmt.Sprintf("n%02d", i), "dc1", int32(i), 100-i))
	}
	s.Members[59].Node.Record.Unhealthy = "no disk"
	s = led(s, "n00")
	verdicts, omitted := compiled(t, cluster.Rules{}).Rank(policy.Input{Members: s.Members}).Verdicts()
	if s.Elected.Record.Ranking, s.Elected.Record.RankingOmitted = verdicts, omitted; omitted != 48 {
		t.Fatalf("%d verdicts are left out", omitted)
	}
	e := Explain(question(t, s))
	for i, m := range e.Members {
		if want := (i + 1) % 60; m.Node != fmt.Sprintf("n%02d", i) || m.Rank != want || (m.Rank == 0) != (len(m.Refusals) > 0) || len(m.Scores) == 0 {
			t.Errorf("member %d: %+v", i, m)
		}
	}
	if len(e.Members) != 60 || !slices.Contains(e.Changes, "n40 comes after n00: priority 100 against priority 60") {
		t.Errorf("%d members: %q", len(e.Members), e.Changes)
	}
}

// Without a leader, an explanation names none, and says why; it does not list members that are eligible.
func TestExplanationWithoutALeader(t *testing.T) {
	s := led(four(), "a1")
	s.Control = exists(cluster.Control{Last: 1, Pause: &cluster.Pause{Request: cluster.Request{ID: 1, By: "ann@host"}, Hard: true}})
	q := question(t, s)
	q.Change.Without = []string{"a1"}
	e := Explain(q)
	want := "paused hard by ann@host: a1 is gone; there is no election until 'zkelectd resume'"
	if e.Leader != "" || e.Heir != "" || e.Term != 0 || e.NoLeader != want || !slices.Equal(e.Changes, []string{"there is no leader: " + want}) {
		t.Errorf("%+v", e)
	}
}

// A member that fell silent is not elected before it has registered again, and an explanation says so.
func TestASilentMemberRegistersAgainFirst(t *testing.T) {
	s := led(four(), "b1")
	s.Elected.Record.Silent = []string{s.Members[0].Name}
	e := Explain(question(t, s))
	const why = "it has fallen silent, and registers again by itself as soon as it reads that"
	refused := slices.ContainsFunc(e.Members, func(m RankedMember) bool {
		return m.Node == "a1" && len(m.Refusals) == 1 && m.Refusals[0].Reason == why
	})
	if e.Leader != "a2" || e.Heir == "a1" || !refused || !slices.Contains(e.Changes, "a1 is not eligible: "+why) {
		t.Errorf("%+v", e)
	}
	s.Members[0] = member("a1", "dc1", 9, 40)
	if e := Explain(question(t, s)); e.Leader != "a1" {
		t.Errorf("registered again: %+v", e)
	}
}

func TestTheAnswersThatDecidedAreExplained(t *testing.T) {
	s := led(four(), "a1")
	if e := Explain(question(t, s, cluster.Rules{})); e.RollCall != nil {
		t.Errorf("without a roll call: %+v", e.RollCall)
	}
	score := 7.0
	s.Elected.Record.Ranking = []cluster.Verdict{{Node: "a1", Rank: 1, Answer: &cluster.Answer{Score: &score}}, {Node: "a2", Rank: 2}}
	e := Explain(question(t, s, cluster.Rules{}))
	if len(e.RollCall) != 2 || *e.RollCall[0].Score != 7 || e.RollCall[1].Why != "no answer" {
		t.Errorf("%+v", e.RollCall)
	}
}

func TestLossesHaveEachNodeAndSiteOnce(t *testing.T) {
	s := four()
	slices.Reverse(s.Members)
	old := member("a2", "dc3", 0, 99)
	old.Superseded = true
	s.Members = append([]cluster.Member{old}, s.Members...)
	q := question(t, led(s, "a1"))
	q.Change.Without = make([]string, 0, 8)
	q.Change.WithoutSites = make([]string, 0, 8)
	before := cloneSnapshot(q.Snapshot)
	var got []string
	for _, l := range Losses(q) {
		got = append(got, fmt.Sprintf("%s%s: %s", l.Node, l.Site, l.Outcomes[0].Leader.ID))
	}
	want := []string{"a1: a2", "a2: a1", "b1: a1", "b2: a1", "dc1: b1", "dc2: a1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if !reflect.DeepEqual(before, q.Snapshot) || len(q.Change.Without)+len(q.Change.WithoutSites) != 0 {
		t.Error("modified its input")
	}
}

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
