package policy

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/expr-lang/expr"

	"zkelectd/internal/cluster"
)

// everywhere returns rules that use an expression in each place, by the setting that an error names.
func everywhere(text string) map[string]cluster.Rules {
	return map[string]cluster.Rules{
		"policy.filter[0]":          {Type: "priority", Filter: []string{text}},
		"policy.rank[1]":            {Rank: []string{"site", exprPrefix + text}},
		"policy.strategies[0].when": {Type: "priority", Strategies: []cluster.Strategy{{When: text, Use: "first"}}},
	}
}

func TestTooExpensiveExpressionsAreRejected(t *testing.T) {
	const loops = "any(members, any(members, any(members, true)))"
	for text, want := range map[string]string{
		"true or '" + strings.Repeat("x", maxText) + "' == ''": fmt.Sprintf("more than %d", maxText),
		"1 == 1" + strings.Repeat(" and 1 == 1", maxNodes/2):   "exceeds maximum allowed nodes",
		loops: "more than 2 loops (any ...) are nested",
		"any(filter(map(members, .priority), # > 1), # > 2)": "more than 2 loops (any ...)",
		"count(1..1000000) > 1":                              "a range must be written with literal numbers, and have at most 100 values",
		"count(-200..-1, true) > 1":                          "a range must be written",
		"len(1..len(members)) > 1":                           "a range must be written",
		"let a = 'x'; a == 'y'":                              "let is not supported",
		"cause + cause == 'x'":                               "+ is for numbers",
		"members == members":                                 "== is for numbers and strings",
		"[members] != [members]":                             "!= is for numbers and strings",
		"members in [members]":                               "in looks for a number or a string",
		"cause matches previous.id":                          "a pattern must be a string literal",
		"cause matches 'a{900}b{900}c{900}'":                 "is too large: it has too many repetitions",
		"repeat('x', 1000000) == ''":                         "unknown name repeat",
		"now().Unix() > 1":                                   "unknown name now",
		"__iterate()":                                        "unknown name __iterate",
	} {
		for key, rules := range everywhere(text) {
			_, err := New(cluster.Policy{Rules: rules})
			if err == nil || !strings.HasPrefix(err.Error(), key+": ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%.80s as %s: %v, want %s", text, key, err, want)
			}
		}
	}
}

func TestUsualExpressionsAreAccepted(t *testing.T) {
	for _, text := range []string{
		`cause == "failure" && previous.site == "dc1"`, `cause in ["move", "reelect"]`, `count(members, .site == previous.site) > 1 + 1`,
		`first(failed_sites) == "dc1"`, `any(members, any(split(.labels.roles ?? "", ","), # == "db"))`, `all(1..100, # > 0)`,
		`cause matches "^(over|gave)-?.*$"`, `len(filter(members, .priority >= 100)) * 2 > len(members)`, `upper(cause) startsWith "F"`,
		`sortBy(members, .priority)[0].id == "a"`, `max(map(members, .score)) > 1.5 + 0.5`, `sum(members, .priority) > 3`, `mean(map(members, .latency)) < 2`,
		"(1..3)[0] == 1", `members[0].labels["rack"] == "r1" or members[0].labels.rack == nil`,
	} {
		for key, rules := range everywhere(text) {
			p, err := New(cluster.Policy{Rules: rules})
			if err != nil {
				t.Errorf("%s as %s: %v", text, key, err)
				continue
			}
			for _, e := range p.Rank(fuzzed()).Entries {
				if why := e.RefusalReason(); strings.Contains(why, "fails") {
					t.Errorf("%s as %s: %s", text, key, why)
				}
			}
		}
	}
}

// large returns a large group.
func large(n int) Input {
	var in Input
	for i := range n {
		in.Members = append(in.Members, member(fmt.Sprintf("n%03d", i), fmt.Sprintf("dc%d", i%3), i%7, int32(i), label("rack", "r1")))
	}
	return in
}

// A nested loop is quadratic, and cubic for all members: beyond a limit it fails with an error instead of delaying the elector.
func TestLoopIterationsAreLimited(t *testing.T) {
	const text = "count(members, any(members, .id == 'nobody')) == 0"
	p := policyOf(t, cluster.Rules{Filter: []string{text}})
	if why := p.Rank(large(30)).Entries[0].RefusalReason(); why != "" {
		t.Errorf("30 members: %s", why)
	}
	program, err := compile("policy.filter", text, exprEnv{}, expr.AsBool())
	if err != nil {
		t.Fatal(err)
	}
	in := large(99)
	for shares, fails := range map[int]bool{99: false, 110: true, 100_000: true, 10_000_000: true} {
		env := envOf(groupOf(in), &in.Members[0], &in)
		env.Iterate = iterationBudget(shares)
		_, err := run(program, env)
		if (err != nil) != fails || (fails && !strings.Contains(err.Error(), "its loops have too many iterations")) {
			t.Errorf("one of %d: %v", shares, err)
		}
	}
}

func TestMemoryIsLimited(t *testing.T) {
	p := policyOf(t, cluster.Rules{Filter: []string{"len(map(1..100, map(1..100, [#, #, #, #, #, #, #, #, #]))) > 0"}})
	if why := p.Rank(large(1)).Entries[0].RefusalReason(); !strings.Contains(why, "memory budget exceeded") {
		t.Error(why)
	}
	in := large(1)
	p = policyOf(t, cluster.Rules{Filter: []string{"all(members, " + strings.Repeat("len(map(1..100, [#, #])) > 0 and ", 20) + "true)"}})
	if why := p.Rank(in).Entries[0].RefusalReason(); why != "" {
		t.Error(why)
	}
}

// A text in a member's record may have any length.
func TestExpressionsSeeTruncatedTexts(t *testing.T) {
	in := Input{Members: []cluster.Member{member("a", "dc1", 1, 0, label("junk", strings.Repeat("x,", 200_000)))}}
	p := policyOf(t, cluster.Rules{Filter: []string{`len(member.labels.junk) == 1024 and all(split(member.labels.junk, ","), true)`}})
	if why := p.Rank(in).Entries[0].RefusalReason(); why != "" {
		t.Error(why)
	}
	if n := len(in.Members[0].Node.Record.Labels["junk"]); n != 400_000 {
		t.Errorf("the record was changed: %d", n)
	}
}

func TestTheLimitsAreDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(data)), " ")
	for _, want := range []string{
		"`" + strings.Join(functions, "`, `") + "`", fmt.Sprintf("%d bytes", maxText), fmt.Sprintf("%d operators and operands", maxNodes),
		fmt.Sprintf("at most %d numbers", maxRange), fmt.Sprintf("first %d bytes", maxInput), "1,000,000 iterations", "100,000 items",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("docs/policies.md does not say %q", want)
		}
	}
}
