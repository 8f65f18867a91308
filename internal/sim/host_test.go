package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
)

// net is what becomes of the messages between a host and the servers.
type net int

const (
	netFine  net = iota
	netCut       // nothing passes
	netHangs     // nothing passes until it does, late and in order
	netStale     // its server has lost the quorum: it answers reads with what it knows, and writes not at all
)

// host is a daemon with its guard and its child.
type host struct {
	w       *world
	number  int
	id      string
	site    string
	prio    int
	vitals  vitals
	timeout time.Duration
	stop    time.Duration // the child's stop timeout
	budget  cluster.Budget
	rate    float64 // of its clock, against true time
	offset  time.Duration
	shown   time.Duration // by the clock, last
	net     net
	deaf    time.Duration // until then its watches are lost
	view    *view         // what a server without a quorum knows

	// The daemon's process. A run is over when its number is not the present one.
	run     int
	alive   bool
	paused  bool
	waiting []func() // what a paused process has not seen yet
	loop    *loop
	leaving bool // it ends when its session has
	memory  *cluster.Memory

	// The guard.
	unguarded bool          // it is dead
	starved   time.Duration // until then it runs late
	slowest   bool          // its next kill takes as long as ever it may
	lease     time.Duration // on the host's clock
	work      *work
	closer    *session // of a daemon that died

	// What its takeovers and its child are like.
	stalls   bool // never gets ready
	refuses  bool // can't be started
	stubborn bool // ignores the stop signal
	undoing  time.Duration
}

func newHost(w *world, i int) *host {
	t := &w.traits
	h := &host{
		w: w, number: i, id: fmt.Sprintf("n%d", i), site: fmt.Sprintf("dc%d", i%2), prio: w.rng.IntN(3),
		timeout: t.timeouts[i], stop: t.stop, rate: 1 + (w.rng.Float64()-0.5)*cluster.Drift, offset: w.between(0, time.Hour),
	}
	h.vitals.draw(w)
	var err error
	if h.budget, err = w.broken.budget(h.timeout, h.stop); err != nil {
		w.fail("budget: %v", err)
	}
	w.after(w.between(0, time.Second), h.start)
	return h
}

// clock is the host's CLOCK_BOOTTIME. It never shows the same time twice, as what happens at one moment here does not in
// a process.
func (h *host) clock() time.Duration {
	h.shown = max(h.shown+1, h.offset+time.Duration(float64(h.w.now)*h.rate))
	return h.shown
}

// when is the true time of a time of the host's clock, rounded up.
func (h *host) when(local time.Duration) time.Duration {
	return time.Duration(float64(local-h.offset)/h.rate) + 1
}

// process has the daemon take in something of a session, when it is not paused.
func (h *host) process(s *session, do func()) {
	run := h.run
	step := func() {
		if h.alive && h.run == run && h.loop != nil && h.loop.s == s {
			do()
		}
	}
	if h.paused {
		h.waiting = append(h.waiting, step)
		return
	}
	step()
}

// start is the guard starting the daemon.
func (h *host) start() {
	if h.alive {
		return
	}
	h.run++
	h.alive, h.paused, h.leaving, h.unguarded, h.waiting = true, false, false, false, nil
	h.memory = new(cluster.Memory)
	h.w.log("%s: the daemon starts", h.id)
	h.begin()
}

// begin opens a session and registers, as soon as that is possible.
func (h *host) begin() {
	run := h.run
	h.w.after(h.w.between(50*time.Millisecond, 200*time.Millisecond), func() {
		switch {
		case !h.alive || h.run != run:
		case h.paused || h.net != netFine || h.w.down:
			h.begin()
		default:
			h.register()
		}
	})
}

func (h *host) register() {
	s := h.open()
	h.loop = &loop{h: h, s: s}
	h.w.check.changed()
	h.try(s)
}

func (h *host) try(s *session) {
	rec := h.record()
	s.send(&request{ops: h.w.paths.RegisterTx(rec), done: func(rep reply) {
		switch {
		case rep.err == nil:
			in, err := cluster.ParseIncarnation(rep.results[1].Path[len(h.w.known.election)+1:])
			if err != nil {
				h.w.fail("registered as %v", err)
				return
			}
			h.loop.begin(in)
		case errors.Is(rep.err, cluster.ErrNoNode):
			h.prepare(s, h.w.paths.Skeleton())
		case errors.Is(rep.err, cluster.ErrNodeExists):
			// The session of its own past is still there.
			h.w.after(h.w.between(100*time.Millisecond, 300*time.Millisecond), func() { h.process(s, func() { h.try(s) }) })
		default:
			// Of unknown outcome, or the session is over: a new one.
			s.end("not registered")
		}
	}})
}

// sessionEnded is the session's end at this side.
func (h *host) sessionEnded(s *session, reason string) {
	if h.loop == nil || h.loop.s != s {
		return
	}
	if h.loop.machine == nil { // not registered yet
		h.finished()
		return
	}
	l := h.loop
	l.soon(func() { l.step(transition.SessionEnded{Reason: reason}) })
}

// finished closes the session, with nothing at work, and begins anew or ends.
func (h *host) finished() {
	s := h.loop.s
	if h.work != nil {
		h.w.fail("S1: %s closes its session while its work goes on", h.id)
		return
	}
	s.ended = "closed"
	h.loop.close()
	h.loop = nil
	h.bury(s)
	if h.leaving {
		h.alive = false
		h.w.after(h.w.between(0, 2*h.timeout), h.start)
		return
	}
	h.begin()
}

// bury closes a session at the server, if that can be reached, and releases the leadership that it holds before.
func (h *host) bury(s *session) {
	if h.net != netFine || h.w.down {
		s.silent()
		return
	}
	end := func() {
		h.w.log("%s: session %d is closed", h.id, s.id)
		h.w.close(s)
	}
	h.w.after(s.latency(), func() {
		if len(s.leave) == 0 || !h.w.tree.Alive(s.id) {
			end()
			return
		}
		if _, err := h.w.apply(s, h.w.broken.relax(h.w, s.leave)); err == nil {
			h.w.faults["released for a holder that was lost"]++
		} else {
			h.w.faults["not released for a holder that was lost"]++
		}
		h.w.after(s.latency(), end)
	})
}

// trusts reports whether the host, as a candidate, takes the end of a session for the end of the work.
func (h *host) trusts() bool {
	return h.w.traits.trusts[h.number] || h.w.broken.name == trusting || h.w.broken.timed
}

// wary reports whether nobody takes the end of a session for the end of the work: then it may end at any time.
func (w *world) wary() bool { return !slices.Contains(w.traits.trusts, true) && !w.broken.timed }
