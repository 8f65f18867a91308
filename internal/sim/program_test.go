package sim

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
)

// consult is internal/group's. The program takes its time, and more of it than it has now and then: once the faults are
// over, not twice in a row. That moves nobody (S3).
func (l *loop) consult(in *elector.Input) (ready bool, wake time.Duration) {
	e, w := &l.elector, l.h.w
	ready, wake, ask := e.program.Consult(e.core, in)
	if ask == nil {
		return ready, wake
	}
	a, took := w.answer(ask.Input), w.between(0, ask.Timeout/2)
	if w.chance(w.traits.flaky) && (!w.calm || e.answered) {
		a, took = policy.Answer{Err: "no answer in time"}, ask.Timeout
	}
	w.after(took, func() {
		l.soon(func() {
			e.answered = a.Err == ""
			e.program.Answered(ask, a, l.h.clock())
			l.step(tick)
		})
	})
	return ready, wake
}

// answer is what the program says once nothing disturbs it: an order that nobody would guess. Some it does not name.
func (w *world) answer(in policy.Input) policy.Answer {
	if w.traits.mute {
		return policy.Answer{Err: "it fails"}
	}
	var order []string
	for _, m := range in.Members {
		if w.lot(m.ID)%16 != 0 && !m.Superseded {
			order = append(order, m.ID)
		}
	}
	slices.SortFunc(order, func(a, b string) int { return strings.Compare(fmt.Sprint(w.lot(a)), fmt.Sprint(w.lot(b))) })
	return policy.Answer{Ranking: order}
}

func (w *world) lot(id string) uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, w.seed, id)
	return h.Sum32()
}
