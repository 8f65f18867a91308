package sim

import (
	"time"

	"zkelectd/internal/cluster"
)

// forgeries replace the term of a record.
var forgeries = []faultKind{
	{name: "term of elected forged", tampering: true, uniform: true, do: func(w *world, m *member) {
		forge(m.g, m.g.known.elected, m.g.check.readElected(), func(r *cluster.Elected, term int64) []byte { r.Term = term; return cluster.Encode(r) })
	}},
	{name: "term of the fence forged", tampering: true, uniform: true, do: func(w *world, m *member) {
		forge(m.g, m.g.known.leader, m.g.check.readFence(), func(r *cluster.Fence, term int64) []byte { r.Term = term; return cluster.Encode(r) })
	}},
	{name: "term of current forged", tampering: true, uniform: true, do: func(w *world, m *member) {
		forge(m.g, m.g.known.current, m.g.check.readCurrent(), func(r *cluster.Current, term int64) []byte { r.Term = term; return cluster.Encode(r) })
	}},
}

// forge writes a record with a higher term, around the limits or far above them. A lower one would make the group forget the
// terms it has used, like the loss of the record.
func forge[T any](g *group, path string, read cluster.Stored[T], encode func(rec *T, term int64) []byte) {
	if !read.Readable() {
		return
	}
	limit := cluster.MaxTerm(g.w.serverTime())
	around := []int64{limit - 1, limit, limit + 1, limit + 3, limit + cluster.TermSlack + 1, 1<<53 - 1, 1<<63 - 1}
	rec, term := read.Record, around[g.w.rng.IntN(len(around))]
	if elected := g.check.readElected(); !elected.Readable() || term < max(g.check.acquired, elected.Record.Term) {
		return
	}
	g.tamper(cluster.Op{Kind: cluster.OpSet, Path: path, Data: encode(&rec, term)})
}

// serverTime returns what the clock of the server that orders writes shows. It may show anything, but two servers' clocks
// differ by less than the slack for terms.
func (w *world) serverTime() time.Time {
	return time.Unix(w.traits.serverClock, 0).Add(w.now + w.skew)
}

// drawSkew makes another server, with another clock, order the writes.
func (w *world) drawSkew() {
	w.skew = w.between(0, (cluster.TermSlack-1)*time.Second)
}
