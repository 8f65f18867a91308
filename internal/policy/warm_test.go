package policy

import (
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

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
