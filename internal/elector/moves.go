package elector

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// maxSpread is the longest time over which the groups of a host spread their preemptions.
const maxSpread = time.Minute

// moves delays the preemptions of a group, so that those of many groups do not come at once (docs/groups.md, When a
// host is lost, when one returns). It measures by this elector's clock, so a new elector begins again.
type moves struct {
	members map[string]bool // the incarnations of the last snapshot; true for those that are leaving as requested
	lostAt  time.Duration   // when a member was last seen to have vanished; 0 if none has
	wanted  int64           // the term in which a preemption is wanted, 0 while none is
	since   time.Duration   // since when
	seen    bool            // checkMove was called in the present decision
}

// observe notes which members have vanished. An elector that takes over from another one does not know that: to it, its
// predecessor has.
func (m *moves) observe(s *cluster.Snapshot, stopping map[string]string, now time.Duration) {
	if m.members == nil && s.Elected.Exists {
		m.lostAt = now
	}
	members := make(map[string]bool, len(s.Members))
	for i := range s.Members {
		name := s.Members[i].Name
		members[name] = strings.HasPrefix(stopping[name], stops) || s.Members[i].Node.Record.Leaving != ""
	}
	fence := s.Fence.Record
	for name, leaving := range m.members {
		released := fence.Incarnation == name && fence.Requested && !fence.Lost
		if _, exists := members[name]; !exists && !leaving && !released {
			m.lostAt = now
		}
	}
	m.members = members
	m.seen = false
}

// forget ends the wait of a preemption that is no longer wanted.
func (m *moves) forget() {
	if !m.seen {
		m.wanted = 0
	}
}

// checkMove returns an error that says why a preemption that policy allows must wait, nil if it may begin. delay is
// that of the failback.
func (e *Elector) checkMove(in Input, delay time.Duration, d *Decision) error {
	m, spread := &e.moves, min(2*delay, maxSpread)
	m.seen = true
	if e.opt.Spread && spread > 0 {
		term := in.Snapshot.Elected.Record.Term
		if m.wanted != term {
			m.wanted, m.since = term, in.Now
		}
		begin := m.since
		if m.lostAt > 0 {
			begin = max(begin, m.lostAt+spread) // another host may follow, or it may return
		}
		wait := jitter(e.opt.Group, term, spread)
		switch {
		case in.Now < begin:
			d.Wake = cluster.Earliest(d.Wake, begin)
			return &heldError{reason: fmt.Sprintf("policy moves nothing for %s after a member has vanished", spread),
				until: begin}
		case in.Now < begin+wait:
			d.Wake = cluster.Earliest(d.Wake, begin+wait)
			return &heldError{reason: fmt.Sprintf("it waits %s so that not all groups move at once",
				wait.Round(time.Second)), until: begin + wait}
		}
	}
	if in.NoRoom != "" {
		d.AwaitsRoom = true
		return errors.New(in.NoRoom)
	}
	return nil
}

// jitter returns how long the preemption of a term waits: less than spread, and different for each group.
func jitter(group string, term int64, spread time.Duration) time.Duration {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", group, term)
	// FNV alone barely mixes the last digits into the upper bits.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return time.Duration(x % uint64(spread.Milliseconds()+1) * uint64(time.Millisecond))
}
