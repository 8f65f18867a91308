package policy

import (
	"os"
	"slices"
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
}

// The table of docs/policies.md has all causes, and those that expressions never see say what they see instead.
func TestCausesAreDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(data), "| cause | the last leader |")
	table, _, _ = strings.Cut(table, "\n\n")
	documented := make(map[string]string) // the description of each cause
	for _, row := range strings.Split(table, "\n") {
		if cells := strings.Split(row, "|"); len(cells) == 4 {
			for name := range strings.SplitSeq(cells[1], ",") {
				documented[strings.Trim(name, " `")] = cells[2]
			}
		}
	}
	delete(documented, "---")
	if len(documented) != len(cluster.Causes) {
		t.Errorf("docs/policies.md has %d causes, and there are %d", len(documented), len(cluster.Causes))
	}
	for _, c := range cluster.Causes {
		says, ok := documented[string(c)]
		if !ok {
			t.Errorf("docs/policies.md does not have %s", c)
		}
		refused := CheckCauses(cluster.Rules{Filter: []string{`cause == "` + string(c) + `"`}}) != nil
		if _, instead, _ := strings.Cut(says, "expressions see "); refused != (instead != "") {
			t.Errorf("%s: refused %v, documented as %q", c, refused, says)
		} else if seen, ok := c.InPolicy(); refused && ok && !strings.HasPrefix(instead, "`"+string(seen)+"`") {
			t.Errorf("%s: expressions see %s, documented as %q", c, seen, says)
		}
	}
}

// An expression about a site at which nobody is, or a node that is not a member, may be a mistake.
func TestExpressionsAboutUnknownSitesAndNodes(t *testing.T) {
	t.Parallel()
	const not = ", which no member is at, and policy.sites does not name"
	const none = ", which is not a member"
	members := []cluster.Member{member("web1", "frankfurt", 1, 0)}
	absent := []cluster.RosterNode{{ID: "web2", Site: "lisbon"}, {ID: "berlin", Site: "paris"}}
	for text, want := range map[string][]string{
		`member.site == "frankfurt"`:                            nil,
		`"paris" != member.site`:                                nil, // policy.sites names it
		`previous.site == "lisbon" || previous.site == ""`:      nil, // its members are absent
		`member.labels["site"] == "x" or member.id == "berlin"`: nil,
		`member.labels["id"] == "x" or member.labels.id == "y"`: nil,
		`member.id != "web1" || previous.id in ["web2", ""]`:    nil, // web2 is absent, and "" is no last leader
		`member.id not in ["web1", "wed1", "nobody"]`: {
			`policy.filter[0] names the node "nobody"` + none, `policy.filter[0] names the node "wed1"` + none + "; did you mean web1?",
		},
		`"berlin5" == previous.id`:                     {`policy.filter[0] names the node "berlin5"` + none + "; did you mean berlin?"},
		`any(members, .id == "n9")`:                    {`policy.filter[0] names the node "n9"` + none},
		`member.site == "frankfurth"`:                  {`policy.filter[0] names the site "frankfurth"` + not + "; did you mean frankfurt?"},
		`member.site not in ["oslo", "paris", "oslo"]`: {`policy.filter[0] names the site "oslo"` + not},
		`not ("pari" in failed_sites)`:                 {`policy.filter[0] names the site "pari"` + not + "; did you mean paris?"},
	} {
		p, err := New(cluster.Policy{Rules: cluster.Rules{
			Type: "priority", Sites: map[string]int{"paris": 1, "frankfurt": 2}, Filter: []string{text},
		}})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := p.Problems(groupWith(members, absent...))
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
		if got := p.Problems(groupWith(nil)); got != nil {
			t.Errorf("%s: without members: %q", text, got)
		}
	}
}
