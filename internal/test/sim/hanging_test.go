package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// hangingSeed makes the random numbers of this file independent of the others: which worlds have work that hangs changes no other world.
const hangingSeed = 0x68616e67

// planHanging schedules work that hangs in the kernel when it is to die, just before its instance ends. In some worlds it never dies.
func (w *world) planHanging() {
	rng := rand.New(rand.NewPCG(w.seed, hangingSeed))
	if w.quiet || !w.broken.hanging && (w.broken.name != "" || rng.IntN(4) > 0) {
		return
	}
	for range 1 + rng.IntN(2) {
		at, lasts, kind := time.Duration(rng.Int64N(int64(w.traits.busy))), time.Duration(rng.Int64N(int64(time.Minute))), rng.IntN(4)
		forGood := rng.IntN(2) == 0 && !w.traits.stuck && !w.traits.refusesRelease
		w.at(at, func() {
			var leaders []*member
			for _, g := range w.groups {
				leaders = append(leaders, g.check.working...)
			}
			if len(leaders) == 0 || w.hangs() || w.failsafe != nil && w.down { // then nothing would end its instance
				return
			}
			m := leaders[rng.IntN(len(leaders))]
			if m.session == nil || m.ending() || m.instance == nil || !m.alive {
				return
			}
			w.faults["work will hang"]++
			w.log("FAULT work will hang (%s), for good: %v, kind %d", m.name, forGood, kind)
			m.freezing = true
			if !forGood {
				w.after(lasts, m.host.thaw)
			}
			m.endsWhile(kind, rng)
		})
	}
}

// endsWhile makes the member's instance end.
func (m *member) endsWhile(kind int, rng *rand.Rand) {
	switch {
	case kind == 0:
		m.loop.hang(2 * m.timeout)
	case kind == 1:
		m.g.tamper(cluster.Op{Kind: cluster.OpDelete, Path: m.g.known.nodes + "/" + m.id})
	case kind == 2 && m.r.slotted:
		size := cluster.SlotSize{Count: 1 + rng.IntN(maxSlots)}
		size.PerNode = 1 + rng.IntN(size.Count)
		m.r.change(size)
	default:
		m.instance.panics()
	}
}

// hangs reports whether work on the host hangs, or will.
func (h *host) hangs() bool {
	return slices.ContainsFunc(h.members, func(m *member) bool { return m.freezing })
}

func (w *world) hangs() bool { return slices.ContainsFunc(w.hosts, (*host).hangs) }

// thaw ends the state that hangs reports.
func (h *host) thaw() {
	for _, m := range h.members {
		m.freezing = false
		if m.work != nil && m.work.hung {
			m.work.hung = false
			m.dead("was killed at last")
		}
	}
}

// thawEnding ends that state on hosts whose sessions end in order, which wait for it.
func (w *world) thawEnding() {
	for _, h := range w.hosts {
		if h.hangs() && h.session != nil && h.ending() && h.session.ended == "" {
			h.thaw()
		}
	}
}
