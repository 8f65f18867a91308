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

// program is internal/daemon's: it asks the exec policy's program outside the core, and holds no election up for long (L1).
type program struct {
	l        *loop
	busy     bool
	question string
	answer   *policy.Answer
	since    time.Duration
	waiting  time.Duration
}

// answerAge is the daemon's.
const answerAge = 30 * time.Second

func (p *program) consult(core *elector.Elector, in *elector.Input) (ready bool, wake time.Duration) {
	ask, wanted := core.Question(*in)
	if !wanted {
		p.waiting = 0
		return true, 0
	}
	key := policy.Key(ask)
	known := p.answer != nil && p.question == key
	timeout := time.Duration(in.Policy.Rules.ExecTimeout)
	if !p.busy && (!known || in.Now-p.since >= answerAge) {
		p.run(key, ask, timeout)
	}
	if known {
		p.waiting, in.Answer = 0, p.answer
		if p.busy {
			return true, 0 // its answer wakes
		}
		return true, p.since + answerAge
	}
	if p.waiting == 0 {
		p.waiting = in.Now
	}
	if limit := p.waiting + 2*timeout; in.Now < limit {
		return false, limit
	}
	in.Answer = &policy.Answer{Err: "the group changes faster than it answers"}
	return true, 0
}

// run is a program that takes its time, and more of it than it has now and then: once the faults are over, not twice in a
// row. That moves nobody (S3).
func (p *program) run(key string, ask policy.Input, timeout time.Duration) {
	w := p.l.h.w
	a, took := w.answer(ask), w.between(0, timeout/2)
	if w.chance(w.traits.flaky) && (!w.calm || (p.answer != nil && p.answer.Err == "")) {
		a, took = policy.Answer{Err: "no answer in time"}, timeout
	}
	p.busy = true
	w.after(took, func() {
		p.l.soon(func() {
			p.busy, p.question, p.answer, p.since = false, key, &a, p.l.h.clock()
			p.l.step(tick)
		})
	})
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
	return policy.Answer{Order: order}
}

func (w *world) lot(id string) uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, w.seed, id)
	return h.Sum32()
}
