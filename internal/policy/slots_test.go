package policy

import (
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// Slots are spread before the policy's own rankers count, and no node gets more than it may have.
func TestSlotsAreSpread(t *testing.T) {
	p, err := New(cluster.Policy{Rules: cluster.Rules{Type: "node-id"}})
	if err != nil {
		t.Fatal(err)
	}
	in := Input{PerNode: 2, Held: map[string]int{"a": 1, "b": 2}}
	for i, id := range []string{"a", "b", "c"} {
		in.Members = append(in.Members, cluster.Member{
			Incarnation: cluster.Incarnation{Name: id, ID: id, Seq: int32(i)}, Node: cluster.Stored[cluster.Node]{Exists: true},
		})
	}
	order := func() string {
		var ids []string
		for _, e := range p.Rank(in).Entries {
			ids = append(ids, e.Member.ID)
		}
		return strings.Join(ids, " ")
	}
	if got := order(); got != "c a b" {
		t.Errorf("order %s", got)
	}
	r := p.Rank(in)
	if got := r.Difference("c", "a"); got != "no other slot against 1 other slot" {
		t.Error(got)
	}
	if b, _ := r.Find("b"); b.RefusalReason() != "it leads 2 of at most 2 slots" || len(b.Refusals) != 1 || b.Scores[1].Words != "2 other slots" {
		t.Errorf("%+v", b)
	}
	// A forced move does not exempt from it; a move comes before the balance.
	in.Move = &cluster.Move{Node: "b", Force: true}
	if b, _ := p.Rank(in).Find("b"); b.Eligible() {
		t.Error("a forced move exceeds per_node")
	}
	in.Move = &cluster.Move{Node: "a"}
	if got := order(); got != "a c b" {
		t.Errorf("order %s", got)
	}
	in.Move, in.PerNode = nil, 0
	if got := order(); got != "a b c" {
		t.Errorf("without slots the order is %s", got)
	}
}
