package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
)

func member(id, site string, priority int, seq int32) cluster.Member {
	return cluster.Member{
		Incarnation: cluster.Incarnation{Name: id, ID: id, Seq: seq},
		Node:        cluster.Slot[cluster.Node]{Exists: true, Record: cluster.Node{ID: id, Site: site, Priority: priority}},
	}
}

func compile(t testing.TB, sites map[string]int) *Policy {
	t.Helper()
	p, err := New(cluster.Policy{Type: "priority", Sites: sites})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func order(r Ranking) []string {
	var ids []string
	for _, e := range r.Entries {
		id := e.Member.ID
		if e.Refused != "" {
			id = "(" + id + ")"
		}
		ids = append(ids, id)
	}
	return ids
}

func TestPriority(t *testing.T) {
	sites := map[string]int{"dc1": 200, "dc2": 100}
	for name, c := range map[string]struct {
		members   []cluster.Member
		incumbent string
		want      []string
	}{
		"the site comes first":             {[]cluster.Member{member("a", "dc2", 999, 1), member("b", "dc1", 1, 2)}, "", []string{"b", "a"}},
		"then the node's priority":         {[]cluster.Member{member("a", "dc1", 1, 1), member("b", "dc1", 2, 2)}, "a", []string{"b", "a"}},
		"then the incumbent":               {[]cluster.Member{member("a", "dc1", 1, 1), member("b", "dc1", 1, 2)}, "b", []string{"b", "a"}},
		"then the oldest":                  {[]cluster.Member{member("a", "dc1", 1, 1), member("b", "dc1", 1, 2)}, "", []string{"a", "b"}},
		"an unlisted site has 0":           {[]cluster.Member{member("a", "dc3", 9, 1), member("b", "dc2", 1, 2)}, "", []string{"b", "a"}},
		"the oldest, across the wrap":      {[]cluster.Member{member("a", "dc1", 1, 2147483647), member("b", "dc1", 1, -2147483648)}, "", []string{"a", "b"}},
		"negative priorities rank as well": {[]cluster.Member{member("a", "dc1", -5, 1), member("b", "dc1", -1, 2)}, "", []string{"b", "a"}},
	} {
		if got := order(compile(t, sites).Rank(Input{Members: c.members, Incumbent: c.incumbent})); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestWhoMayNotLeadIsToldWhy(t *testing.T) {
	missing, broken, sick, old := member("missing", "dc1", 1, 1), member("broken", "dc1", 1, 2), member("sick", "dc1", 1, 3), member("old", "dc1", 1, 4)
	missing.Node = cluster.Slot[cluster.Node]{}
	broken.Node.Err = errors.New("znode /c/nodes/broken is empty")
	sick.Node.Record.Ineligible = "its disk is full"
	old.Superseded = true
	in := Input{
		Members:  []cluster.Member{missing, broken, sick, old, member("struck", "dc1", 1, 5), member("leaving", "dc1", 1, 6), member("fine", "dc1", 1, 7)},
		Excluded: map[string]string{"struck": "excluded for 1m"},
		Barred:   map[string]string{"leaving": "it is stopping"},
	}
	r := compile(t, nil).Rank(in)
	if best, ok := r.Best(); !ok || best.ID != "fine" {
		t.Errorf("best is %v", best.ID)
	}
	verdicts, omitted := r.Verdicts()
	if len(verdicts) != len(in.Members) || omitted != 0 {
		t.Fatalf("%d verdicts for %d members", len(verdicts), len(in.Members))
	}
	want := map[string]string{
		"missing": "missing", "broken": "is empty", "sick": "disk", "old": "older registration", "struck": "excluded", "leaving": "stopping", "fine": "priority 1",
	}
	for _, v := range verdicts {
		if !strings.Contains(v.Why, want[v.Node]) || (v.Rank > 0) != (v.Node == "fine") {
			t.Errorf("%s: rank %d, %q", v.Node, v.Rank, v.Why)
		}
	}
}

func TestRankingDoesNotDependOnTheOrderOfItsInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var members []cluster.Member
		for i := range rapid.IntRange(1, 12).Draw(t, "members") {
			members = append(members, member(string(rune('a'+i)), rapid.SampledFrom([]string{"dc1", "dc2", "dc3"}).Draw(t, "site"),
				rapid.IntRange(0, 2).Draw(t, "priority"), int32(i)))
		}
		p, err := New(cluster.Policy{Type: "priority", Sites: map[string]int{"dc1": 2, "dc2": 1}})
		if err != nil {
			t.Fatal(err)
		}
		in := Input{Members: members, Incumbent: rapid.SampledFrom(members).Draw(t, "incumbent").Name}
		first := order(p.Rank(in))
		in.Members = rapid.Permutation(members).Draw(t, "order")
		if again := order(p.Rank(in)); !slices.Equal(first, again) {
			t.Fatalf("%v, then %v", first, again)
		}
	})
}

func TestAnUnknownTypeIsRefused(t *testing.T) {
	if _, err := New(cluster.Policy{Type: "coin"}); err == nil || !strings.Contains(err.Error(), "policy.type") {
		t.Errorf("%v", err)
	}
}

func TestLargeGroupsKeepTheRecordSmall(t *testing.T) {
	var in Input
	for i := range 5000 {
		in.Members = append(in.Members, member(strings.Repeat("n", 20), strings.Repeat("s", 20), 1, int32(i)))
	}
	verdicts, omitted := compile(t, nil).Rank(in).Verdicts()
	rec := cluster.Elected{Ranking: verdicts, RankingOmitted: omitted}
	if size := len(cluster.Encode(&rec)); size > 256<<10 || len(verdicts)+omitted != 5000 {
		t.Errorf("a record of %d bytes, %d verdicts and %d omitted", size, len(verdicts), omitted)
	}
}
