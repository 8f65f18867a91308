package electing

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
)

// A preemption keeps its permit until its leader is READY, or until it is no longer wanted. Meanwhile no other group of
// this host moves.
func TestAPreemptionKeepsItsPermit(t *testing.T) {
	p, err := policy.New(cluster.Policy{Rules: cluster.Rules{Type: "priority", Failback: cluster.FailbackImmediate}})
	if err != nil {
		t.Fatal(err)
	}
	var s cluster.Snapshot
	for i, id := range []string{"a", "b"} {
		node := cluster.Node{ID: id, Site: "dc1", Priority: 9 - i}
		s.Members = append(s.Members, cluster.Member{
			Incarnation: cluster.Incarnation{Name: id, ID: id, Seq: int32(i)}, Node: cluster.Stored[cluster.Node]{Exists: true, Record: node},
		})
	}
	s.Self, s.Elector, s.HolderRead = s.Members[0].Incarnation, true, true
	led := func(id string, term int64) cluster.Snapshot {
		return s.AfterElection(cluster.Elected{Term: term, Node: id, Site: "dc1", Incarnation: id})
	}
	limit := NewLimit(1)
	group := func() *Elector {
		return &Elector{opt: Options{Moves: limit.NewShare(), Wake: func() {}}, core: elector.New(elector.Options{Exclusion: time.Minute, ExclusionMax: time.Hour})}
	}
	preempts := func(e *Elector, now cluster.Snapshot) (term int64) {
		d := e.decideWithLimits(elector.Input{Snapshot: now, Policy: p, Now: time.Hour, Wall: time.Unix(1_800_000_000, 0)})
		if d.Elect == nil {
			return 0
		}
		return d.Elect.Term
	}
	first, second, third := group(), group(), group()
	term := preempts(first, led("b", 7))
	if term == 0 || preempts(second, led("b", 7)) != 0 {
		t.Fatalf("term %d, or two groups move at once", term)
	}
	preempts(first, led("a", term))
	if preempts(third, led("b", 7)) != 0 || preempts(second, led("b", 7)) == 0 {
		t.Error("the permit does not come to the one that has waited for it")
	}
	second.EndMove()
	if preempts(third, led("a", 7)); len(limit.held)+len(limit.queue) > 0 {
		t.Error("a move that is no longer wanted keeps its permit")
	}
}
