package sim

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
)

// reader runs store.Collector on the simulated session. It stands in for store.Reader, which decides when to read: a
// coroutine that yields whenever it waits for an answer or has nothing to read.
type reader struct {
	w         *world
	l         *loop
	s         *session
	collector *store.Collector
	out       func(cluster.Snapshot)
	next      func() (struct{}, bool)
	stop      func()
	yield     func(struct{}) bool

	running bool   // the coroutine is running, not the scheduler
	batch   *batch // the reads that are in flight
	idle    bool   // waiting for a hint, a reread or the timer
	timer   int

	// What store.Reader selects from, one slot each.
	woken, forced, timed bool
	act                  bool // see store.Reader.Act
}

func newReader(l *loop, self cluster.Incarnation, out func(cluster.Snapshot)) *reader {
	s := l.s
	r := &reader{w: s.w, l: l, s: s, out: out}
	r.collector = store.NewCollector(store.CollectorOptions{
		Source: s.w.broken.source(r), Paths: l.m.g.paths, Self: self, Session: s.id, Failsafe: s.w.failsafe != nil, RollCalls: l.m.r.calls != nil, Clock: s.h.clock, Log: slog.New(slog.DiscardHandler),
	})
	r.next, r.stop = iter.Pull(func(yield func(struct{}) bool) {
		r.yield = yield
		r.run()
	})
	return r
}

// notify makes an idle reader look for what has come up.
func (r *reader) notify() {
	if r.idle {
		r.resume()
	}
}

// resume continues the coroutine, unless it is running.
func (r *reader) resume() {
	if !r.running {
		r.running = true
		r.next()
		r.running = false
	}
}

func (r *reader) reread() {
	r.forced = true
	r.notify()
}

// netInterval is store's interval for reading everything again.
const netInterval = 30 * time.Second

// errStopped is the error of reads once the coroutine must end.
var errStopped = errors.New("stopped")

// run stands in for store.Reader.Run.
func (r *reader) run() {
	r.plan(netInterval)
	for {
		if snap, complete := r.collector.Collect(context.Background()); complete {
			r.out(snap)
		} else {
			r.plan(time.Second)
		}
		r.idle = true
		for !r.woken && !r.forced && !r.timed {
			if !r.yield(struct{}{}) {
				return
			}
		}
		r.idle = false
		r.choose()
	}
}

// choose takes one of the things that have come up, like select.
func (r *reader) choose() {
	for {
		switch r.w.rng.IntN(3) {
		case 0:
			if r.woken {
				r.woken = false
				return
			}
		case 1:
			if r.forced {
				r.forced = false
				r.collector.Act(r.act)
				r.collector.InvalidateHolder()
				return
			}
		default:
			if r.timed {
				r.timed = false
				r.collector.InvalidateAll()
				r.plan(netInterval)
				return
			}
		}
	}
}

// plan sets the timer.
func (r *reader) plan(limit time.Duration) {
	r.timer++
	r.timed = false
	timer := r.timer
	r.w.after(r.w.between(limit*3/4, limit*5/4), func() {
		r.s.h.process(r.s, func() {
			if timer == r.timer {
				r.timed = true
				r.notify()
			}
		})
	})
}

// batch is a batch of reads that were sent together.
type batch struct{ open int }

// Read implements [store.Source]: each read is a separate request, so that a snapshot mixes moments.
func (r *reader) Read(_ context.Context, reads []*store.Read) {
	b := &batch{open: len(reads)}
	r.batch = b
	for _, read := range reads {
		if read.Optional && !r.w.reads(read.Path) {
			read.Err = cluster.ErrNoNode
			b.open--
			continue
		}
		read.Err = errStopped // until it is answered
		r.s.send(&request{from: r.l.in, path: read.Path, children: read.List, watch: read.Watch, done: func(rep reply) {
			if r.batch != b {
				return // given up
			}
			read.Data, read.Names, read.Stat, read.Err = rep.data, rep.names, rep.stat, rep.err
			b.open--
			if b.open == 0 || (rep.err != nil && !errors.Is(rep.err, cluster.ErrNoNode)) {
				r.batch = nil // a failed one ends the others
				r.resume()
			}
		}})
	}
	if b.open == 0 {
		r.batch = nil
	}
	for r.batch == b {
		if !r.yield(struct{}{}) {
			r.batch = nil
		}
	}
}

// TakeHints implements [store.Source].
func (r *reader) TakeHints() cluster.Hints {
	h := r.l.hints
	r.l.hints = cluster.Hints{}
	return h
}
