package sim

import (
	"errors"
	"math/rand/v2"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
)

// fencingSeed makes the random numbers of fencing independent of the others: which worlds have it changes no other world.
const fencingSeed = 0x66656e63

// fencingTraits say how the hosts of a world fence each other.
type fencingTraits struct {
	rng      *rand.Rand
	skips    []bool // whether a host ends its lease wait when it has fenced
	requires []bool
	longest  time.Duration // unless it hangs
	fails    float64       // it reports a failure; the host may be off nevertheless
	hangs    float64
}

// drawFencing returns nil if no host fences.
func (w *world) drawFencing() *fencingTraits {
	rng := rand.New(rand.NewPCG(w.seed, fencingSeed))
	if !w.broken.fencing && (w.broken.name != "" || rng.IntN(3) > 0) {
		return nil
	}
	f := &fencingTraits{rng: rng, longest: []time.Duration{50 * time.Millisecond, time.Second, 8 * time.Second}[rng.IntN(3)]}
	if rng.IntN(2) == 0 {
		f.fails, f.hangs = rng.Float64(), rng.Float64()/3
	}
	skip, require := rng.IntN(4) > 0, rng.IntN(3) == 0
	for range w.traits.hosts {
		mixed := rng.IntN(5) == 0
		f.skips = append(f.skips, skip != mixed)
		f.requires = append(f.requires, (require != mixed) && !w.broken.timed)
	}
	return f
}

// fencing returns how the host fences.
func (h *host) fencing() transition.Fencing {
	f := h.w.fencing
	if f == nil {
		return transition.Fencing{}
	}
	return transition.Fencing{Enabled: true, SkipWait: f.skips[h.number], Required: f.requires[h.number], Limit: fencingTimeout}
}

// fencingTimeout is when the daemon ends what hangs.
const fencingTimeout = 10 * time.Second

// fencingRun is what fences a node: work that the guard kills with the lease.
type fencingRun struct {
	l    *loop
	term int64
	node string
	over bool // it was ended
}

// fence stands in for Member.fence of package group.
func (l *loop) fenceNode(a transition.FenceNode) {
	m, f := l.m, l.m.w.fencing
	run := &fencingRun{l: l, term: a.Term, node: a.Holder.Node}
	if m.clock() >= m.lease || m.unguarded || l.in.refused() {
		l.inline = append(l.inline, run.event(errors.New("the lease is over")))
		return
	}
	m.w.faults["fencing"]++
	m.w.log("%s: fences %s in term %d", m.name, run.node, a.Term)
	m.fencing = run
	took, err := time.Duration(f.rng.Int64N(int64(f.longest))), error(nil)
	dies := true
	if !m.w.calm && f.rng.Float64() < f.fails {
		err, dies = errors.New("the device reports a failure"), f.rng.IntN(3) == 0
	}
	if !m.w.calm && f.rng.Float64() < f.hangs {
		took, err, dies = fencingTimeout, errors.New("no answer in time"), f.rng.IntN(3) == 0
	}
	m.w.after(took, func() {
		if run.over {
			return
		}
		m.fencing = nil
		if dies {
			m.w.faults["host fenced"]++
			run.shoot()
		}
		l.process(func() { l.step(m.w.broken.fenced(run.event(err))) })
	})
}

func (r *fencingRun) event(err error) transition.NodeFenced {
	return transition.NodeFenced{Term: r.term, Node: r.node, Err: err}
}

// endFencing ends what fences a node, and tells the loop if there still is one.
func (m *member) endFencing() {
	run := m.fencing
	if run == nil || m.w.broken.name == fencesOn {
		return
	}
	run.over, m.fencing = true, nil
	if m.alive {
		run.l.process(func() { run.l.step(run.event(errors.New("ended"))) })
	}
}

// shoot switches the host off, and checks that its member may do so.
func (r *fencingRun) shoot() {
	m := r.l.m
	if m.clock() > m.lease+m.budget.Kill {
		m.g.fail("fencing: %s fences %s in term %d, but holds no lease", m.name, r.node, r.term)
	}
	for _, leader := range m.g.check.working {
		if leader.id == r.node && leader.workTerm() > r.term {
			m.g.fail("fencing: %s fences %s in term %d, which works in term %d", m.name, r.node, r.term, leader.workTerm())
		}
	}
	for _, h := range m.w.hosts {
		if h.id == r.node {
			h.switchOff()
		}
	}
}

// switchOff makes the host lose power. It is switched on again later.
func (h *host) switchOff() {
	h.w.log("%s: is switched off", h.id)
	h.closer = nil // nobody closes its session
	for _, m := range h.members {
		m.app = nil // also if the host had lost its guard before
	}
	if h.alive {
		h.crash(false)
		return
	}
	h.thaw()
	working := h.working()
	for _, m := range h.members {
		m.lease = 0
		if m.work != nil {
			m.dead("died with its host")
		}
	}
	if working { // its guard was about to start the daemon again
		h.w.after(h.w.between(0, 2*h.timeout), h.start)
	}
}

// checkFenced checks that a fenced host does not preempt too early.
func (c *checker) checkFenced(rec cluster.Elected) {
	if rec.Cause != cluster.CausePreempt || c.w.traits.losing {
		return
	}
	if since, fenced := c.fencedNodes[rec.Node]; fenced && c.fencedTerm == c.readFence().Record.Term && c.w.now-since < c.w.traits.exclusion*97/100 {
		c.g.fail("fencing: %s preempts in term %d, %s after it was fenced", rec.Node, rec.Term, c.w.now-since)
	}
}

// noteFenced remembers when the fence began to say that nodes have been fenced.
func (c *checker) noteFenced() {
	f := c.readFence().Record
	if f.Term != c.fencedTerm {
		c.fencedTerm, c.fencedNodes = f.Term, nil
	}
	if c.fencedNodes == nil && len(f.Fencing) > 0 {
		c.fencedNodes = make(map[string]time.Duration)
		for _, r := range f.Fencing {
			if r.Error == "" {
				c.fencedNodes[r.Node] = c.w.now
			}
		}
	}
}

// fenced returns what the machine is told.
func (b breakage) fenced(ev transition.NodeFenced) transition.NodeFenced {
	if b.name == failedFencing {
		ev.Err = nil
	}
	return ev
}

// blamesLast makes the last holder the one that all waits are owed for.
func blamesLast(f *cluster.Fence) {
	if f.Owed == 0 || f.State == cluster.FenceUnclean {
		return
	}
	f.Earlier = []cluster.EarlierHolder{{Node: f.Node, Term: f.Term, Wait: f.Owed}}
}
