package sim

import (
	"math/rand/v2"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
)

// lendingSeed makes the random numbers of this file independent of the others: which worlds have applications changes
// no other world.
const lendingSeed = 0x6c656e64

// application works under an application lease, which the daemon of its host has handed out. Only the loss of its host
// kills it.
type application struct {
	l    *loop
	term int64
	end  time.Duration // on the host's clock
	told bool          // to stop
}

// planLending decides whether there are applications. With them, the end of a daemon takes as long as that of its host.
func (w *world) planLending() {
	rng := rand.New(rand.NewPCG(w.seed, lendingSeed))
	if !w.quiet && (w.broken.lending || w.broken.name == "" && rng.IntN(4) == 0) {
		w.lenders = rng
	}
}

// lend stands in for what package group and work/applease do after each step: it hands out a lease, extends it, and
// takes it back.
func (l *loop) lend() {
	m, now := l.m, l.machine.Lending()
	if m.w.lenders == nil {
		return
	}
	if l.lent = now.Lent; now.Open && m.app == nil && !l.asked {
		l.asked = true
		m.w.after(draw(m.w.lenders, 2*time.Second), func() { l.process(l.asksForLease) })
	}
	switch a := m.app; {
	case a == nil || a.l != l:
		if now.Lent && !now.Open && l.told != now.Term {
			l.told = now.Term
			l.leasesOver(now.Term)
		}
	case now.Open && m.lease > a.end && m.w.lenders.IntN(4) > 0:
		a.end = m.lease
		m.endsAt(a)
	case !now.Open && !a.told:
		a.told, l.told = true, a.term
		if m.w.broken.name == forgetsApplications {
			l.leasesOver(a.term)
		}
		m.w.after(draw(m.w.lenders, m.timeout), func() { m.appOver(a, "returns its lease") })
	}
}

// asksForLease hands out a lease. Everything that may release the term knows that before.
func (l *loop) asksForLease() {
	l.asked = false
	m, term := l.m, l.machine.Lending().Term
	if m.w.broken.name != ownApplications {
		l.step(transition.Lent{Term: term})
	}
	now := l.machine.Lending()
	if !now.Open || !now.Lent && m.w.broken.name != ownApplications || m.app != nil || m.clock() >= m.lease {
		return
	}
	if l.over || l.in.abandoned || m.unguarded {
		return
	}
	m.app = &application{l: l, term: term, end: m.lease}
	m.w.faults["application lease"]++
	m.w.log("%s: an application has a lease of term %d", m.name, term)
	for _, other := range m.g.check.working {
		if other != m {
			m.g.fail("S1: an application of %s begins in term %d while %s works in term %d", m.id, term, other.id, other.workTerm())
		}
	}
	m.endsAt(m.app)
}

// endsAt ends an application with its lease.
func (m *member) endsAt(a *application) {
	end := a.end
	m.w.at(m.when(end), func() {
		if a.end == end {
			m.appOver(a, "has no lease any more")
		}
	})
}

// appOver ends an application.
func (m *member) appOver(a *application, how string) {
	if m.app != a {
		return
	}
	m.app = nil
	m.w.log("%s: its application of term %d %s", m.name, a.term, how)
	if a.told {
		a.l.leasesOver(a.term)
	}
}

func (l *loop) leasesOver(term int64) {
	w := l.m.w
	w.after(draw(w.lenders, 20*time.Millisecond), func() {
		l.process(func() { l.step(transition.ApplicationLeasesOver{Term: term}) })
	})
}

// beginsBesideApplications checks that work does not begin while an application works in another term (S1).
func (c *checker) beginsBesideApplications(m *member) {
	for _, other := range c.g.members {
		if a := other.app; a != nil && a.term != m.workTerm() {
			c.g.fail("S1: work begins on %s in term %d while an application of %s is in term %d", m.id, m.workTerm(), other.id, a.term)
		}
	}
}

// releasesApplications checks that no fence says RELEASED while an application may work.
func (c *checker) releasesApplications(m *member, fence cluster.Fence) {
	if a := m.app; a != nil && fence.State == cluster.FenceReleased && fence.Term == a.term && fence.Node == m.id {
		c.g.fail("S1: %s releases term %d while an application works in it", m.id, a.term)
	}
}
