package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

func request(id int64, submitted time.Time, lasts, left time.Duration) cluster.Request {
	return cluster.Request{ID: id, By: "ann@host", Reason: "new kernel", For: cluster.Duration(lasts), Remaining: cluster.Duration(left), Time: submitted}
}

func TestRequestsAreListed(t *testing.T) {
	now := time.Now()
	elect := cluster.Request{ID: 3, By: "bob@host", Time: now}
	s := ready(snapshot())
	s.Control = cluster.Stored[cluster.Control]{Exists: true, Record: cluster.Control{
		Pause: &cluster.Pause{Request: request(1, now, 0, 0)}, Move: &cluster.Move{Request: request(2, now, time.Hour, time.Hour), Site: "dc2"}, Reelect: &elect,
		Cordons: []cluster.Cordon{
			{Request: request(4, now, 0, 0), Node: "a"}, {Request: request(5, now, 0, 0), Site: "dc2", Drain: true},
		},
		ClearedStrikes: []cluster.ClearedStrikes{{Request: request(7, now, 0, 0), Node: "a"}},
	}}
	g := Of("c", "/own/x", s)
	var got []string
	for _, o := range g.Requests {
		got = append(got, o.String())
		if !o.Time.Equal(now) {
			t.Errorf("request %d is of %s", o.ID, o.Time)
		}
	}
	want := []string{
		"PAUSED, policy does not replace a healthy leader, by ann@host (new kernel), until it is ended",
		"move to site dc2, by ann@host (new kernel), about 1h0m0s left",
		"reelect, by bob@host, until it is ended",
		"cordon a, by ann@host (new kernel), until it is ended",
		"drain site dc2, by ann@host (new kernel), until it is ended",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	for i, o := range g.Requests {
		if o.ID != int64(i+1) {
			t.Errorf("%s is number %d", o, o.ID)
		}
	}
	s.Control.Record.Pause.Hard = true
	if o := Of("c", "/own/x", s).Requests[0]; o.Kind != "hard-pause" || !strings.HasPrefix(o.String(), "PAUSED HARD, a leader that fails is not replaced, by ann@host") {
		t.Errorf("%+v", o)
	}
	if requests := Of("c", "/own/x", ready(snapshot())).Requests; len(requests) != 0 {
		t.Errorf("without any: %+v", requests)
	}
}

func TestPolicyIsDescribed(t *testing.T) {
	for want, rules := range map[string]cluster.Rules{
		"priority, revision 3, published by ann@host":                    {Type: "priority"},
		"rank site, oldest, revision 3, published by ann@host":           {Type: "priority", Rank: []string{"site", "oldest"}},
		"2 strategies, else priority, revision 3, published by ann@host": {Type: "priority", Strategies: []cluster.Strategy{{When: `cause == "failure"`, Use: "first"}, {Use: "score"}}},
	} {
		s := ready(snapshot())
		s.Policy = cluster.Stored[cluster.Policy]{Exists: true, Record: cluster.Policy{Revision: 3, By: "ann@host", Rules: rules}}
		if g := Of("c", "/own/x", s); g.Policy != want || len(g.Problems) != 0 {
			t.Errorf("%q, want %q; problems %q", g.Policy, want, g.Problems)
		}
	}
	if g := Of("c", "/own/x", ready(snapshot())); g.Policy != "" {
		t.Errorf("without one: %q", g.Policy)
	}
}

func TestPolicyProblems(t *testing.T) {
	for want, rules := range map[string]cluster.Rules{
		`cannot be used, so each elector ranks by its own configuration: policy.type: "coin" is not a policy`: {Type: "coin"},
		"policy.sites names dc2, dc9, which no member is at":                                                  {Type: "priority", Sites: map[string]int{"dc1": 1, "dc9": 2, "dc2": 0}},
	} {
		s := ready(snapshot())
		s.Policy = cluster.Stored[cluster.Policy]{Exists: true, Record: cluster.Policy{Rules: rules}}
		if g := Of("c", "/own/x", s); len(g.Problems) != 1 || !strings.Contains(g.Problems[0], want) {
			t.Errorf("%q, want %q", g.Problems, want)
		}
	}
}

func TestDriftIsAProblem(t *testing.T) {
	rules := cluster.Rules{Type: "priority", Sites: map[string]int{"dc1": 1}}
	s := ready(snapshot())
	s.Policy = cluster.Stored[cluster.Policy]{Exists: true, Record: cluster.Policy{Rules: rules, By: "n7"}}
	for _, m := range []int{0, 1} {
		s.Members[m].Node.Record.PolicyDigest = rules.Digest()
	}
	if g := Of("c", "/own/x", s); len(g.Problems) != 0 || g.Members[0].Drift || g.Members[1].Drift {
		t.Errorf("without drift: %q", g.Problems)
	}
	s.Members[0].Node.Record.PolicyDigest = "" // of a version that does not tell
	if g := Of("c", "/own/x", s); len(g.Problems) != 0 {
		t.Errorf("without a digest: %q", g.Problems)
	}
	s.Members[1].Node.Record.PolicyDigest = cluster.Rules{Type: "first"}.Digest()
	g := Of("c", "/own/x", s)
	const want = "the policy in force, which n7 has published, is not in the files of a: 'zkelectd policy -g c' prints it for them"
	if !slices.Equal(g.Problems, []string{want}) || !g.Members[0].Drift || g.Members[1].Drift {
		t.Errorf("of one: %q, %+v", g.Problems, g.Members)
	}
	s.Policy.Record.Time = time.Now() // whoever has changed one file needs time for the others
	if g := Of("c", "/own/x", s); len(g.Problems) != 0 || g.Condition().Problems != nil || !strings.Contains(g.Table(), "\nFiles    "+want+"\n") {
		t.Errorf("just published: %q\n%s", g.Problems, g.Table())
	}
	s.Policy.Record.Time = time.Now().Add(-driftGrace)
	s.Members[0].Node.Record.PolicyDigest = "00000000"
	if g := Of("c", "/own/x", s); len(g.Problems) != 1 || !strings.Contains(g.Problems[0], "in the files of a, b: ") {
		t.Errorf("of both: %q", g.Problems)
	}
	s.Policy = cluster.Stored[cluster.Policy]{}
	if g := Of("c", "/own/x", s); len(g.Problems) != 0 || g.Members[0].Drift {
		t.Errorf("without a policy in force: %q", g.Problems)
	}
}

func TestMemberView(t *testing.T) {
	latency, score := 1.5, -2.0
	s := ready(snapshot())
	s.Elected.Record.Exclusions = nil
	b := &s.Members[0].Node.Record
	b.Latency, b.Score, b.Unhealthy = &latency, &score, "no disk"
	g := Of("c", "/own/x", s)
	m := g.Members[1]
	if m.Node != "b" || m.Health != "unhealthy: no disk" || m.Eligible != "unhealthy: no disk" || *m.Latency != latency || *m.Score != score || g.Members[0].Latency != nil || g.Members[0].Score != nil {
		t.Errorf("%+v", g.Members)
	}
	s.Control = cluster.Stored[cluster.Control]{Exists: true, Record: cluster.Control{Cordons: []cluster.Cordon{{Request: request(1, time.Now(), 0, 0), Site: "dc1", Drain: true}}}}
	g = Of("c", "/own/x", s)
	if g.Members[0].Health != "ok" || g.Members[0].Eligible != "site dc1 is drained by ann@host: new kernel" || g.Members[1].Health != "unhealthy: no disk" {
		t.Errorf("%q and %q", g.Members[0].Health, g.Members[1].Health)
	}
}
