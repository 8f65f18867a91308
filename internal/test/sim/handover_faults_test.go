package sim

import (
	"time"

	"zkelectd/internal/cluster"
)

// refuseRelease makes the working host keep current forever once it is replaced, and ranks the others above it.
func (g *group) refuseRelease() {
	w := g.w
	for _, m := range g.members {
		if len(g.check.working) == 1 && g.check.working[0] == m {
			w.log("%s will not release", m.name)
			m.undoing, m.prio = forever, 0
		} else {
			m.prio = 5
		}
		m.publish()
	}
	g.publishPolicy(cluster.Rules{Type: "priority"}) // all sites are equal
}

// faultDuringHandover hits the working host while another one is elected or takes over: the most dangerous moment.
func (g *group) faultDuringHandover(chosen string) {
	w := g.w
	if w.calm {
		return
	}
	for _, m := range g.check.working {
		if m.id == chosen || !w.chance(w.traits.handoverFault) {
			continue
		}
		kind := disturbance(w.rng.IntN(4))
		w.after(w.between(0, m.timeout/4), func() {
			w.faults["fault during handover"]++
			w.log("FAULT during handover %d (%s)", kind, m.name)
			m.disturb(kind, 2*m.timeout)
		})
	}
}

// disturbance is what keeps a leader from noticing what happens.
type disturbance int

const (
	hangs     disturbance = iota // its server
	pauses                       // its daemon
	loopHangs                    // its loop
	isCut                        // its host is cut off
)

// disturb disturbs the member for at most that long.
func (m *member) disturb(how disturbance, most time.Duration) {
	lasts := func() time.Duration { return m.w.between(m.timeout/2, most) }
	switch how {
	case hangs:
		m.hang(lasts())
	case pauses:
		m.pause(lasts())
	case loopHangs:
		m.loop.hang(2 * m.timeout)
	case isCut:
		m.cut(lasts(), m.timeout*2/3)
	}
}

// deleteDecisionDuringTakeover deletes a decision while the elected host reads what it needs to take over.
func (g *group) deleteDecisionDuringTakeover(chosen string) {
	w := g.w
	if !w.chance(w.traits.deletedDecision) {
		return
	}
	for i, h := range w.hosts {
		if h.id == chosen {
			w.after(w.between(0, 3*w.traits.latency[i]), func() {
				if !w.calm {
					w.faults["decision deleted during takeover"]++
					g.tamper(cluster.Op{Kind: cluster.OpDelete, Path: g.known.elected})
				}
			})
		}
	}
}

// deleteCurrent deletes current under a leader that cannot learn of it before its lease is over, and then disturbs its
// successor, which waits for that.
func (g *group) deleteCurrent() {
	w := g.w
	if len(g.check.working) == 0 {
		return
	}
	m := g.check.working[0]
	if w.chance(0.3) { // the kill of its work takes the longest time allowed, and nothing disturbs the successor
		m.slowest, m.prio = true, -1
		m.pause(m.timeout)
		m.publish()
		g.tamper(cluster.Op{Kind: cluster.OpDelete, Path: g.known.current})
		return
	}
	if kind := w.rng.IntN(5); kind == 3 {
		w.traits.losing = true
		m.watchesLost = w.now + w.between(m.timeout/2, 2*m.timeout)
	} else {
		m.disturb([]disturbance{hangs, pauses, loopHangs, 0, isCut}[kind], m.timeout)
	}
	if w.chance(0.5) { // or it is elected again, which it does not learn of either
		m.prio = -1
		m.publish()
	}
	w.after(w.between(0, 20*time.Millisecond), func() { g.tamper(cluster.Op{Kind: cluster.OpDelete, Path: g.known.current}) })
	w.after(w.between(0, m.budget.LeaseWait), func() {
		switch s := w.sessions[g.check.owner]; {
		case w.calm || s == nil:
		case w.chance(0.5):
			s.h.quit()
		default:
			s.h.members[g.number].changePriority()
		}
	})
}

// closeLeaderSession closes the session of the working host, as every client of the servers can, or deletes its ephemerals, as
// an operator may. The host mostly learns of that late.
func (g *group) closeLeaderSession() {
	w := g.w
	if len(g.check.working) == 0 || w.down || w.broken.timed {
		return
	}
	m := g.check.working[0]
	if m.session == nil || !w.tree.Alive(m.session.id) {
		return
	}
	s := m.session
	if kind := w.rng.IntN(4); kind < 3 {
		m.disturb([]disturbance{hangs, pauses, isCut}[kind], 2*m.timeout)
	} else {
		s.disconnect(w.between(0, time.Second))
	}
	if w.chance(0.3) {
		g.writeAsOperator([]cluster.Op{
			{Kind: cluster.OpDelete, Path: g.known.election + "/" + s.selves[g.resource.number], Version: cluster.AnyVersion},
			{Kind: cluster.OpDelete, Path: g.known.current, Version: cluster.AnyVersion},
		})
		return
	}
	w.log("%s: session %d is closed by another client", m.id, s.id)
	w.close(s)
}
