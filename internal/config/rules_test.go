package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// drawRules draws settings from which rules are derived.
func drawRules(t *rapid.T) Config {
	word := rapid.StringMatching(`[A-Za-z0-9.][A-Za-z0-9<>'": {},#&*!|%@.-]{0,8}[a-z]`)
	name := word.Filter(func(s string) bool { return CheckName(s) == nil })
	policyType := rapid.SampledFrom([]string{"priority", "first", "node-id", "round-robin", "other-site", "latency", "score", "exec"})
	condition := rapid.SampledFrom([]string{`cause == "failure"`, `len(members) > 2 || previous.site == "a: #b"`, "cause == \"failure\" &&\n  len(members) > 2", ""})
	c := defaults()
	p := &c.Policy
	p.Type = policyType.Draw(t, "type")
	p.Rank = rapid.SliceOfN(rapid.SampledFrom([]string{"site", "priority", "expr: member.priority * 2", "expr: member.priority >\n  3", `expr: member.site == "x: y"`}), 0, 3).Draw(t, "rank")
	for range rapid.IntRange(0, 3).Draw(t, "strategies") {
		p.Strategies = append(p.Strategies, cluster.Strategy{When: condition.Draw(t, "when"), Use: policyType.Draw(t, "use")})
	}
	p.Sites = rapid.MapOf(name, rapid.IntRange(-5, 5)).Draw(t, "sites")
	p.Hysteresis = rapid.IntRange(0, 1000).Draw(t, "hysteresis")
	p.Filter = rapid.SliceOfN(rapid.SampledFrom([]string{"member.priority > 1", `member.site != "x, y"`}), 0, 2).Draw(t, "filter")
	p.Failback = rapid.SampledFrom([]string{cluster.FailbackImmediate, "1m0s", cluster.FailbackManual}).Draw(t, "failback")
	p.MaxPreemptions = rapid.IntRange(0, 9).Draw(t, "moves")
	if c.Score.AtElection = rapid.Bool().Draw(t, "at_election"); c.Score.AtElection {
		c.Score.Timeout = time.Duration(rapid.IntRange(100, 60000).Draw(t, "score.timeout")) * time.Millisecond
		p.Filter = append(p.Filter, "best.score - member.score <= 16777216")
	}
	return c
}

// command is not part of the rules: each host has its own.
var ownCommand = []string{"ZKELECTD_POLICY_EXEC=/usr/bin/rank"}

// The output of the command policy is the same policy when it is applied.
func TestRulesYAMLRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	rapid.Check(t, func(t *rapid.T) {
		rules := drawRules(t).Rules()
		text := RulesYAML(rules)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(Sources{File: path, Env: ownCommand})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if c.Rules().Digest() != rules.Digest() {
			t.Fatalf("%+v\nof %+v\n%s", c.Rules(), rules, text)
		}
		if lines := RulesDiff(rules, c.Rules()); len(lines) != 0 {
			t.Fatalf("difference: %q", lines)
		}
		for _, foreign := range []string{"revision", "exec", "node", "exclusion"} {
			if strings.Contains(text, foreign+":") {
				t.Fatalf("%s is no part of the rules:\n%s", foreign, text)
			}
		}
		if again := defaults().WithRules(rules).Rules(); again.Digest() != rules.Digest() {
			t.Fatalf("%+v\nof %+v", again, rules)
		}
	})
}

func TestRulesContainOnlyWhatIsInUse(t *testing.T) {
	c := defaults()
	c.Policy.Strategies = []cluster.Strategy{{When: "len(members) > 1", Use: "exec"}}
	if r := c.Rules(); !policy.UsesExec(r) {
		t.Errorf("rules: got %+v", r)
	}
	c.Policy.Exec = []string{"/usr/bin/rank"}
	r := c.Rules()
	c.Policy.Exec, c.Election.Exclusion = nil, time.Hour
	if !reflect.DeepEqual(r, c.Rules()) {
		t.Error("what is each host's own changes the rules")
	}
}

func TestRulesDiff(t *testing.T) {
	a := defaults()
	b := defaults()
	b.Policy.Type, b.Policy.Sites, b.Policy.Filter = "first", map[string]int{"dc2": 1, "dc1": 2}, []string{"x > y"}
	b.Policy.Strategies = []cluster.Strategy{{When: "len(members) > 1", Use: "first"}}
	b.Policy.Failback, b.Policy.MaxPreemptions = "1m0s", 0
	want := []string{
		"policy.type: priority -> first",
		"policy.sites: {} -> {dc1: 2, dc2: 1}",
		"policy.strategies: [] -> [{when: len(members) > 1, use: first}]",
		"policy.filter: [] -> [x > y]",
		"policy.failback: manual -> 1m0s",
		"policy.max_preemptions: 6 -> 0",
	}
	if got := RulesDiff(a.Rules(), b.Rules()); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if got := RulesDiff(b.Rules(), b.Rules()); len(got) != 0 {
		t.Errorf("differs from itself: %q", got)
	}
	for _, line := range RulesDiff(b.Rules(), a.Rules()) {
		if strings.Contains(line, "\n") {
			t.Errorf("more than one line: %q", line)
		}
	}
	none, empty := a.Rules(), a.Rules()
	none.Sites, none.Filter, none.Strategies = nil, nil, nil
	empty.Sites, empty.Filter, empty.Strategies = map[string]int{}, []string{}, []cluster.Strategy{}
	if got := RulesDiff(none, empty); len(got) != 0 {
		t.Errorf("nil differs from empty: %q", got)
	}
}

// The default of a configuration is written out in the record, where no failback means immediate.
func TestTheDefaultFailbackIsPublished(t *testing.T) {
	rules := mustLoad(t, Sources{}).Rules()
	data, err := json.Marshal(rules)
	if err != nil || !strings.Contains(string(data), `"failback":"manual"`) {
		t.Errorf("%s, %v", data, err)
	}
	before := rules
	before.Failback = "" // as an earlier version has published it
	want := []string{"policy.failback: immediate -> manual"}
	if got := RulesDiff(before, rules); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if m := MergeRules(rules, rules, before); m.Rules.Failback != "" || len(m.Unmerged) != 1 || len(m.Conflicts) != 0 {
		t.Errorf("a reload that changes nothing changes the policy in force: %+v", m)
	}
}

func TestRulesOfAnOlderRecordLoad(t *testing.T) {
	c := mustLoad(t, Sources{File: file(t, RulesYAML(cluster.Rules{Type: "priority"}))})
	if c.Policy.Failback != cluster.FailbackImmediate {
		t.Errorf("policy: got %+v", c.Policy)
	}
}
