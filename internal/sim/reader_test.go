package sim

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
)

// reader runs zkstore.Collector over the simulated session. It stands in for zkstore.Reader, which decides when to read:
// a coroutine that yields whenever it waits for an answer or has nothing to read.
type reader struct {
	w         *world
	s         *session
	collector *zkstore.Collector
	out       func(cluster.Snapshot)
	next      func() (struct{}, bool)
	stop      func()
	yield     func(struct{}) bool

	running bool   // the coroutine, not the scheduler
	batch   *batch // of reads that are under way
	idle    bool   // waiting for a hint, a reread or the timer
	timer   int

	// What zkstore.Reader selects from, each with one slot.
	woken, forced, timed bool
}

func newReader(s *session, self cluster.Incarnation, out func(cluster.Snapshot)) *reader {
	r := &reader{w: s.w, s: s, out: out}
	r.collector = zkstore.NewCollector(zkstore.CollectorOptions{
		Source: s.w.broken.source(r), Paths: s.w.paths, Self: self, Session: s.id, Clock: s.h.clock, Log: slog.New(slog.DiscardHandler),
	})
	r.next, r.stop = iter.Pull(func(yield func(struct{}) bool) {
		r.yield = yield
		r.run()
	})
	s.wake = func() {
		r.woken = true
		r.stir()
	}
	return r
}

// stir has an idle reader look what has come up.
func (r *reader) stir() {
	if r.idle {
		r.resume()
	}
}

// resume lets the coroutine go on, unless it is what runs.
func (r *reader) resume() {
	if !r.running {
		r.running = true
		r.next()
		r.running = false
	}
}

func (r *reader) reread() {
	r.forced = true
	r.stir()
}

// netInterval is zkstore's.
const netInterval = 30 * time.Second

// errStopped is what reads get once the coroutine is to end.
var errStopped = errors.New("stopped")

// run is zkstore.Reader.Run.
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

// choose takes one of what has come up, as select does.
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
				r.collector.InvalidateLeadership()
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
				r.stir()
			}
		})
	})
}

// batch is reads that were sent together.
type batch struct{ open int }

// Read implements [zkstore.Source]: each read is a request of its own, so that a snapshot mixes moments.
func (r *reader) Read(_ context.Context, reads []*zkstore.Read) {
	b := &batch{open: len(reads)}
	r.batch = b
	for _, read := range reads {
		read.Err = errStopped // until it is answered
		r.s.send(&request{path: read.Path, children: read.List, watch: read.Watch, done: func(rep reply) {
			if r.batch != b {
				return // given up
			}
			read.Data, read.Names, read.Stat, read.Err = rep.data, rep.names, rep.stat, rep.err
			b.open--
			if b.open == 0 || (rep.err != nil && !errors.Is(rep.err, cluster.ErrNoNode)) {
				r.batch = nil // one that fails ends the others
				r.resume()
			}
		}})
	}
	for r.batch == b {
		if !r.yield(struct{}{}) {
			r.batch = nil
		}
	}
}

// TakeHints implements [zkstore.Source].
func (r *reader) TakeHints() cluster.Hints {
	h := r.s.hints
	r.s.hints = cluster.Hints{}
	return h
}
