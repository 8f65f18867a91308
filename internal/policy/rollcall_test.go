package policy

import (
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// called is the number of the roll call in these tests.
const called = "0000000000000001"

// answers makes a member answer the roll call.
func answers(a cluster.Answer) func(*cluster.Node) {
	a.Number = called
	return func(n *cluster.Node) { n.Answer = &a }
}

func scored(x float64) func(*cluster.Node) { return answers(cluster.Answer{Score: &x}) }

// rollCalled ranks members by their answers.
func rollCalled(t *testing.T, rules cluster.Rules, members ...cluster.Member) Ranking {
	t.Helper()
	return policyOf(t, rules).Rank(Input{Members: cluster.WithAnswers(members, called), RollCall: called})
}

func TestAnswersRankMembers(t *testing.T) {
	const position = 1 << 52
	members := []cluster.Member{
		member("a", "dc1", 9, 1, score(1e18)), // published, but not answered
		member("b", "dc1", 1, 2, scored(position)),
		member("c", "dc1", 1, 3, scored(position+1), score(7)),
		member("d", "dc1", 1, 4, answers(cluster.Answer{Why: "score.exec lag: exit status 1"})),
	}
	for _, rules := range []cluster.Rules{{Type: "score"}, {Rank: []string{"expr:member.score", "priority", "oldest"}}} {
		r := rollCalled(t, rules, members...)
		if got := places(r); got != "c b a d" {
			t.Errorf("%+v: %s", rules, got)
		}
		if why := r.Difference(members[2].Name, members[1].Name); !strings.Contains(why, "4503599627370497") || !strings.Contains(why, "4503599627370496") {
			t.Errorf("the difference is %q", why)
		}
		verdicts, _ := r.Verdicts()
		if v := verdicts[0]; v.Answer == nil || *v.Answer.Score != position+1 || v.Answer.Number != "" {
			t.Errorf("the answer of the best is %+v", v.Answer)
		}
		if v := verdicts[2]; v.Answer != nil {
			t.Errorf("a has answered %+v", v.Answer)
		}
		if v := verdicts[3]; v.Answer == nil || v.Answer.Score != nil || v.Answer.Why == "" {
			t.Errorf("d has answered %+v", v.Answer)
		}
	}
	r := rollCalled(t, cluster.Rules{Type: "score"}, members...)
	for id, want := range map[string]string{"a": "no answer to the roll call", "d": "no score: score.exec lag: exit status 1"} {
		if got := entry(t, r, id).words(); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
	published := policyOf(t, cluster.Rules{Type: "score"}).Rank(Input{Members: members})
	if verdicts, _ := published.Verdicts(); verdicts[0].Node != "a" || verdicts[1].Answer != nil {
		t.Errorf("without a roll call: %+v", verdicts)
	}
}

// A lag limit is a filter, in which a member without an answer lags, however low the others are.
func TestLagLimit(t *testing.T) {
	limit := cluster.Rules{Filter: []string{"best.score - member.score <= 16777216"}}
	for name, c := range map[string]struct {
		members []cluster.Member
		want    string
	}{
		"within it":      {[]cluster.Member{member("a", "dc1", 1, 1, scored(1e9)), member("b", "dc1", 2, 2, scored(1e9-16777216))}, "b a"},
		"beyond it":      {[]cluster.Member{member("a", "dc1", 1, 1, scored(1e9)), member("b", "dc1", 2, 2, scored(1e9-16777217))}, "a (b)"},
		"no answer":      {[]cluster.Member{member("a", "dc1", 1, 1, scored(-9)), member("b", "dc1", 2, 2, score(1e9))}, "a (b)"},
		"nobody answers": {[]cluster.Member{member("a", "dc1", 1, 1, score(1)), member("b", "dc1", 2, 2, score(1e9))}, "b a"},
		"a leaver counts": {[]cluster.Member{
			member("a", "dc1", 1, 1, scored(1e9), func(n *cluster.Node) { n.Leaving = "stop" }), member("b", "dc1", 2, 2, scored(1)),
		}, "(b) (a)"},
	} {
		if got := places(rollCalled(t, limit, c.members...)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	published := Input{Members: []cluster.Member{member("a", "dc1", 1, 1, score(1e9)), member("b", "dc1", 2, 2)}}
	if got := places(policyOf(t, limit).Rank(published)); got != "b a" {
		t.Errorf("without a roll call: %s", got)
	}
	lost := []cluster.Member{member("a", "dc1", 1, 1, scored(1e9)), member("b", "dc1", 2, 2, scored(1))}
	in := Input{
		Members: cluster.WithAnswers(lost, called), RollCall: called, Silent: map[string]bool{lost[0].Name: true},
		Barred: map[string]string{lost[0].Name: "it is silent"},
	}
	if got := places(policyOf(t, limit).Rank(in)); got != "b (a)" {
		t.Errorf("behind a silent leader: %s", got)
	}
}

func TestOnlyMembersWhomAnswersMayHelpAreWaitedFor(t *testing.T) {
	members := []cluster.Member{
		member("a", "dc1", 1, 1, scored(1e9)), member("b", "dc1", 2, 2, scored(1)),
		member("c", "dc1", 1, 3, func(n *cluster.Node) { n.Unhealthy = "sick" }),
	}
	r := rollCalled(t, cluster.Rules{Filter: []string{"best.score - member.score <= 1"}}, members...)
	for id, want := range map[string]bool{"a": true, "b": true, "c": false} {
		if got := entry(t, r, id).MayAnswer(); got != want {
			t.Errorf("%s may answer: %t", id, got)
		}
	}
}

func TestExpressionsThatNeedARollCall(t *testing.T) {
	for want, rules := range map[string]cluster.Rules{
		"":                 {Filter: []string{`member.labels.best == "best"`, "best.score >"}, Rank: []string{"site"}},
		"policy.filter[1]": {Filter: []string{"true", "best.score - member.score < 1"}},
		"policy.rank[0]":   {Rank: []string{"expr:member.score / best.score"}},
	} {
		if got := UsesBest(rules); got != want {
			t.Errorf("%+v: %q", rules, got)
		}
	}
	if _, err := New(cluster.Policy{Rules: cluster.Rules{Type: "priority", Strategies: []cluster.Strategy{{When: "best.score > 1", Use: "first"}}}}); err == nil || !strings.Contains(err.Error(), "unknown name best") {
		t.Errorf("a condition about the group sees answers: %v", err)
	}
}

// A ranking program that has answered before is asked again: with the answers to the roll call as scores.
func TestAProgramIsAskedAgainAfterARollCall(t *testing.T) {
	members := []cluster.Member{member("a", "dc1", 1, 1, scored(5), score(3))}
	before, after := Input{Members: members}, Input{Members: cluster.WithAnswers(members, called), RollCall: called}
	if QuestionKey(before) == QuestionKey(after) {
		t.Error("the same question")
	}
	if text := string(QuestionJSON(after)); !strings.Contains(text, `"score":5`) {
		t.Errorf("the question is %s", text)
	}
}
