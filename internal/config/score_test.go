package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

const measured = "node: {id: n1}\nchild: {command: [app]}\nscore: {exec: [lag], at_election: true, timeout: 2s}\n"

func TestRollCallsArePartOfThePolicy(t *testing.T) {
	h, err := loadText(t, measured+`policy: {type: score, filter: ["best.score - member.score <= 16777216"]}`)
	if err != nil {
		t.Fatal(err)
	}
	rules := h.Config.Rules()
	if want := (cluster.RollCallRules{Enabled: true, Timeout: cluster.Duration(2 * time.Second)}); rules.RollCall != want {
		t.Errorf("%+v", rules.RollCall)
	}
	off := mustLoad(t, Sources{}).Rules()
	if off.RollCall != (cluster.RollCallRules{}) {
		t.Errorf("without the setting: %+v", off.RollCall)
	}
	want := []string{"score.at_election: false -> true", "score.timeout: 5s -> 2s"}
	if got := RulesDiff(off, rules); !slices.Equal(slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "policy.") }), want) {
		t.Errorf("%q", got)
	}
}

// Where the timeout was changed in the policy in force, roll calls can still be turned off by a file that has another one.
func TestRollCallsCanBeTurnedOff(t *testing.T) {
	rules := func(enabled bool, timeout time.Duration) cluster.Rules {
		c := defaults()
		c.Score.AtElection, c.Score.Timeout = enabled, timeout
		return c.Rules()
	}
	m := MergeRules(rules(true, 2*time.Second), rules(false, 2*time.Second), rules(true, 3*time.Second))
	if len(m.Conflicts) != 0 || m.Rules.RollCall.Enabled {
		t.Errorf("%+v", m)
	}
	m = MergeRules(rules(false, 5*time.Second), rules(false, 5*time.Second), rules(false, 5*time.Second))
	if len(m.Conflicts)+len(m.Unmerged) != 0 {
		t.Errorf("%+v", m)
	}
}

func TestScoreRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, key, reason string }{
		"slots":              {measured + "slots: {count: 3}", scoreAtElection, "slots.count"},
		"too short":          {strings.Replace(measured, "2s", "10ms", 1), scoreTimeout, "100ms"},
		"too long":           {strings.Replace(measured, "2s", "61s", 1), scoreTimeout, "1m"},
		"best, a filter":     {strings.Replace(measured, "at_election: true, ", "", 1) + `policy: {filter: ["best.score > 1"]}`, "policy.filter", "set score.at_election"},
		"best, a ranker":     {strings.Replace(measured, "at_election: true, ", "", 1) + `policy: {rank: ["expr:member.score/best.score"]}`, "policy.rank", "set score.at_election"},
		"best, of the group": {measured + `policy: {strategies: [{when: "best.score > 1", use: first}]}`, "policy.strategies", "unknown name best"},
	} {
		if _, err := loadText(t, c.text); err == nil || !strings.Contains(err.Error(), c.key+": ") || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
