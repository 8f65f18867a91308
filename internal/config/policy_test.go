package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

func TestStrategies(t *testing.T) {
	want := []cluster.Strategy{{When: `cause == "failure"`, Use: "other-site"}, {Use: "first"}}
	const inline = `[{when: 'cause == "failure"', use: other-site}, {use: first}]`
	for name, src := range map[string]Sources{
		"inline":      {File: file(t, "policy: {strategies: "+inline+"}")},
		"block":       {File: file(t, "policy:\n  strategies:\n  - when: cause == \"failure\"\n    use: other-site\n  - use: first\n")},
		"an alias":    {File: file(t, "policy:\n  strategies:\n  - {use: other-site, when: 'cause == \"failure\"'}\n  - &x {use: first}\n")},
		"environment": {Env: []string{"ZKELECTD_POLICY_STRATEGIES=" + inline}},
		"over a file": {File: file(t, "policy: {strategies: [{use: score}]}"), Env: []string{"ZKELECTD_POLICY_STRATEGIES=" + inline}},
		"as JSON":     {Env: []string{`ZKELECTD_POLICY_STRATEGIES=[{"when":"cause == \"failure\"","use":"other-site"},{"use":"first"}]`}},
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

func TestAliasesOfStrategies(t *testing.T) {
	c := mustLoad(t, Sources{File: file(t, "policy:\n  strategies:\n  - &s {use: first}\n  - *s\n")})
	if len(c.Policy.Strategies) != 2 || c.Policy.Strategies[1].Use != "first" {
		t.Errorf("strategies: got %+v", c.Policy.Strategies)
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
		"\nstrategies: [{use: other-sit}]":          {"policy.strategies", ":4", "; did you mean other-site?"},
		"\nfilter: ['true', 'cause != \"relect\"']": {"policy.filter", ":4", `[1]: cause is never "relect": it is one of first, failure,`},
		"\nstrategies: [{when: 'cause == \"failur\"', use: first}]": {"policy.strategies", ":4", `[0].when: cause is never "failur": it is one of first, failure,`},
		"\nrank: [exec]":                                          {"policy.rank", ":4", `[0]: "exec" is not a ranker`},
		"\nrank: ['expr: member.x']":                              {"policy.rank", ":4", "[0]: "},
		"\nfilter: ['true', 'member.nothing']":                    {"policy.filter", ":4", "[1]: "},
		"\nfilter: ['member.priority']":                           {"policy.filter", ":4", "[0]: "},
		"\nfilter: 'true'":                                        {"policy.filter", ":4", "must be a list"},
		"\nstrategies: [{use: coin}]":                             {"policy.strategies", ":4", `"coin" is not a policy`},
		"\nstrategies: [{use: first}, {when: '1 +', use: first}]": {"policy.strategies", ":4", "[1]"},
		"\nstrategies: [{when: 'members', use: first}]":           {"policy.strategies", ":4", "[0]"},
		"\nstrategies: [{when: 'true'}]":                          {"policy.strategies", ":4", `"" is not a policy`},
		"\nstrategies: [~]":                                       {"policy.strategies", ":4", `"" is not a policy`},
		"\nstrategies: {use: first}":                              {"policy.strategies", ":4", "must be a list, as in [{when:"},
		"\nstrategies: first":                                     {"policy.strategies", ":4", "must be a list"},
		"\nstrategies: ~":                                         {"policy.strategies", ":4", "must be a list"},
		"\nstrategies: [first]":                                   {"policy.strategies", ":4", "[0]: must be a map"},
		"\nstrategies: [{use: first}, [first]]":                   {"policy.strategies", ":4", "[1]: must be a map"},
		"\nstrategies: [{use: [first]}]":                          {"policy.strategies", ":4", "[0]: use: must be a single value"},
		"\nstrategies: [{use: first, if: x}]":                     {"policy.strategies", ":4", `[0]: "if" is none of use, when`},
		"\nhysteresis: -1":                                        {"policy.hysteresis", ":4", "not between 0 and 1000"},
		"\nhysteresis: 1001":                                      {"policy.hysteresis", ":4", "1001 is not between 0 and 1000"},
		"\ntype: exec":                                            {"policy.exec", "default", "the policy type exec needs a program"},
		"\nstrategies: [{use: exec}]":                             {"policy.exec", "default", "the policy type exec needs a program"},
		"\nexec: ['']":                                            {"policy.exec", ":4", "its first element, is empty"},
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
