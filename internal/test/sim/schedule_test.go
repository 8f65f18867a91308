package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// planSchedules plans the scheduled moves of operators. It draws from numbers of its own, so that schedules without them stay as they
// are.
func (g *group) planSchedules() {
	w := g.w
	rng := rand.New(rand.NewPCG(w.seed, uint64(1000+len(g.paths.Slot)+g.number)))
	if !w.schedules || rng.Float64() > 0.3 && !w.broken.scheduled {
		return
	}
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(rng.Int64N(int64(to-from))) }
	for range 1 + rng.IntN(4) {
		begin, took := between(0, w.traits.busy), between(time.Microsecond, 50*time.Millisecond)
		m := cluster.ScheduledMove{After: cluster.Duration(between(200*time.Millisecond, longestSchedule)), Grace: cluster.Duration(between(time.Second, longestGrace))}
		target, bySite, force := g.members[rng.IntN(len(g.members))], rng.Float64() < 0.3, rng.Float64() < 0.2
		if rng.Float64() < 0.5 {
			m.For = cluster.Duration(between(time.Second, shortestRequest))
		}
		w.at(begin, func() {
			w.faults["request: scheduled move"]++
			g.command(took, func(c *cluster.Control) {
				m.Request = c.Next(cluster.Request{By: "sim", For: m.For, Slot: g.paths.Slot})
				m.At, m.Force = w.wall().Add(time.Duration(m.After)), force
				if m.Node = target.id; bySite {
					m.Node, m.Site = "", target.site
				}
				g.cancelSchedule(c)
				c.Scheduled = append(c.Scheduled, m)
			})
		})
		for range rng.IntN(3) {
			at, took := begin+took+time.Duration(m.After)+between(-200*time.Millisecond, 400*time.Millisecond), between(time.Microsecond, 50*time.Millisecond)
			w.at(at, func() {
				w.faults["request: cancel"]++
				g.command(took, g.cancelSchedule)
			})
		}
	}
}

// The limits of scheduled moves here: a real one has a longer grace.
const (
	longestSchedule = 12 * time.Second
	longestGrace    = 8 * time.Second
)

func (g *group) cancelSchedule(c *cluster.Control) {
	for _, m := range c.ScheduledIn(g.paths.Slot) {
		c.EndSchedule(m, cluster.ScheduleCanceled, "", g.w.wall())
	}
}

// scheduledMove is what is known of a scheduled move.
type scheduledMove struct {
	at           time.Duration // when it was submitted
	after, grace time.Duration
	over         bool // it was canceled, dropped or carried out
	began        bool // it was carried out
	ended        bool // the move that it has become is over
}

// scheduled checks what becomes of scheduled moves.
func (c *checker) scheduled(read cluster.Stored[cluster.Control]) {
	// A stranger who deletes control and writes it again gives an old record's version to a new one: then a late elector may bring back
	// what was ordered before.
	if c.controlLost = c.controlLost || !read.Readable(); c.controlLost {
		return
	}
	pending := make(map[int64]bool)
	for _, m := range read.Record.ScheduledIn(c.g.paths.Slot) {
		pending[m.ID] = true
		if known := c.schedules[m.ID]; known == nil {
			c.schedules[m.ID] = &scheduledMove{at: c.w.now, after: time.Duration(m.After), grace: time.Duration(m.Grace)}
		} else if known.over {
			c.g.fail("schedule: the move of request %d is scheduled again, although it was over", m.ID)
		}
	}
	move := int64(0)
	if m := read.Record.Move; m != nil && !m.ScheduledAt.IsZero() {
		move = m.ID
		c.carriedOut(m, read.Record.Pause)
	}
	for id, known := range c.schedules {
		known.over = known.over || !pending[id]
		known.ended = known.ended || known.began && move != id
	}
}

// carriedOut checks that a scheduled move was carried out once, in time, and not in a pause.
func (c *checker) carriedOut(m *cluster.Move, pause *cluster.Pause) {
	known := c.schedules[m.ID]
	switch {
	case known == nil:
		c.g.fail("schedule: the move of request %d was never scheduled", m.ID)
		return
	case known.ended:
		c.g.fail("schedule: the move of request %d is carried out twice", m.ID)
	case known.began:
		return
	case known.over:
		c.g.fail("schedule: the move of request %d is carried out, although it was canceled or dropped", m.ID)
	case pause != nil:
		c.g.fail("schedule: the move of request %d is carried out in a pause", m.ID)
	}
	known.began = true
	elapsed := c.w.now - known.at
	ahead, behind := c.w.skewSince(known.at)
	if elapsed+ahead < known.after*97/100 {
		c.g.fail("schedule: the move of request %d is carried out after %s, it is due after %s", m.ID, elapsed, known.after)
	}
	unseen := 5 * time.Second // that an elector may see something later
	for _, h := range c.g.members {
		unseen = max(unseen, 5*time.Second+3*h.timeout)
	}
	if elapsed-behind > known.after*103/100+known.grace+unseen && !c.w.traits.losing {
		c.g.fail("schedule: the move of request %d is carried out after %s, it was due after %s", m.ID, elapsed, known.after)
	}
}

// skewed is when another server, with another clock, has begun to order the writes.
type skewed struct{ at, skew time.Duration }

// skewSince returns how far the servers' clock was ahead of, and behind, what it showed at a time, at most.
func (w *world) skewSince(at time.Duration) (ahead, behind time.Duration) {
	then := time.Duration(0)
	for _, s := range w.skews {
		if s.at < at {
			then = s.skew
		}
	}
	for _, s := range w.skews {
		if s.at >= at {
			ahead, behind = max(ahead, s.skew-then), max(behind, then-s.skew)
		}
	}
	return ahead, behind
}

// schedulesPending reports whether a scheduled move is neither carried out nor dropped.
func (g *group) schedulesPending(c cluster.Control) bool {
	return slices.ContainsFunc(c.Scheduled, func(m cluster.ScheduledMove) bool { return m.Slot == g.paths.Slot })
}
