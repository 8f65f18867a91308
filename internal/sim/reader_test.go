package sim

import (
	"errors"
	"iter"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// reader does what zkstore.Reader does, read by read: each is a request of its own, so that a snapshot mixes moments. It
// is a coroutine that yields whenever it waits.
type reader struct {
	w     *world
	s     *session
	self  cluster.Incarnation
	out   func(cluster.Snapshot)
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool

	running     bool // the coroutine, not the scheduler
	waiting     int  // replies that are not there yet
	failed      bool // one of them was an error
	idle        bool // waiting for a hint, a reread or the timer
	forced      bool
	timer       int
	known       map[string]bool
	snap        cluster.Snapshot
	predecessor string
	unlisted    bool
	unnamed     bool
	nodes       map[string]cluster.Slot[cluster.Node]
	names       []cluster.Incarnation
}

func newReader(s *session, self cluster.Incarnation, out func(cluster.Snapshot)) *reader {
	r := &reader{
		w: s.w, s: s, self: self, out: out, known: make(map[string]bool), nodes: make(map[string]cluster.Slot[cluster.Node]),
		snap: cluster.Snapshot{Self: self, Session: s.id},
	}
	r.next, r.stop = iter.Pull(func(yield func(struct{}) bool) {
		r.yield = yield
		r.run()
	})
	s.wake = r.hinted
	return r
}

func (r *reader) hinted() {
	if r.idle {
		r.idle = false
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
	r.hinted()
}

// netInterval is zkstore's.
const netInterval = 30 * time.Second

// errStopped unwinds the coroutine.
var errStopped = errors.New("stopped")

func (r *reader) run() {
	r.plan(netInterval)
	for {
		r.snap.At = r.s.h.clock()
		if r.forced {
			r.forced = false
			for _, path := range []string{r.w.known.election + "/" + r.self.Name, r.w.known.elected, r.w.known.leader, r.w.known.current} {
				delete(r.known, path)
			}
		}
		r.forget(r.s.hints)
		r.s.hints = cluster.Hints{}
		err := r.read()
		if err == errStopped {
			return
		}
		hints := r.s.hints
		r.s.hints = cluster.Hints{}
		r.forget(hints)
		if err == nil && (hints.Has(r.w.known.elected) || hints.Has(r.w.known.leader) || hints.Has(r.w.known.current)) {
			continue
		}
		if err == nil {
			r.out(r.snap)
		} else {
			r.plan(time.Second)
		}
		if hints.All || len(hints.Paths) > 0 || r.forced {
			continue
		}
		r.idle = true
		if !r.yield(struct{}{}) {
			return
		}
	}
}

// plan has everything read again, whatever was hinted.
func (r *reader) plan(limit time.Duration) {
	r.timer++
	timer := r.timer
	r.w.after(r.w.between(limit*3/4, limit*5/4), func() {
		r.s.h.process(r.s, func() {
			if timer == r.timer {
				r.s.hints.All = true
				r.plan(netInterval)
				r.hinted()
			}
		})
	})
}

func (r *reader) forget(h cluster.Hints) {
	if h.All {
		clear(r.known)
		return
	}
	for path := range h.Paths {
		delete(r.known, path)
		if strings.HasPrefix(path, r.w.known.nodes+"/") {
			delete(r.known, r.w.known.election)
		}
	}
	if h.Has(r.w.known.leader) || h.Has(r.w.known.current) {
		delete(r.known, r.w.known.leader)
		delete(r.known, r.w.known.current)
	}
}
