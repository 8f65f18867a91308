package sim

import (
	"time"

	"zkelectd/internal/cluster"
)

// forgeries replace the term of a record.
var forgeries = []faultKind{
	{name: "term of elected forged", tampering: true, uniform: true, do: func(w *world, _ *host) {
		forge(w, w.known.elected, w.check.readElected(), func(r *cluster.Elected, term int64) []byte { r.Term = term; return cluster.Encode(r) })
	}},
	{name: "term of the fence forged", tampering: true, uniform: true, do: func(w *world, _ *host) {
		forge(w, w.known.leader, w.check.readFence(), func(r *cluster.Fence, term int64) []byte { r.Term = term; return cluster.Encode(r) })
	}},
	{name: "term of current forged", tampering: true, uniform: true, do: func(w *world, _ *host) {
		forge(w, w.known.current, w.check.readCurrent(), func(r *cluster.Current, term int64) []byte { r.Term = term; return cluster.Encode(r) })
	}},
}

// forge writes a record with a higher term, around the limits or far above them. A lower one would make the group forget the
// terms it has used, like the loss of the record.
func forge[T any](w *world, path string, read cluster.Slot[T], encode func(rec *T, term int64) []byte) {
	if !read.Readable() {
		return
	}
	limit := cluster.MaxTerm(w.serverTime())
	around := []int64{limit - 1, limit, limit + 1, limit + 3, limit + cluster.TermSlack + 1, 1<<53 - 1, 1<<63 - 1}
	rec, term := read.Record, around[w.rng.IntN(len(around))]
	if elected := w.check.readElected(); !elected.Readable() || term < max(w.check.acquired, elected.Record.Term) {
		return
	}
	w.tamper(cluster.Op{Kind: cluster.OpSet, Path: path, Data: encode(&rec, term)})
}

// serverTime returns what the clock of the server that orders writes shows. It may show anything, but two servers' clocks
// differ by less than the slack for terms.
func (w *world) serverTime() time.Time {
	return time.Unix(w.traits.serverClock, 0).Add(w.now + w.skew)
}

// drawSkew makes another server, with another clock, order the writes.
func (w *world) drawSkew() { w.skew = w.between(0, (cluster.TermSlack-1)*time.Second) }
