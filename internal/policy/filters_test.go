package policy

import (
	"errors"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

func TestFilters(t *testing.T) {
	cordon := func(c cluster.Cordon) []cluster.Cordon {
		c.Request = cluster.Request{By: "ann@host"}
		return []cluster.Cordon{{Node: "other"}, c}
	}
	for name, c := range map[string]struct {
		rules cluster.Rules
		in    Input
		want  string
		why   string // of b
	}{
		"none":                                {cluster.Rules{}, Input{}, "b a c", ""},
		"a cordoned node":                     {cluster.Rules{}, Input{Cordons: cordon(cluster.Cordon{Node: "b"})}, "a c (b)", "cordoned by ann@host"},
		"a cordoned leader stays":             {cluster.Rules{}, Input{Incumbent: "b", Cordons: cordon(cluster.Cordon{Node: "b"})}, "b a c", ""},
		"a drained one does not":              {cluster.Rules{}, Input{Incumbent: "b", Cordons: cordon(cluster.Cordon{Node: "b", Drain: true})}, "a c (b)", "drained by ann@host"},
		"a cordoned site":                     {cluster.Rules{}, Input{Cordons: cordon(cluster.Cordon{Site: "dc1"})}, "c (b) (a)", "site dc1 is cordoned"},
		"a cordoned site, whose leader stays": {cluster.Rules{}, Input{Incumbent: "a", Cordons: cordon(cluster.Cordon{Site: "dc1"})}, "a c (b)", "site dc1 is cordoned"},
		"a drained site":                      {cluster.Rules{}, Input{Incumbent: "a", Cordons: cordon(cluster.Cordon{Site: "dc1", Drain: true})}, "c (b) (a)", "site dc1 is drained"},
		"a cordon and a drain":                {cluster.Rules{}, Input{Incumbent: "b", Cordons: append(cordon(cluster.Cordon{Node: "b"}), cluster.Cordon{Site: "dc1", Drain: true})}, "c (b) (a)", "site dc1 is drained"},
		"a label":                             {cluster.Rules{Filter: []string{"member.labels.rack == 'r1'"}}, Input{}, "a (b) (c)", "policy.filter does not hold: member.labels.rack == 'r1'"},
		"an expression":                       {cluster.Rules{Filter: []string{"member.priority > 1", "member.id != 'b'"}}, Input{}, "c (b) (a)", "policy.filter does not hold: member.id != 'b'"},
		"an expression fails for one of them": {cluster.Rules{Filter: []string{"member.id != 'b' || int(member.labels.rack) > 0"}}, Input{}, "a c (b)", "policy.filter member.id != 'b' || int(member.labels.rack) > 0 failed: "},
		"an expression distinguishes unknown from small": {cluster.Rules{Filter: []string{"member.known_score && member.score < 1"}}, Input{}, "c (b) (a)", "does not hold"},
	} {
		c.in.Members = []cluster.Member{member("a", "dc1", 1, 1, label("rack", "r1")), member("b", "dc1", 5, 2), member("c", "dc2", 9, 3, label("rack", "r2"), score(0.5))}
		c.rules.Sites = map[string]int{"dc1": 1}
		r := policyOf(t, c.rules).Rank(c.in)
		if got := places(r); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if why := entry(t, r, "b").RefusalReason(); (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: b is refused by %q, want %q", name, why, c.why)
		}
	}
}

func TestAForcedMoveOverridesOnlySoftFilters(t *testing.T) {
	soft, hard := true, false
	for name, c := range map[string]struct {
		soft   bool
		rules  cluster.Rules
		change func(m *cluster.Member, in *Input)
	}{
		"observer":       {hard, cluster.Rules{}, func(m *cluster.Member, _ *Input) { m.Node.Record.Ineligible = "an observer" }},
		"unhealthy":      {soft, cluster.Rules{}, func(m *cluster.Member, _ *Input) { m.Node.Record.Unhealthy = "sick" }},
		"cordoned":       {soft, cluster.Rules{}, func(_ *cluster.Member, in *Input) { in.Cordons = []cluster.Cordon{{Node: "b"}} }},
		"drained":        {soft, cluster.Rules{}, func(_ *cluster.Member, in *Input) { in.Cordons = []cluster.Cordon{{Site: "dc2", Drain: true}} }},
		"filter":         {soft, cluster.Rules{Filter: []string{"member.id == 'a'"}}, nil},
		"superseded":     {hard, cluster.Rules{}, func(m *cluster.Member, _ *Input) { m.Superseded = true }},
		"no record":      {hard, cluster.Rules{}, func(m *cluster.Member, _ *Input) { m.Node.Exists = false }},
		"damaged record": {hard, cluster.Rules{}, func(m *cluster.Member, _ *Input) { m.Node.Err = errors.New("damaged") }},
		"barred":         {hard, cluster.Rules{}, func(_ *cluster.Member, in *Input) { in.Barred = map[string]string{"b": "stopping"} }},
		"excluded":       {hard, cluster.Rules{}, func(_ *cluster.Member, in *Input) { in.Excluded = map[string]string{"b": "struck"} }},
	} {
		target, other := member("b", "dc2", 1, 2), member("c", "dc1", 1, 3)
		in := Input{Incumbent: "a"}
		if c.change != nil {
			c.change(&target, &in)
		}
		in.Members = []cluster.Member{member("a", "dc1", 9, 1, label("rack", "r1")), target, other}
		p := policyOf(t, c.rules)
		for _, move := range []cluster.Move{{Node: "b"}, {Site: "dc2"}} {
			in.Move = &move
			if entry(t, p.Rank(in), "b").Eligible() {
				t.Errorf("%s: eligible without force to %s", name, move.Target())
			}
			in.Move = &cluster.Move{Node: move.Node, Site: move.Site, Force: true}
			best, _ := p.Rank(in).Best()
			if want := map[bool]string{soft: "b", hard: "a"}[c.soft]; best.ID != want {
				t.Errorf("%s: forced to %s, %s leads, want %s", name, move.Target(), best.ID, want)
			}
		}
		in.Move = &cluster.Move{Node: "c", Force: true}
		if entry(t, p.Rank(in), "b").Eligible() {
			t.Errorf("%s: eligible by the force for another node", name)
		}
	}
}

// What keeps a member from leading under any policy is the same as in a ranking.
func TestCheckMemberAgreesWithTheRanking(t *testing.T) {
	cordons := []cluster.Cordon{{Request: cluster.Request{By: "ann@host"}, Node: "b"}}
	for name, change := range map[string]func(m *cluster.Member){
		"nothing":        func(*cluster.Member) {},
		"ineligible":     func(m *cluster.Member) { m.Node.Record.Ineligible = "its disk is full" },
		"unhealthy":      func(m *cluster.Member) { m.Node.Record.Unhealthy = "exit status 2" },
		"cordoned":       func(m *cluster.Member) { m.ID = "b" },
		"superseded":     func(m *cluster.Member) { m.Superseded = true },
		"no record":      func(m *cluster.Member) { m.Node = cluster.Stored[cluster.Node]{} },
		"damaged record": func(m *cluster.Member) { m.Node.Err = errors.New("damaged") },
	} {
		m := member("a", "dc1", 1, 1)
		change(&m)
		want := policyOf(t, cluster.Rules{}).Rank(Input{Members: []cluster.Member{m}, Cordons: cordons}).Entries[0].RefusalReason()
		got := ""
		if err := CheckMember(m, cordons); err != nil {
			got = err.Error()
		}
		if got != want || (want == "") != (name == "nothing") {
			t.Errorf("%s: %q, the ranking says %q", name, got, want)
		}
	}
}

// A standby that is not warm leads only if no warm one can, or if it leads already, or if somebody insists.
func TestAWarmStandbyComesFirst(t *testing.T) {
	standby := func(state string) func(*cluster.Node) {
		return func(n *cluster.Node) { n.Standby = &cluster.Standby{State: state, Reason: "not yet"} }
	}
	for name, c := range map[string]struct {
		a, b, c string // the states of the members; b is the best one, and c the worst
		in      Input
		want    string
	}{
		"all warm":               {"warm", "warm", "warm", Input{}, "b a c"},
		"the best one warms up":  {"warm", "warming", "warm", Input{}, "a c (b)"},
		"one does not run":       {"cold", "warming", "warm", Input{}, "c (b) (a)"},
		"none is warm":           {"warming", "warming", "cold", Input{}, "b a c"},
		"the warm one must not":  {"warming", "warming", "warm", Input{Cordons: []cluster.Cordon{{Node: "c"}}}, "b a (c)"},
		"the leader is not warm": {"warm", "warming", "cold", Input{Incumbent: "b"}, "b a (c)"},
		"a move":                 {"warm", "warming", "warm", Input{Move: &cluster.Move{Node: "b"}}, "a c (b)"},
		"a forced move":          {"warm", "warming", "warm", Input{Move: &cluster.Move{Node: "b", Force: true}}, "b a c"},
	} {
		c.in.Members = []cluster.Member{member("a", "dc1", 5, 1, standby(c.a)), member("b", "dc1", 9, 2, standby(c.b)), member("c", "dc1", 1, 3, standby(c.c))}
		r := policyOf(t, cluster.Rules{Type: "priority"}).Rank(c.in)
		if got := places(r); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	plain := []cluster.Member{member("a", "dc1", 1, 1), member("b", "dc1", 5, 2, standby("warming"))}
	r := policyOf(t, cluster.Rules{Type: "priority"}).Rank(Input{Members: plain})
	if got := places(r); got != "a (b)" || !strings.Contains(entry(t, r, "b").RefusalReason(), "its standby is warming: not yet") {
		t.Errorf("beside a member whose work is not promotable: %s, %s", got, entry(t, r, "b").RefusalReason())
	}
}
