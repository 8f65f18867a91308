package sim

import "time"

// event is a scheduled event. Ties are broken by the order of scheduling.
type event struct {
	at    time.Duration
	order uint64
	do    func()
}

func (e *event) before(f *event) bool { return e.at < f.at || (e.at == f.at && e.order < f.order) }

// queue is a heap of events, the next one first. container/heap would allocate for each event.
type queue []event

func (q *queue) push(e event) {
	h := append(*q, e)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(&h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = e
	*q = h
}

func (q *queue) pop() event {
	h := *q
	first, last := h[0], h[len(h)-1]
	h[len(h)-1] = event{}
	h = h[:len(h)-1]
	*q = h
	for i := 0; len(h) > 0; {
		down := 2*i + 1
		if down+1 < len(h) && h[down+1].before(&h[down]) {
			down++
		}
		if down >= len(h) || !h[down].before(&last) {
			h[i] = last
			break
		}
		h[i] = h[down]
		i = down
	}
	return first
}
