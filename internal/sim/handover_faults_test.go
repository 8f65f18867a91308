package sim

import (
	"time"

	"zkelectd/internal/cluster"
)

// refuseRelease makes the working host keep current forever once it is replaced, and ranks the others above it.
func (w *world) refuseRelease() {
	for _, h := range w.hosts {
		if len(w.check.working) == 1 && w.check.working[0] == h {
			w.log("%s will not release", h.id)
			h.undoing, h.prio = forever, 0
		} else {
			h.prio = 5
		}
		h.publish()
	}
	w.publishPolicy(cluster.Rules{Type: "priority"}) // all sites are equal
}

// faultDuringHandover hits the working host while another one is elected or takes over: the most dangerous moment.
func (w *world) faultDuringHandover(chosen string) {
	if w.calm {
		return
	}
	for _, h := range w.check.working {
		if h.id == chosen || !w.chance(w.traits.handoverFault) {
			continue
		}
		kind := w.rng.IntN(3)
		w.after(w.between(0, h.timeout/4), func() {
			w.faults["fault during handover"]++
			w.log("FAULT during handover %d (%s)", kind, h.id)
			switch kind {
			case 0:
				h.hang(w.between(h.timeout/2, 2*h.timeout))
			case 1:
				h.pause(w.between(h.timeout/2, 2*h.timeout))
			default:
				h.cut(w.between(h.timeout/2, 2*h.timeout), h.timeout*2/3)
			}
		})
	}
}

// deleteDecisionDuringTakeover deletes a decision while the elected host reads what it needs to take over.
func (w *world) deleteDecisionDuringTakeover(chosen string) {
	if !w.chance(w.traits.deletedDecision) {
		return
	}
	for i, h := range w.hosts {
		if h.id == chosen {
			w.after(w.between(0, 3*w.traits.latency[i]), func() {
				if !w.calm {
					w.faults["decision deleted during takeover"]++
					w.tamper(cluster.Op{Kind: cluster.OpDelete, Path: w.known.elected})
				}
			})
		}
	}
}

// deleteCurrent deletes current under a leader that cannot learn of it before its lease is over, and then disturbs its
// successor, which waits for that.
func (w *world) deleteCurrent() {
	if len(w.check.working) == 0 {
		return
	}
	h := w.check.working[0]
	if w.chance(0.3) { // the kill of its work takes the longest time allowed, and nothing disturbs the successor
		h.slowest, h.prio = true, -1
		h.pause(h.timeout)
		h.publish()
		w.tamper(cluster.Op{Kind: cluster.OpDelete, Path: w.known.current})
		return
	}
	switch w.rng.IntN(4) {
	case 0:
		h.hang(w.between(h.timeout/2, h.timeout))
	case 1:
		h.pause(w.between(h.timeout/2, h.timeout))
	case 2:
		w.traits.losing = true
		h.watchesLost = w.now + w.between(h.timeout/2, 2*h.timeout)
	default:
		h.cut(w.between(h.timeout/2, h.timeout), h.timeout*2/3)
	}
	if w.chance(0.5) { // or it is elected again, which it does not learn of either
		h.prio = -1
		h.publish()
	}
	w.after(w.between(0, 20*time.Millisecond), func() { w.tamper(cluster.Op{Kind: cluster.OpDelete, Path: w.known.current}) })
	w.after(w.between(0, h.budget.LeaseWait), func() {
		switch s := w.sessions[w.check.owner]; {
		case w.calm || s == nil:
		case w.chance(0.5):
			s.h.quit()
		default:
			s.h.changePriority()
		}
	})
}

// closeLeaderSession closes the session of the working host, as every client of the servers can, or deletes its ephemerals, as
// an operator may. The host mostly learns of that late.
func (w *world) closeLeaderSession() {
	if len(w.check.working) == 0 || w.down || !w.noneTrusts() {
		return
	}
	h := w.check.working[0]
	if h.loop == nil || !w.tree.Alive(h.loop.s.id) {
		return
	}
	s := h.loop.s
	switch w.rng.IntN(4) {
	case 0:
		h.hang(w.between(h.timeout/2, 2*h.timeout))
	case 1:
		h.pause(w.between(h.timeout/2, 2*h.timeout))
	case 2:
		h.cut(w.between(h.timeout/2, 2*h.timeout), h.timeout*2/3)
	default:
		s.disconnect(w.between(0, time.Second))
	}
	if w.chance(0.3) {
		w.writeAsOperator([]cluster.Op{
			{Kind: cluster.OpDelete, Path: w.known.election + "/" + s.self, Version: cluster.AnyVersion},
			{Kind: cluster.OpDelete, Path: w.known.current, Version: cluster.AnyVersion},
		})
		return
	}
	w.log("%s: session %d is closed by another client", h.id, s.id)
	w.close(s)
}
