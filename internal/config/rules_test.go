package config

import (
	"encoding/json"
	"errors"
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

// What has changed in a file is applied to the rules in force; older values in the rest of the file change nothing.
func TestMergeRules(t *testing.T) {
	const old = "sites: {dc1: 200, dc2: 100}, filter: ['true']"
	on := func(limit string) string { return "---\nfailsafe: {enabled: true, max: " + limit + "}\n" }
	measured := func(timeout string) string { return "---\nscore: {at_election: true, timeout: " + timeout + "}\n" }
	for name, c := range map[string]struct {
		before, after, inForce, want string
		conflicts, unmerged          string
	}{
		"a change":                 {old, old + ", failback: 5m", old, old + ", failback: 5m", "", ""},
		"a stale file":             {old, old + ", failback: 5m", "sites: {dc1: 300, dc2: 100}, filter: ['true']", "sites: {dc1: 300, dc2: 100}, filter: ['true'], failback: 5m", "", "policy.sites.dc1: the file has 200, in force is 300"},
		"a stale file, as was":     {old, old, "sites: {dc1: 300, dc2: 100}, filter: ['true']", "sites: {dc1: 300, dc2: 100}, filter: ['true']", "", "policy.sites.dc1: the file has 200, in force is 300"},
		"two sites":                {old, "sites: {dc1: 200, dc2: 50}, filter: ['true']", "sites: {dc1: 300, dc2: 100}, filter: ['true']", "sites: {dc1: 300, dc2: 50}, filter: ['true']", "", "policy.sites.dc1: the file has 200, in force is 300"},
		"a site added":             {old, "sites: {dc1: 200, dc2: 100, dc3: 1}, filter: ['true']", old, "sites: {dc1: 200, dc2: 100, dc3: 1}, filter: ['true']", "", ""},
		"the first sites":          {"", "sites: {dc1: 0}", "", "sites: {dc1: 0}", "", ""},
		"a conflict":               {old, "sites: {dc1: 250, dc2: 100}, filter: ['true']", "sites: {dc1: 300, dc2: 100}, filter: ['true']", "sites: {dc1: 300, dc2: 100}, filter: ['true']", "policy.sites.dc1: the file has 250, in force is 300", ""},
		"removed and changed":      {old, "sites: {dc2: 100}, filter: ['true']", "sites: {dc1: 300, dc2: 100}, filter: ['true']", "sites: {dc1: 300, dc2: 100}, filter: ['true']", "policy.sites.dc1: the file has no value, in force is 300", ""},
		"changed and removed":      {old, "sites: {dc1: 250, dc2: 100}, filter: ['true']", "sites: {dc2: 100}, filter: ['true']", "sites: {dc2: 100}, filter: ['true']", "policy.sites.dc1: the file has 250, in force is no value", ""},
		"a list is one value":      {old, "sites: {dc1: 200, dc2: 100}, filter: ['true', 'true']", "sites: {dc1: 200, dc2: 100}", "sites: {dc1: 200, dc2: 100}", "policy.filter: the file has ['true', 'true'], in force is []", ""},
		"a filter that is gone":    {old, "sites: {dc1: 200, dc2: 100}", old, "sites: {dc1: 200, dc2: 100}", "", ""},
		"a type":                   {"type: priority", "type: first", "type: priority, hysteresis: 30", "type: first, hysteresis: 30", "", "policy.hysteresis: the file has 20, in force is 30"},
		"off, and another limit":   {on("5m"), "", on("10m"), "", "", ""},
		"a limit, and off":         {on("5m"), on("8m"), "", "", "", "failsafe.enabled: the file has true, in force is false"},
		"on":                       {"", on("5m"), "", on("5m"), "", ""},
		"on, and a change":         {"", on("5m"), "hysteresis: 50", on("5m") + "policy: {hysteresis: 50}\n", "", "policy.hysteresis: the file has 20, in force is 50"},
		"on, and another limit":    {"", on("5m"), on("10m"), on("10m"), "failsafe.max: the file has 5m0s, in force is 10m0s", ""},
		"a limit, and another one": {on("5m"), on("8m"), on("10m"), on("10m"), "failsafe.max: the file has 8m0s, in force is 10m0s", ""},
		"no roll calls any more":   {measured("2s"), "", measured("3s"), "", "", ""},
	} {
		rules := func(text string) Config {
			if !strings.HasPrefix(text, "---") {
				text = "policy: {" + text + "}"
			}
			return mustLoad(t, Sources{File: file(t, text)})
		}
		m := MergeRules(rules(c.before).Rules(), rules(c.after).Rules(), rules(c.inForce).Rules())
		conflicts, unmerged := strings.ReplaceAll(DescribeDifferences(m.Conflicts), `"`, "'"), DescribeDifferences(m.Unmerged)
		if want := rules(c.want).Rules(); m.Rules.Digest() != want.Digest() || conflicts != c.conflicts || unmerged != c.unmerged {
			t.Errorf("%s: %+v, conflicts %q, unmerged %q, want %+v", name, m.Rules, conflicts, unmerged, want)
		}
	}
}

// Users copy the examples of docs/policies.md, so they must be valid.
func TestPolicyExamplesAreValid(t *testing.T) {
	data, err := os.ReadFile("../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	n := 0
	for rest := doc; ; n++ {
		_, after, found := strings.Cut(rest, "```yaml\n")
		if !found {
			break
		}
		text, after, _ := strings.Cut(after, "```")
		if _, err := Load(Sources{File: file(t, text)}); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
		rest = after
	}
	if n < len(policy.Types()) {
		t.Errorf("%d examples", n)
	}
	for _, name := range append(policy.Types(), policy.Rankers()...) {
		if !strings.Contains(doc, "`"+name+"`") && !strings.Contains(doc, "type: "+name) {
			t.Errorf("%s is not in docs/policies.md", name)
		}
	}
	for _, name := range policy.Types() {
		if !strings.Contains(doc, "type: "+name) {
			t.Errorf("%s has no example in docs/policies.md", name)
		}
	}
}

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

func TestStrategies(t *testing.T) {
	want := []cluster.Strategy{{When: `cause == "failure"`, Use: "other-site"}, {Use: "first"}}
	const inline = `[{when: 'cause == "failure"', use: other-site}, {use: first}]`
	for name, src := range map[string]Sources{
		"inline":      {File: file(t, "policy: {strategies: "+inline+"}")},
		"block":       {File: file(t, "policy:\n  strategies:\n  - when: cause == \"failure\"\n    use: other-site\n  - use: first\n")},
		"environment": {Env: []string{"ZKELECTD_POLICY_STRATEGIES=" + inline}},
		"over a file": {File: file(t, "policy: {strategies: [{use: score}]}"), Env: []string{"ZKELECTD_POLICY_STRATEGIES=" + inline}},
	} {
		c := mustLoad(t, src)
		if !reflect.DeepEqual(c.Policy.Strategies, want) || !reflect.DeepEqual(c.Rules().Strategies, want) {
			t.Errorf("%s: %+v", name, c.Policy.Strategies)
		}
	}
	for name, src := range map[string]Sources{
		"none": {}, "an empty list": {File: file(t, "policy: {strategies: []}")}, "emptied": {File: file(t, "policy: {strategies: [{use: first}]}"), Env: []string{"ZKELECTD_POLICY_STRATEGIES=[]"}},
	} {
		if c := mustLoad(t, src); len(c.Policy.Strategies) != 0 {
			t.Errorf("%s: %+v", name, c.Policy.Strategies)
		}
	}
}

// findError returns the first error for a key that contains a reason.
func findError(t *testing.T, err error, key, reason string) Error {
	t.Helper()
	var errs Errors
	errors.As(err, &errs)
	for _, f := range errs {
		if f.Key == key && f.Reason != "" && strings.Contains(f.Reason, reason) {
			return f
		}
	}
	t.Errorf("%v has no %q on %s", err, reason, key)
	return Error{}
}

func TestPolicyErrorsNameTheKeyAndTheLine(t *testing.T) {
	for text, want := range map[string]struct{ key, line, reason string }{
		"\ntype: coin":                              {"policy.type", ":4", `"coin" is not a policy: want one of priority,`},
		"\nrank: [site, coin]":                      {"policy.rank", ":4", `[1]: "coin" is not a ranker`},
		"\ntype: priorty":                           {"policy.type", ":4", "is not a policy: want one of priority, first, node-id, highest-node-id, round-robin, other-site, latency, score, spread, fewest, exec; did you mean priority?"},
		"\nrank: [incumbant]":                       {"policy.rank", ":4", "or expr:EXPRESSION; did you mean incumbent?"},
		"\nfilter: ['true', 'cause != \"relect\"']": {"policy.filter", ":4", `[1]: cause is never "relect": it is one of first, failure,`},
		"\nstrategies: [{when: 'cause == \"failur\"', use: first}]": {"policy.strategies", ":4", `[0].when: cause is never "failur": it is one of first, failure,`},
		"\nrank: ['expr: member.x']":                                {"policy.rank", ":4", "[0]: "},
		"\nfilter: ['true', 'member.nothing']":                      {"policy.filter", ":4", "[1]: "},
		"\nfilter: ['member.priority']":                             {"policy.filter", ":4", "[0]: "},
		"\nstrategies: [{use: coin}]":                               {"policy.strategies", ":4", `"coin" is not a policy`},
		"\nstrategies: [{use: first}, {when: '1 +', use: first}]":   {"policy.strategies", ":4", "[1]"},
		"\nstrategies: [{when: 'true'}]":                            {"policy.strategies", ":4", `"" is not a policy`},
		"\nstrategies: {use: first}":                                {"policy.strategies", ":4", "must be a list, as in [{when:"},
		"\nstrategies: [first]":                                     {"policy.strategies", ":4", "[0]: must be a map"},
		"\nstrategies: [{use: [first]}]":                            {"policy.strategies", ":4", "[0]: use: must be a string"},
		"\nstrategies: [{use: first, if: x}]":                       {"policy.strategies", ":4", `[0]: "if" is none of use, when`},
		"\nhysteresis: 1001":                                        {"policy.hysteresis", ":4", "1001 is not between 0 and 1000"},
		"\ntype: exec":                                              {"policy.exec", "default", "the policy type exec needs a program"},
		"\nexec: ['']":                                              {"policy.exec", ":4", "its first element, is empty"},
	} {
		text = "node: {id: a}\n\npolicy:" + strings.ReplaceAll(text, "\n", "\n  ")
		_, err := Load(Sources{File: file(t, text)})
		if f := findError(t, err, want.key, want.reason); !strings.HasSuffix(f.Source, want.line) {
			t.Errorf("%q: %s, want it at %s", text, f, want.line)
		}
		var errs Errors
		errors.As(err, &errs)
		for _, f := range errs {
			if f.Key != want.key {
				t.Errorf("%q: %s, although that key is valid", text, f)
			}
		}
	}
}

func TestPolicyErrorsInTheEnvironmentNameTheVariable(t *testing.T) {
	for value, want := range map[string]string{
		"STRATEGIES=first": "must be a list", "STRATEGIES=[{use: coin}]": `"coin" is not a policy`, "STRATEGIES=[{": "is not a list in YAML",
		"STRATEGIES=[*x]": "is not a list in YAML", "TYPE=coin": `"coin" is not a policy`, "RANK=site,coin": `[1]: "coin"`, "HYSTERESIS=x": "is not an integer",
	} {
		_, err := Load(Sources{Env: []string{"ZKELECTD_POLICY_" + value}})
		name, _, _ := strings.Cut(value, "=")
		if f := findError(t, err, "policy."+strings.ToLower(name), want); f.Source != "ZKELECTD_POLICY_"+name {
			t.Errorf("%s: %s", value, f)
		}
	}
}

func TestFailbackErrorsNameTheKey(t *testing.T) {
	_, err := Load(Sources{File: file(t, "policy:\n  failback: never\n  max_preemptions: -1\n")})
	for key, want := range map[string]string{"policy.failback": ":2", "policy.max_preemptions": ":3"} {
		if f := findError(t, err, key, ""); !strings.HasSuffix(f.Source, want) {
			t.Errorf("%s: %s", key, f)
		}
	}
}
