package group

import (
	"math/rand/v2"
	"reflect"
	"time"

	"zkelectd/internal/cluster"
)

// The latency of ZooKeeper changes on all hosts at once, and each publication of it costs the servers a write, and the elector two reads
// and a list of all members. So the members of a large group publish a change of the latency alone in turn: each of them once in
// latencyTurn for each member of the group, but at least once in maxLatencyTurns. That is 20 writes a second, and 100 s for 2,000 members.
// In a group with less than latencyTurnsFrom members, each publishes it at once.
const (
	latencyTurnsFrom = 400
	latencyTurn      = 50 * time.Millisecond // a 200th of status.CheckInterval, at which the latency is measured
	maxLatencyTurns  = 5 * time.Minute
)

// latencyTurns returns how often the turn of each member comes; 0 if no member waits for its turn.
func latencyTurns(members int) time.Duration {
	if members < latencyTurnsFrom {
		return 0
	}
	return time.Duration(min(members, int(maxLatencyTurns/latencyTurn))) * latencyTurn
}

// randomTurn returns a time from which a publication counts its turns, so that the turns of different members do not coincide.
func randomTurn() time.Time { return time.Now().Add(-rand.N(time.Hour)) }

// untilTurn returns how long to wait before the record is written; 0 unless only the latency has changed, in a large group.
func (p *publication) untilTurn(rec cluster.Node) time.Duration {
	every := latencyTurns(p.members())
	if every == 0 || len(p.waiting) > 0 || p.written == nil || !onlyLatencyChanged(*p.written, rec) {
		return 0
	}
	return every - time.Since(p.turns)%every
}

// onlyLatencyChanged reports whether the records differ in their latencies only, and both have one: a first one is not to wait.
func onlyLatencyChanged(a, b cluster.Node) bool {
	if a.Latency == nil || b.Latency == nil || *a.Latency == *b.Latency {
		return false
	}
	a.Latency, a.Since = b.Latency, b.Since // a write does not change Since
	return reflect.DeepEqual(a, b)
}

// awaitTurn writes the record after a while, unless another write has published the latency by then.
func (p *publication) awaitTurn(wait time.Duration) {
	if p.awaitsTurn {
		return
	}
	p.awaitsTurn = true
	p.after(wait, func() {
		p.awaitsTurn = false
		if p.stale && !p.busy {
			p.write(p.record())
		}
	})
}
