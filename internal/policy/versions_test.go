package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

func TestVersionsAreComparedAsPeopleReadThem(t *testing.T) {
	sorted := []string{"0.9", "1.2.0-rc1", "1.2.0-rc2", "1.2.0-rc10", "1.2.0", "1.2.0.1", "1.9", "1.10.0", "2024.11.3", "2024.12.1"}
	for i, a := range sorted {
		for j, b := range sorted {
			if got, want := compareVersions(a, b), i-j; (got < 0) != (want < 0) || (got == 0) != (want == 0) {
				t.Errorf("%s and %s: %d", a, b, got)
			}
		}
	}
	for a, b := range map[string]string{"v1.2.0": "1.2.0", "1.2.0+build5": "1.2.0"} {
		if compareVersions(a, b) != 0 {
			t.Errorf("%s and %s differ", a, b)
		}
	}
}

func TestVersionRankers(t *testing.T) {
	version := func(v string) func(*cluster.Node) {
		return func(n *cluster.Node) { n.Labels = map[string]string{"app": v} }
	}
	members := []cluster.Member{
		member("a", "dc1", 1, 1, version("1.9")), member("b", "dc1", 1, 2, version("1.10")), member("c", "dc1", 1, 3),
		member("d", "dc1", 1, 4, version("1.10")),
	}
	for rank, want := range map[string]string{
		"newest:app incumbent oldest": "d b a c", // equal versions do not replace the leader
		"newest:app oldest":           "b d a c",
		"oldest:app oldest":           "a b d c",
		"newest:none oldest":          "a b c d",
	} {
		r := policyOf(t, cluster.Rules{Rank: strings.Fields(rank)}).Rank(Input{Members: members, Incumbent: "d"})
		if got := places(r); got != want {
			t.Errorf("%s: %s, want %s", rank, got, want)
		}
	}
	r := policyOf(t, cluster.Rules{Rank: []string{"newest:app"}}).Rank(Input{Members: members})
	if got := r.Difference("b", "a"); got != "app 1.10 against app 1.9" {
		t.Error(got)
	}
	for _, name := range []string{"newest:", "oldest: app", "newset:app"} {
		if _, err := New(cluster.Policy{Rules: cluster.Rules{Rank: []string{name}}}); err == nil || !strings.HasPrefix(err.Error(), "policy.rank[0]: ") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Between sites of different sizes each site has as many slots, and each host of a site as many, as far as possible; and that ends.
func TestSlotsAreSpreadOverSites(t *testing.T) {
	members := []cluster.Member{
		member("a", "dc1", 1, 1), member("b", "dc1", 1, 2), member("c", "dc1", 1, 3), member("d", "dc2", 1, 4), member("e", "dc3", 1, 5),
	}
	p := policyOf(t, cluster.Rules{SpreadBy: cluster.SpreadBySite})
	slots := make([]string, 12) // by whom they are led
	leads := func(except int) map[string]int {
		n := make(map[string]int)
		for i, id := range slots {
			if i != except && id != "" {
				n[id]++
			}
		}
		return n
	}
	moves := 0
	for changed := true; changed; {
		changed = false
		for i := range slots {
			best, ok := p.Rank(Input{Members: members, Incumbent: slots[i], Held: leads(i), PerNode: 100}).Best()
			if ok && best.ID != slots[i] {
				slots[i], changed = best.ID, true
				moves++
			}
		}
		if moves > 100 {
			t.Fatal("it does not end")
		}
	}
	got := leads(-1)
	if got["d"] != 4 || got["e"] != 4 || max(got["a"], got["b"], got["c"]) > 2 {
		t.Errorf("%v after %d moves", got, moves)
	}
	if moves != len(slots) {
		t.Errorf("%d moves", moves)
	}
}

func TestGroupsAreSpreadOverSites(t *testing.T) {
	var members []cluster.Member
	for i := range 5 {
		site := "dc1"
		if i == 4 {
			site = "dc2"
		}
		members = append(members, member("n"+string(rune('0'+i)), site, 1, int32(i)))
	}
	groups := names(0, 400)
	for policyType, most := range map[string]int{"spread": 240, "fewest": 222} {
		p := policyOf(t, cluster.Rules{Type: policyType, SpreadBy: cluster.SpreadBySite})
		n := 0
		for _, id := range elect(p, members, groups) {
			if id == "n4" {
				n++
			}
		}
		if n > most || n < 400-most {
			t.Errorf("%s: the only host of dc2 leads %d of 400", policyType, n)
		}
	}
	// When a host is lost, its groups stay in its site if they are spread by names, and nothing else moves.
	p := policyOf(t, cluster.Rules{Type: "spread", SpreadBy: cluster.SpreadBySite})
	before, after := elect(p, members, groups), elect(p, slices.Delete(slices.Clone(members), 0, 1), groups)
	for g, id := range before {
		if id != "n0" && after[g] != id || id == "n0" && after[g] == "n4" {
			t.Fatalf("%s moves from %s to %s", g, id, after[g])
		}
	}
	// fewest never preempts, but a reelection leaves a site that leads too much.
	q := policyOf(t, cluster.Rules{Type: "fewest", SpreadBy: cluster.SpreadBySite})
	in := Input{Members: members, Group: "billing", Incumbent: "n4", Load: map[string]int{"n4": 9, "n0": 2}}
	if best, _ := q.Rank(in).Best(); best.ID != "n4" {
		t.Errorf("preempted by %s", best.ID)
	}
	in.Reelect = true
	if best, _ := q.Rank(in).Best(); best.Node.Record.Site != "dc1" {
		t.Errorf("a reelection elects %s", best.ID)
	}
}

func TestHealthInExpressions(t *testing.T) {
	sick := func(n *cluster.Node) { n.Unhealthy = "sick" }
	members := []cluster.Member{
		member("a", "dc1", 9, 1), member("b", "dc1", 1, 2, sick), member("c", "dc1", 1, 3, sick), member("d", "dc2", 1, 4), member("e", "dc2", 1, 5, sick),
	}
	for rule, want := range map[string]string{
		"site.healthy >= 0.5": "d (a) (b) (c) (e)",
		"site.healthy > 0.3":  "a d (b) (c) (e)",
		"count(members, .site == member.site && .healthy) * 2 >= count(members, .site == member.site)": "d (a) (b) (c) (e)",
		"member.healthy": "a d (b) (c) (e)",
	} {
		if got := places(policyOf(t, cluster.Rules{Filter: []string{rule}}).Rank(Input{Members: members})); got != want {
			t.Errorf("%s: %s, want %s", rule, got, want)
		}
	}
	// A silent member is lost.
	in := Input{Members: members, Silent: map[string]bool{"d": true}, Barred: map[string]string{"d": "it is silent"}}
	if got := places(policyOf(t, cluster.Rules{Filter: []string{"site.healthy > 0"}}).Rank(in)); got != "a (b) (c) (d) (e)" {
		t.Error(got)
	}
}

// However many hosts a site has, each of them gets as much as the others there.
func TestFewestWithinSitesOfDifferentSizes(t *testing.T) {
	p := policyOf(t, cluster.Rules{Type: "fewest", SpreadBy: cluster.SpreadBySite})
	var members []cluster.Member
	for i := range 12 {
		members = append(members, member(fmt.Sprint("n", i), map[bool]string{true: "dc2", false: "dc1"}[i > 1], 1, int32(i)))
	}
	load := make(map[string]int)
	for i := range 240 {
		best, _ := p.Rank(Input{Members: members, Group: fmt.Sprint("g", i), Load: load}).Best()
		load[best.ID] = load[best.ID] + 1
	}
	for _, m := range members {
		mean, n := 12.0, load[m.ID]
		if m.Node.Record.Site == "dc1" {
			mean = 60
		}
		if float64(n) > aboveMean*mean+1 {
			t.Errorf("%s leads %d, and the mean of its site is %g", m.ID, n, mean)
		}
	}
}
