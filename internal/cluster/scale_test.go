package cluster

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkRoster measures what each event costs the elector of a large group.
func BenchmarkRoster(b *testing.B) {
	for _, n := range []int{10, 2000} {
		var members []Member
		for i := range n {
			id := fmt.Sprintf("host-%04d.example.com", i)
			node := Stored[Node]{Exists: true, Record: Node{ID: id, Site: fmt.Sprintf("dc%d", i%5)}}
			members = append(members, Member{Incarnation: Incarnation{Name: fmt.Sprintf("%s-0000000000000001-n_%010d", id, i), ID: id, Seq: int32(i)}, Node: node})
		}
		roster, _ := Roster{}.Update(members, time.Unix(1_800_000_000, 0))
		b.Run(fmt.Sprintf("unchanged/%d", n), func(b *testing.B) {
			for b.Loop() {
				if _, changed := roster.Update(members, time.Unix(1_800_000_001, 0)); changed {
					b.Fatal("it has changed")
				}
			}
		})
		b.Run(fmt.Sprintf("encoded/%d", n), func(b *testing.B) {
			for b.Loop() {
				EncodeRoster(&roster)
			}
		})
	}
}
