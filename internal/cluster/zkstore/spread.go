package zkstore

import (
	"context"
	"math/rand/v2"
	"time"
)

// An election wakes all members at the same moment. In a large group, what they read then delays the one that takes over. So those
// that an election does not concern, as far as they know, read a little later, and not all at once.

// Each member of a group adds spreadMember to the spread of the reads, which is at most maxSpread. In a group with less than spreadFrom
// members nobody waits. A member that is elected without being the heir loses that time, as after a move to it.
const (
	spreadFrom   = 20
	spreadMember = 500 * time.Microsecond
	maxSpread    = 200 * time.Millisecond
)

// Spread takes the hints, and returns over what time this daemon and others may spread their next reads; 0 if it must read now.
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
	if h.All || members < spreadFrom || s.SelfLost || c.needsLeadership() || c.next || s.SelfIsHeir() {
		return 0
	}
	return time.Duration(min(members, int(maxSpread/spreadMember))) * spreadMember
}

// awaitTurn waits after a hint until it is this daemon's turn to read: not long if it concerns this daemon, see [Collector.Spread]. It
// returns early if ctx is done or the session has ended.
func (r *Reader) awaitTurn(ctx context.Context) {
	if left := time.Duration(r.held.Load()) - r.collector.opt.Clock(); left > 0 && r.pause(ctx, left, nil) {
		return
	}
	spread := r.collector.Spread()
	if spread == 0 {
		if !r.offerCurrent(ctx) && r.collector.half {
			r.pause(ctx, maxTwin, r.conn.Wake())
			r.collector.Spread()
		}
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
			r.collector.InvalidateLeadership()
			return
		case <-ctx.Done():
			return
		case <-r.conn.Done():
			return
		}
	}
}

// offerCurrent lets this daemon acquire leadership before it reads that the leader has released, if it may.
func (r *Reader) offerCurrent(ctx context.Context) (offered bool) {
	if !r.collector.takeVacated() {
		return false
	}
	select {
	case r.vacated <- struct{}{}:
	default:
	}
	if !r.pause(ctx, maxTwin, nil) {
		if left := time.Duration(r.held.Load()) - r.collector.opt.Clock(); left > 0 {
			r.pause(ctx, left, nil)
		}
	}
	return true
}

// maxTwin is how long a reader waits for the second of two hints that come together. A snapshot that was read between them would be torn.
const maxTwin = 2 * time.Millisecond

// pause waits until a channel receives, if that is not nil, and not longer than limit. It reports whether Reread has ended it.
func (r *Reader) pause(ctx context.Context, limit time.Duration, until <-chan struct{}) (forced bool) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-t.C:
	case <-until:
	case <-r.force:
		r.collector.InvalidateLeadership()
		return true
	case <-ctx.Done():
	case <-r.conn.Done():
	}
	return false
}

// jitteredTurn returns when to read: after half of the spread, which belongs to those that an election concerns.
func jitteredTurn(spread time.Duration) time.Duration { return spread/2 + rand.N(spread) }
