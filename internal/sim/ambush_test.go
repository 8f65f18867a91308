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

// rob deletes current under a leader that can't learn of it before its lease is over, and then disturbs its successor,
// which waits for that.
func (w *world) rob() {
	if len(w.check.working) == 0 {
		return
	}
	h := w.check.working[0]
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
	w.after(w.between(0, h.budget.WaitOut), func() {
		switch s := w.sessions[w.check.owner]; {
		case w.calm || s == nil:
		case w.chance(0.5):
			s.h.quit()
		default:
			s.h.reprioritise()
		}
	})
}
