package policy

import (
	"slices"
	"testing"

	"zkelectd/internal/cluster"
)

// An expression about a site at which nobody is may be a mistake.
func TestExpressionsAboutUnknownSites(t *testing.T) {
	t.Parallel()
	const not = ", which no member is at, and policy.sites does not name"
	member := cluster.Member{Node: cluster.Stored[cluster.Node]{Exists: true, Record: cluster.Node{Site: "frankfurt"}}}
	for text, want := range map[string][]string{
		`member.site == "frankfurt"`:                            nil,
		`"paris" != member.site`:                                nil, // policy.sites names it
		`previous.site == "lisbon" || previous.site == ""`:      nil, // its members are absent
		`member.labels["site"] == "x" or member.id == "berlin"`: nil,
		`member.site == "frankfurth"`:                           {`policy.filter[0] names the site "frankfurth"` + not + "; did you mean frankfurt?"},
		`member.site not in ["oslo", "paris", "oslo"]`:          {`policy.filter[0] names the site "oslo"` + not},
		`any(members, .site == "oslo")`:                         {`policy.filter[0] names the site "oslo"` + not},
		`not ("pari" in failed_sites)`:                          {`policy.filter[0] names the site "pari"` + not + "; did you mean paris?"},
	} {
		p, err := New(cluster.Policy{Rules: cluster.Rules{
			Type: "priority", Sites: map[string]int{"paris": 1, "frankfurt": 2}, Filter: []string{text},
		}})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := p.Problems([]cluster.Member{member}, "lisbon", "paris")
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
		if got := p.Problems(nil); got != nil {
			t.Errorf("%s: without members: %q", text, got)
		}
	}
}
