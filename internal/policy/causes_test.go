package policy

import (
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

func TestCausesInExpressionsAreChecked(t *testing.T) {
	const list = "it is one of first, failure, stopped, gave-up, revoked, overdue, preempt, ineligible, unhealthy, move, drain, reelect, repair"
	for text, want := range map[string]string{
		`cause == "failed"`:                                   `cause is never "failed": ` + list,
		`cause == "failur"`:                                   `cause is never "failur": ` + list + `; did you mean failure?`,
		`cause != "gaveup"`:                                   `cause is never "gaveup": ` + list + `; did you mean gave-up?`,
		`'premept' == cause`:                                  `cause is never "premept": ` + list + `; did you mean preempt?`,
		`cause in ["move", "relect"]`:                         `cause is never "relect": ` + list + `; did you mean reelect?`,
		`cause not in ["drian"]`:                              `cause is never "drian": ` + list + `; did you mean drain?`,
		`len(members) > 1 && !(cause == "mov")`:               `cause is never "mov": ` + list + `; did you mean move?`,
		`any(members, .site == "x" && cause == "stoped")`:     `cause is never "stoped": ` + list + `; did you mean stopped?`,
		`cause == "silent"`:                                   `cause is never "silent": ` + list,
		`cause in ["failure", "overdue"] || cause == "first"`: "",
		`previous.site == "failed" || cause startsWith "fai"`: "",
		`cause == previous.id || cause in failed_sites`:       "",
	} {
		for key, rules := range map[string]cluster.Rules{
			"policy.rank[1]":            {Rank: []string{"site", "expr: " + text}},
			"policy.filter[1]":          {Type: "first", Filter: []string{"true", text}},
			"policy.strategies[1].when": {Type: "first", Strategies: []cluster.Strategy{{Use: "first"}, {When: text, Use: "first"}}},
		} {
			if _, err := New(cluster.Policy{Rules: rules}); err != nil {
				t.Errorf("a record with %s: %v", text, err)
			}
			got := ""
			if err := CheckCauses(rules); err != nil {
				got = err.Error()
			}
			if full := key + ": " + want; got != full && (want != "" || got != "") {
				t.Errorf("%s: got %q, want %q", text, got, full)
			}
		}
	}
	for _, c := range cluster.Causes {
		err := CheckCauses(cluster.Rules{Filter: []string{`cause == "` + string(c) + `"`}})
		if hidden := strings.Contains(" silent lapsed ", " "+string(c)+" "); (err != nil) != hidden {
			t.Errorf("%s: %v", c, err)
		}
	}
}
