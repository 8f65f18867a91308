package policy

import (
	"slices"
	"testing"

	"zkelectd/internal/cluster"
)

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
		`any(members, .site == "oslo")`:                {`policy.filter[0] names the site "oslo"` + not},
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
