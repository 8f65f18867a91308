package store

import (
	"context"
	"math/rand/v2"
	"time"
)

// An election wakes all members at the same moment. In a large group, what they read then delays the one that takes
// over. So those that an election does not concern, as far as they know, read a little later, and not all at once.

// Each member of a group adds spreadMember to the spread of the reads, which is at most maxSpread. In a group with less
// than spreadFrom members nobody waits. A member that is elected without being the heir loses that time, as after a
// move to it.
const (
	spreadFrom   = 20
	spreadMember = 500 * time.Microsecond
	maxSpread    = 200 * time.Millisecond
)

// Spread takes the hints, and returns over what time this daemon and others may spread their next reads; 0 if it must
// read now.
func (c *Collector) Spread() time.Duration {
	h := c.opt.Source.TakeHints()
	c.invalidate(h)
	p, s := c.opt.Paths, &c.snap
	for path := range h.Paths {
		if path != p.Elected() && path != p.Heir() {
			return 0
		}
	}
	members := s.Elected.Record.RankedMembers()
	if h.All || members < spreadFrom || s.SelfLost || c.needsHolder() || c.next || s.SelfIsHeir() {
		return 0
	}
	return time.Duration(min(members, int(maxSpread/spreadMember))) * spreadMember
}

// awaitTurn waits after a hint until it is this daemon's turn to read: not long if it concerns this daemon, see
// [Collector.Spread]. It returns early if ctx is done or the session has ended.
func (r *Reader) awaitTurn(ctx context.Context) {
	spread := r.collector.Spread()
	if spread == 0 {
		return
	}
	turn := time.NewTimer(jitteredTurn(spread))
	defer turn.Stop()
	for {
		select {
		case <-turn.C:
			return
		case <-r.conn.Wake():
			if r.collector.Spread() == 0 {
				return
			}
		case <-r.force:
			r.collector.InvalidateHolder()
			return
		case <-ctx.Done():
			return
		case <-r.conn.Done():
			return
		}
	}
}

// jitteredTurn returns when to read: after half of the spread, which belongs to those that an election concerns.
func jitteredTurn(spread time.Duration) time.Duration { return spread/2 + rand.N(spread) }
