package zk

import (
	"context"
	"slices"
	"sync"
)

// maxInLibrary limits the requests below [PriorityLease] that the library has at once. One above that limit waits for 64
// others at most, however many are queued.
const maxInLibrary = 64

// queue decides which request goes to the library next: the highest priority first, and within it the groups take turns.
type queue struct {
	mu      sync.Mutex
	used    int // slots
	waiting [PriorityLease]turns
}

// turns are the waiting requests of one priority: a line for each group, in the order of their turns.
type turns []*line

type line struct {
	group   *Group
	waiters []chan struct{} // each is closed when it has a slot
}

// enter waits for a slot, and returns the function that frees it. It returns an error if ctx is done or the group is given up.
func (q *queue) enter(ctx context.Context, g *Group) (leave func(), err error) {
	p := PriorityOf(ctx)
	if p >= PriorityLease {
		return func() {}, nil
	}
	slot := q.join(p, g)
	select {
	case <-slot:
		return q.leave, nil
	case <-ctx.Done():
		err = notSent(ctx)
	case <-g.ctx.Done():
		err = context.Cause(g.ctx)
	case <-g.s.done:
		err = g.s.Err()
	}
	q.cancel(p, g, slot)
	return nil, err
}

// join queues a request and returns the channel that is closed when it has a slot.
func (q *queue) join(p Priority, g *Group) chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	slot := make(chan struct{})
	t := &q.waiting[p]
	if i := t.find(g); i >= 0 {
		(*t)[i].waiters = append((*t)[i].waiters, slot)
	} else {
		*t = append(*t, &line{g, []chan struct{}{slot}})
	}
	q.grant()
	return slot
}

// cancel gives up a place in the queue, or the slot if it was granted in the meantime.
func (q *queue) cancel(p Priority, g *Group, slot chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-slot:
		q.used--
		q.grant()
		return
	default:
	}
	t := &q.waiting[p]
	i := t.find(g)
	l := (*t)[i]
	l.waiters = slices.DeleteFunc(l.waiters, func(w chan struct{}) bool { return w == slot })
	if len(l.waiters) == 0 {
		*t = slices.Delete(*t, i, i+1)
	}
}

func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used--
	q.grant()
}

// grant gives the free slots to those whose turn it is. The caller holds q.mu.
func (q *queue) grant() {
	for q.used < maxInLibrary {
		slot := q.next()
		if slot == nil {
			return
		}
		q.used++
		close(slot)
	}
}

func (q *queue) next() chan struct{} {
	for _, t := range []*turns{&q.waiting[PriorityRecovery], &q.waiting[PriorityNormal]} {
		if len(*t) == 0 {
			continue
		}
		l := (*t)[0]
		*t = slices.Delete(*t, 0, 1)
		slot := l.waiters[0]
		if l.waiters = l.waiters[1:]; len(l.waiters) > 0 {
			*t = append(*t, l)
		}
		return slot
	}
	return nil
}

func (t turns) find(g *Group) int {
	return slices.IndexFunc(t, func(l *line) bool { return l.group == g })
}
