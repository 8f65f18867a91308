package sim

import (
	"time"

	"zkelectd/internal/cluster"
)

// cling makes whoever works keep current for ever once it is replaced, and the others better than it.
func (w *world) cling() {
	for _, h := range w.hosts {
		if len(w.check.working) == 1 && w.check.working[0] == h {
			w.log("%s will not let go", h.id)
			h.undoing, h.prio = forever, 0
		} else {
			h.prio = 5
		}
		h.publish()
	}
	w.publishPolicy(cluster.Rules{Type: "priority"}) // all sites alike
}

// ambush hits whoever works while somebody else is chosen or takes over: the moment at which most can go wrong.
func (w *world) ambush(chosen string) {
	if w.calm {
		return
	}
	for _, h := range w.check.working {
		if h.id == chosen || !w.chance(w.traits.ambush) {
			continue
		}
		kind := w.rng.IntN(3)
		w.after(w.between(0, h.timeout/4), func() {
			w.faults["ambush"]++
			w.log("FAULT ambush %d (%s)", kind, h.id)
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

// snatch deletes a decision while who was chosen reads what it needs to take over.
func (w *world) snatch(chosen string) {
	if !w.chance(w.traits.snatch) {
		return
	}
	for i, h := range w.hosts {
		if h.id == chosen {
			w.after(w.between(0, 3*w.traits.latency[i]), func() {
				if !w.calm {
					w.faults["decision snatched away"]++
					w.meddle(cluster.Op{Kind: cluster.OpDelete, Path: w.known.elected})
				}
			})
		}
	}
}

// rob deletes current under a leader that can't learn of it before its lease is over, and then disturbs its successor,
// which waits for that.
func (w *world) rob() {
	if len(w.check.working) == 0 {
		return
	}
	h := w.check.working[0]
	if w.chance(0.3) { // the kill of its work ends as late as ever it may, with nothing to disturb the successor
		h.slowest, h.prio = true, -1
		h.pause(h.timeout)
		h.publish()
		w.meddle(cluster.Op{Kind: cluster.OpDelete, Path: w.known.current})
		return
	}
	switch w.rng.IntN(4) {
	case 0:
		h.hang(w.between(h.timeout/2, h.timeout))
	case 1:
		h.pause(w.between(h.timeout/2, h.timeout))
	case 2:
		w.traits.losing = true
		h.deaf = w.now + w.between(h.timeout/2, 2*h.timeout)
	default:
		h.cut(w.between(h.timeout/2, h.timeout), h.timeout*2/3)
	}
	if w.chance(0.5) { // or it is chosen again, which it doesn't learn of either
		h.prio = -1
		h.publish()
	}
	w.after(w.between(0, 20*time.Millisecond), func() { w.meddle(cluster.Op{Kind: cluster.OpDelete, Path: w.known.current}) })
	w.after(w.between(0, h.budget.LeaseWait), func() {
		switch s := w.sessions[w.check.owner]; {
		case w.calm || s == nil:
		case w.chance(0.5):
			s.h.quit()
		default:
			s.h.reprioritise()
		}
	})
}

// intrude closes the session of a host that works, as every client of the servers can, or deletes what shows that it lives, as
// an operator may. The host mostly learns of that late.
func (w *world) intrude() {
	if len(w.check.working) == 0 || w.down || !w.wary() {
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
		s.breaks(w.between(0, time.Second))
	}
	if w.chance(0.3) {
		w.operate([]cluster.Op{
			{Kind: cluster.OpDelete, Path: w.known.election + "/" + s.self, Version: cluster.AnyVersion},
			{Kind: cluster.OpDelete, Path: w.known.current, Version: cluster.AnyVersion},
		})
		return
	}
	w.log("%s: session %d is closed by a stranger", h.id, s.id)
	w.close(s)
}
