package sim

import (
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/renewal"
	"zkelectd/internal/transition"
)

// renewer stands in for the renewer of store's sessions, with the same merger: it sends the RENEWs of all instances on a
// session. It is a separate goroutine, so a busy loop does not delay it.
type renewer struct {
	s      *session
	merger *renewal.Merger
	done   map[int]func(transition.RenewDone) // by the instance's number
	timer  time.Duration                      // the next time to send, on the host's clock
	broken renewing
}

func newRenewer(s *session) *renewer {
	return &renewer{s: s, merger: renewal.NewMerger(s.w.rng.Float64), done: make(map[int]func(transition.RenewDone)), broken: renewing{posted: make(map[int]transition.Renew)}}
}

// renew posts a loop's RENEW, or withdraws it.
func (l *loop) renew(a transition.Renew) {
	r := l.s.renewer
	if len(a.Ops) == 0 || l.in.refused() {
		r.merger.Withdraw(l.number)
		return
	}
	r.done[l.number] = func(done transition.RenewDone) {
		l.soon(func() { l.step(l.m.w.broken.renewed(l, done)) })
	}
	a.Ops = l.m.w.broken.renews(l, a)
	r.broken.posted[l.number] = a
	r.merger.Post(l.m.clock(), l.number, a)
	r.schedule()
}

// schedule plans the next sending, unless an earlier one is planned, which will plan again.
func (r *renewer) schedule() {
	at, h := r.merger.Wake(), r.s.h
	if at == 0 || (r.timer != 0 && r.timer <= at) {
		return
	}
	r.timer = at
	h.w.at(h.when(at), func() {
		h.process(r.s, func() {
			if r.timer == at {
				r.timer = 0
				r.send(r.merger.Take(h.clock()))
				r.schedule()
			}
		})
	})
}

// send sends batches. One without a reply by its deadline has an unknown outcome.
func (r *renewer) send(batches []renewal.Batch) {
	h := r.s.h
	for _, b := range batches {
		over := false
		finish := func(stat cluster.Stat, err error) {
			if over {
				return
			}
			over = true
			var answers []renewal.Answer
			var again []renewal.Batch
			if b.Ops == nil {
				if answers, again = r.merger.Counted(h.clock(), b, stat, err); r.merger.Err() == nil && err == nil {
					h.w.broken.readBack(r, b.Sent)
					h.hasReadBack()
				}
			} else {
				answers, again = r.merger.Done(h.clock(), b, err)
			}
			if over := r.merger.Err(); over != nil {
				h.w.faults["lease znode lost"]++
				r.s.end(over.Error())
			}
			for _, a := range answers {
				r.done[a.ID](a.RenewDone)
			}
			r.send(again)
		}
		h.w.at(h.when(b.Deadline), func() { h.process(r.s, func() { finish(cluster.Stat{}, cluster.ErrUnknown) }) })
		if b.Ops == nil { // a write without operations is a sync
			r.s.send(&request{ops: []cluster.Op{}, done: func(rep reply) {
				if rep.err != nil {
					finish(cluster.Stat{}, cluster.ErrNotSent)
					return
				}
				r.s.send(&request{path: r.s.leases.znode, done: func(rep reply) { finish(rep.stat, rep.err) }})
			}})
			continue
		}
		h.renewing()
		ops, refused := h.w.broken.batches(r, b.Ops)
		r.s.send(&request{ops: ops, done: func(rep reply) {
			if rest := refused(rep.err); rest != nil {
				r.s.send(&request{ops: rest, done: func(rep reply) { finish(cluster.Stat{}, rep.err) }})
				return
			}
			finish(cluster.Stat{}, rep.err)
		}})
	}
}
