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

// consult stands in for that of package group. The program takes some time, now and then more than its timeout, but after the
// faults not twice in a row. That must not move the leader (S3).
func (l *loop) consult(in *elector.Input) (ready bool, wake time.Duration) {
	e, w := &l.elector, l.m.w
	ready, wake, ask := e.program.Update(e.core, in)
	if ask == nil {
		return ready, wake
	}
	a, took := l.m.g.answer(ask.Input), w.between(0, w.program)
	if w.chance(w.traits.flaky) && (!w.calm || e.answered) {
		a, took = policy.Answer{Err: "no answer in time"}, execTimeout
	}
	w.after(took, func() {
		l.soon(func() {
			e.answered = a.Err == ""
			e.program.SetResult(ask, a, l.m.clock())
			l.step(tick)
		})
	})
	return ready, wake
}

// answer returns what the program answers: a ranking by a hash, which does not name all members.
func (g *group) answer(in policy.Input) policy.Answer {
	if g.traits.noAnswer {
		return policy.Answer{Err: "it fails"}
	}
	var order []string
	for _, m := range in.Members {
		if g.hash(m.ID)%16 != 0 && !m.Superseded {
			order = append(order, m.ID)
		}
	}
	slices.SortFunc(order, func(a, b string) int { return strings.Compare(fmt.Sprint(g.hash(a)), fmt.Sprint(g.hash(b))) })
	return policy.Answer{Ranking: order}
}

func (g *group) hash(id string) uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, g.w.seed+uint64(g.resource.number), id)
	return h.Sum32()
}
