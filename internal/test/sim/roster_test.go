package sim

import (
	"time"

	"zkelectd/internal/cluster"
)

// rosterRole stands in for rosterWriter of package group.
type rosterRole struct {
	busy          bool
	seen, settled time.Duration
}

// updateRoster writes the roster after the members have changed. No election depends on it: whatever becomes of the write, all
// promises hold.
func (l *loop) updateRoster(snap cluster.Snapshot) {
	r, m := &l.elector.roster, l.m
	if !m.w.rosters || r.busy || snap.At == r.seen || snap.At < r.settled {
		return
	}
	next, changed := snap.Roster.Record.Update(snap.Members, m.w.wall())
	if !changed && snap.Roster.Readable() {
		r.seen = snap.At
		return
	}
	m.tamperNowAndThen(m.g.known.roster, `{"v":1,"nodes":[{"id":"h0","left":{"how":"lost"}},{"id":"h9"}]}`)
	r.busy = true
	l.s.send(&request{from: l.in, ops: m.g.paths.RosterTx(l.self.Name, snap.Roster, next), done: func(reply) {
		l.soon(func() {
			r.busy, r.settled = false, m.clock()
			l.reader.reread()
			l.step(tick)
		})
	}})
}

// tamperNowAndThen sometimes deletes a record, damages it, or replaces it by a forged one.
func (m *member) tamperNowAndThen(path, forged string) {
	op := cluster.Op{Kind: cluster.OpSet, Path: path, Data: []byte(forged)}
	switch m.w.rng.IntN(20) {
	case 0:
		op.Data = []byte("garbage")
	case 1:
		op.Kind, op.Data = cluster.OpDelete, nil
	case 2:
	default:
		return
	}
	m.g.tamper(op)
}
