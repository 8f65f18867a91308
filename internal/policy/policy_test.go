package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
)

func member(id, site string, priority int, seq int32, more ...func(*cluster.Node)) cluster.Member {
	n := cluster.Node{ID: id, Site: site, Priority: priority}
	for _, change := range more {
		change(&n)
	}
	return cluster.Member{
		Incarnation: cluster.Incarnation{Name: id, ID: id, Seq: seq},
		Node:        cluster.Stored[cluster.Node]{Exists: true, Record: n},
	}
}

func score(v float64) func(*cluster.Node)   { return func(n *cluster.Node) { n.Score = &v } }
func latency(v float64) func(*cluster.Node) { return func(n *cluster.Node) { n.Latency = &v } }

func label(key, value string) func(*cluster.Node) {
	return func(n *cluster.Node) { n.Labels = map[string]string{key: value} }
}

func policyOf(t rapid.TB, rules cluster.Rules) *Policy {
	t.Helper()
	if rules.Type == "" {
		rules.Type = "priority"
	}
	p, err := New(cluster.Policy{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// places lists the ids, the best first, ineligible members in parentheses.
func places(r Ranking) string {
	var ids []string
	for _, e := range r.Entries {
		id := e.Member.ID
		if !e.Eligible() {
			id = "(" + id + ")"
		}
		ids = append(ids, id)
	}
	return strings.Join(ids, " ")
}

// entry returns the entry of a member.
func entry(t rapid.TB, r Ranking, id string) Entry {
	t.Helper()
	e, ok := r.Find(id)
	if !ok {
		t.Fatalf("%s is not in the ranking", id)
	}
	return e
}

func TestIneligibleMembersHaveAReason(t *testing.T) {
	missing, broken, full, old := member("missing", "dc1", 1, 1), member("broken", "dc1", 1, 2), member("full", "dc1", 1, 3), member("old", "dc1", 1, 4)
	missing.Node = cluster.Stored[cluster.Node]{}
	broken.Node.Err = errors.New("znode /c/nodes/broken is empty")
	full.Node.Record.Ineligible = "its disk is full"
	old.Superseded = true
	sick := member("sick", "dc1", 1, 8, func(n *cluster.Node) { n.Unhealthy = "exit status 2" })
	in := Input{
		Members: []cluster.Member{missing, broken, full, old, member("struck", "dc1", 1, 5), member("leaving", "dc1", 1, 6),
			member("fine", "dc1", 1, 7), sick, member("shut", "dc1", 1, 9)},
		Excluded: map[string]string{"struck": "excluded for 1m"},
		Barred:   map[string]string{"leaving": "it is stopping"},
		Cordons:  []cluster.Cordon{{Request: cluster.Request{By: "ann@host", Reason: "new disk"}, Node: "shut"}},
	}
	r := policyOf(t, cluster.Rules{}).Rank(in)
	if best, ok := r.Best(); !ok || best.ID != "fine" {
		t.Errorf("best is %v", best.ID)
	}
	verdicts, omitted := r.Verdicts()
	if len(verdicts) != len(in.Members) || omitted != 0 {
		t.Fatalf("%d verdicts for %d members", len(verdicts), len(in.Members))
	}
	want := map[string]string{
		"missing": "missing", "broken": "is empty", "full": "disk", "old": "older registration", "struck": "excluded", "leaving": "stopping",
		"fine": "priority 1", "sick": "unhealthy: exit status 2", "shut": "cordoned by ann@host: new disk",
	}
	for _, v := range verdicts {
		if !strings.Contains(v.Reason, want[v.Node]) || (v.Rank > 0) != (v.Node == "fine") {
			t.Errorf("%s: rank %d, %q", v.Node, v.Rank, v.Reason)
		}
	}
}

func TestEveryRefusalIsKept(t *testing.T) {
	m := member("a", "dc1", 1, 1, func(n *cluster.Node) { n.Ineligible, n.Unhealthy = "its disk is full", "no route" })
	r := policyOf(t, cluster.Rules{Filter: []string{"member.id != 'a'"}}).Rank(Input{Members: []cluster.Member{m}})
	var filters []string
	for _, refusal := range r.Entries[0].Refusals {
		filters = append(filters, refusal.Filter)
	}
	if want := []string{"eligible", HealthFilter, "filter member.id != 'a'"}; !slices.Equal(filters, want) || r.Entries[0].RefusalReason() != "its disk is full" {
		t.Errorf("refused by %v, first %q; want %v", filters, r.Entries[0].RefusalReason(), want)
	}
}

func TestTheDifferenceIsTheFirstRankerWhoseScoresDiffer(t *testing.T) {
	sites := map[string]int{"dc1": 2, "dc2": 1}
	for name, c := range map[string]struct {
		a, b            cluster.Member
		incumbent, want string
	}{
		"site":          {member("a", "dc1", 1, 1), member("b", "dc2", 9, 2), "", "site dc1 has 2 against site dc2 has 1"},
		"priority":      {member("a", "dc1", 7, 1), member("b", "dc1", 3, 2), "", "priority 7 against priority 3"},
		"incumbent":     {member("a", "dc1", 1, 2), member("b", "dc1", 1, 1), "a", "incumbent"},
		"not incumbent": {member("a", "dc1", 1, 2), member("b", "dc1", 1, 1), "b", "by incumbent: not incumbent"},
		"oldest":        {member("a", "dc1", 1, 1), member("b", "dc1", 1, 2), "", "sequence 1 against sequence 2"},
		"not a member":  {member("a", "dc1", 1, 1), member("x", "dc1", 1, 2), "", ""},
	} {
		r := policyOf(t, cluster.Rules{Sites: sites}).Rank(Input{Members: []cluster.Member{c.a, c.b}, Incumbent: c.incumbent})
		if got := r.Difference("a", "b"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// All members of a large group read the record, so it has only the first verdicts: that of the elected member and those of the next ones.
func TestLargeGroupsKeepTheRecordSmall(t *testing.T) {
	for members, want := range map[int]int{0: 0, 1: 1, 12: 12, 13: 13, 50: 50, 51: 12, 5000: 12} {
		var in Input
		for i := range members {
			in.Members = append(in.Members, member(fmt.Sprintf("host-%06d.example.com", i), strings.Repeat("s", 20), i, int32(i)))
		}
		r := policyOf(t, cluster.Rules{}).Rank(in)
		verdicts, omitted := r.Verdicts()
		if len(verdicts) != want || len(verdicts)+omitted != members {
			t.Errorf("%d members: %d verdicts and %d omitted, want %d verdicts", members, len(verdicts), omitted, want)
		}
		for i, v := range verdicts {
			if v.Rank != i+1 || v.Incarnation != r.Entries[i].Member.Name {
				t.Errorf("%d members: verdict %d is %+v", members, i, v)
			}
		}
		rec := cluster.Elected{Ranking: verdicts, RankingOmitted: omitted}
		if size := len(cluster.Encode(&rec)); members == 5000 && size > 3<<10 {
			t.Errorf("a record of %d bytes", size)
		}
	}
}

func TestNoBestWithoutEligibleMembers(t *testing.T) {
	for name, in := range map[string]Input{
		"no members":      {},
		"all are refused": {Members: []cluster.Member{member("a", "dc1", 1, 1)}, Excluded: map[string]string{"a": "struck"}},
	} {
		for _, policyType := range Types() {
			if best, ok := policyOf(t, cluster.Rules{Type: policyType}).Rank(in).Best(); ok {
				t.Errorf("%s, %s: %s is the best", name, policyType, best.ID)
			}
		}
	}
}

func TestASiteWithoutMembersIsAProblem(t *testing.T) {
	p := policyOf(t, cluster.Rules{Sites: map[string]int{"dc1": 1, "dc9": 2, "dc7": 3}})
	if got := p.Problems(groupWith([]cluster.Member{member("a", "dc1", 1, 0)}, cluster.RosterNode{ID: "b", Site: "dc7"}, cluster.RosterNode{ID: "c", Site: "dc9"})); got != nil {
		t.Errorf("the members of a site are lost: %q", got)
	}
	for name, c := range map[string]struct {
		sites []string
		want  string
	}{
		"some have none": {[]string{"dc1"}, "policy.sites names dc7, dc9, which no member is at"},
		"all have one":   {[]string{"dc1", "dc7", "dc9"}, ""},
		"not named":      {[]string{"dc1", "dc7", "dc9", "dc5"}, "members are at dc5, which policy.sites does not name"},
		"no members":     {nil, ""},
	} {
		var members []cluster.Member
		for i, site := range c.sites {
			members = append(members, member(site, site, 1, int32(i)))
		}
		if got := strings.Join(p.Problems(groupWith(members)), "\n"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// groupWith returns a group with members and absent nodes.
func groupWith(members []cluster.Member, absent ...cluster.RosterNode) *cluster.Snapshot {
	return &cluster.Snapshot{Members: members, Roster: cluster.Stored[cluster.Roster]{Exists: true, Record: cluster.Roster{Nodes: absent}}}
}

// However long the members' records are, the decision about them can be read again.
func TestVerdictsOfVerboseMembersFitARecord(t *testing.T) {
	for _, text := range []string{"x", "<", "\x01", "é", "\xff", `"`} {
		var r Ranking
		for i := range maxVerdicts {
			m := cluster.Member{Incarnation: cluster.Incarnation{ID: fmt.Sprintf("n%d", i), Name: fmt.Sprintf("n%d-0000000000000001-n_%010d", i, i)}}
			m.Node.Record.Site = strings.Repeat(text, 100_000)
			r.Entries = append(r.Entries, Entry{Member: &m, Scores: []Score{{Words: m.Node.Record.Site}}})
		}
		verdicts, omitted := r.Verdicts()
		if data := cluster.Encode(&cluster.Elected{Ranking: verdicts}); len(data) > cluster.MaxRecord || len(verdicts) != maxVerdicts || omitted != 0 {
			t.Errorf("%q: %d bytes, %d omitted", text, len(data), omitted)
		}
		if s := verdicts[0].Site; text != "\xff" && !utf8.ValidString(s) || !strings.HasSuffix(s, "…") {
			t.Errorf("%q became %q", text, s)
		}
	}
	if short := "site dc1 has 200 against site dc2 has 100"; clip(short) != short {
		t.Error(clip(short))
	}
}

// If no member is eligible, the reasons of the first five are listed, and how many more there are.
func TestRefusals(t *testing.T) {
	for n, want := range map[int]string{
		0: "no member is registered",
		1: "m0: it is ineligible",
		5: "m4: it is ineligible",
		6: "; and 1 more",
		7: "; and 2 more",
	} {
		var r Ranking
		for i := range n {
			r.Entries = append(r.Entries, Entry{
				Member:   &cluster.Member{Incarnation: cluster.Incarnation{ID: fmt.Sprintf("m%d", i)}},
				Refusals: []Refusal{{Reason: "it is ineligible"}},
			})
		}
		got := r.Refusals()
		if !strings.HasSuffix(got, want) || strings.Count(got, ": ") != min(n, 5) || strings.Contains(got, "more") != (n > 5) {
			t.Errorf("%d: %q", n, got)
		}
	}
}

func TestCacheCompilesOncePerChange(t *testing.T) {
	var c Cache
	rec := cluster.Policy{Revision: 1, Rules: cluster.Rules{Type: "priority", Sites: map[string]int{"dc1": 1}}}
	first, err := c.Compile(rec)
	if err != nil {
		t.Fatal(err)
	}
	same := rec
	same.Rules.Sites = map[string]int{"dc1": 1}
	if again, err := c.Compile(same); err != nil || again != first {
		t.Errorf("an equal policy was compiled again: %v", err)
	}
	for name, change := range map[string]func(*cluster.Policy){
		"revision": func(p *cluster.Policy) { p.Revision = 2 },
		"rules":    func(p *cluster.Policy) { p.Rules.Sites = map[string]int{"dc1": 2} },
	} {
		next := rec
		change(&next)
		got, err := c.Compile(next)
		if err != nil || got == first || got.Revision != next.Revision || got.Rules.Sites["dc1"] != next.Rules.Sites["dc1"] {
			t.Errorf("another %s: %+v, %v", name, got, err)
		}
	}
	if p, err := new(Cache).Compile(cluster.Policy{}); p != nil || err == nil {
		t.Errorf("an empty policy: %v, %v", p, err)
	}
	for range 2 {
		if p, err := c.Compile(cluster.Policy{Rules: cluster.Rules{Type: "coin"}}); p != nil || err == nil {
			t.Errorf("a policy that cannot be compiled: %v, %v", p, err)
		}
	}
}
