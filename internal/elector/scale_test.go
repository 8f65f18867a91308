package elector

import (
	"fmt"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// largeGroup returns a group in which the first of n members leads; they are at five sites.
func largeGroup(n int) *group {
	g := newGroup()
	for i := range n {
		id := fmt.Sprintf("host-%04d.example.com", i)
		latency := float64(i % 7)
		g.Members = append(g.Members, cluster.Member{
			Incarnation: cluster.Incarnation{Name: fmt.Sprintf("%s-0000000000000001-n_%010d", id, i), ID: id, Seq: int32(i)},
			Node: cluster.Stored[cluster.Node]{Exists: true, Record: cluster.Node{
				ID: id, Site: fmt.Sprintf("dc%d", i%5), Priority: 100, Latency: &latency, Labels: map[string]string{"rack": fmt.Sprint(i % 40)},
			}},
		})
	}
	first := g.Members[0]
	g.Self = first.Incarnation
	g.Elected = cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Node: first.ID, Site: "dc0", Incarnation: first.Name, Term: 7}}
	g.Fence = cluster.Stored[cluster.Fence]{Exists: true, Record: cluster.Fence{Node: first.ID, Incarnation: first.Name, Term: 7, State: cluster.FenceReady}}
	g.Current = cluster.Stored[cluster.Current]{Exists: true, Record: cluster.Current{Node: first.ID, Incarnation: first.Name, Term: 7, State: cluster.CurrentReady}}
	return g
}

// BenchmarkDecide measures one decision of the elector, with the encoding of what it writes: for an event that changes nothing, and for
// the loss of the leader.
func BenchmarkDecide(b *testing.B) {
	for _, rules := range []cluster.Rules{{Type: "priority"}, {Type: "latency"}, {Rank: []string{"expr:-member.latency"}}, {Rank: []string{"site", "incumbent", "spread"}}} {
		for _, n := range []int{10, 500, 2000} {
			p, err := policy.New(cluster.Policy{Rules: rules})
			if err != nil {
				b.Fatal(err)
			}
			name := rules.Type
			if name == "" {
				name = "list"
			}
			in := Input{Snapshot: largeGroup(n).Snapshot, Policy: p, Now: time.Hour, Wall: wall}
			b.Run(fmt.Sprintf("%s/unrelated/%d", name, n), func(b *testing.B) {
				e := newElector()
				for b.Loop() {
					if d := e.Decide(in); d.Elect != nil {
						b.Fatal("elects", d.Elect.Reason)
					}
				}
			})
			lost := in
			lost.Snapshot.Members = lost.Snapshot.Members[1:]
			lost.Snapshot.Current = cluster.Stored[cluster.Current]{}
			b.Run(fmt.Sprintf("%s/failover/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					d := newElector().Decide(lost)
					if d.Elect == nil {
						b.Fatal(d.Note)
					}
					(cluster.Paths{Root: "/group"}).ElectTx(lost.Snapshot, *d.Elect, d.Fence)
				}
			})
		}
	}
}
