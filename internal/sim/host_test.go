package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
)

// net is the state of the network between a host and the servers.
type net int

const (
	netFine  net = iota
	netCut       // no message arrives
	netHangs     // messages arrive late, in order, once it is over
	netStale     // its server has lost the quorum: it answers reads from what it knows, and no writes
)

// host has a daemon, its guard and its child.
type host struct {
	w           *world
	number      int
	id          string
	site        string
	prio        int
	report      selfReport
	timeout     time.Duration
	stop        time.Duration // the child's stop timeout
	budget      cluster.Budget
	rate        float64 // of its clock, relative to true time
	offset      time.Duration
	shown       time.Duration // the last time that the clock has shown
	net         net
	watchesLost time.Duration // until then its watches are lost
	view        *view         // what a server without quorum knows

	// The daemon's process. A run is over when its number is no longer the current one.
	run     int
	alive   bool
	paused  bool
	waiting []func() // what a paused process has yet to handle
	loop    *loop
	leaving bool // it exits when its session has ended
	memory  *cluster.LastKnown

	// The guard.
	unguarded bool          // the guard is dead
	starved   time.Duration // until then it acts late
	slowest   bool          // its next kill takes the longest time allowed
	lease     time.Duration // on the host's clock
	work      *work
	closer    *session // the session of a daemon that died

	// How its takeovers and its child behave.
	stalls   bool // never becomes ready
	refuses  bool // cannot be started
	stubborn bool // ignores the stop signal
	undoing  time.Duration
}

func newHost(w *world, i int) *host {
	t := &w.traits
	h := &host{
		w: w, number: i, id: fmt.Sprintf("n%d", i), site: fmt.Sprintf("dc%d", i%2), prio: w.rng.IntN(3),
		timeout: t.timeouts[i], stop: t.stop, rate: 1 + (w.rng.Float64()-0.5)*cluster.Drift, offset: w.between(0, time.Hour),
	}
	h.report.draw(w)
	var err error
	if h.budget, err = w.broken.budget(h.timeout, h.stop); err != nil {
		w.fail("budget: %v", err)
	}
	w.after(w.between(0, time.Second), h.start)
	return h
}

// clock returns the host's CLOCK_BOOTTIME. It never shows the same time twice, because events that share a moment here would
// not do so in a process.
func (h *host) clock() time.Duration {
	h.shown = max(h.shown+1, h.offset+time.Duration(float64(h.w.now)*h.rate))
	return h.shown
}

// when returns the true time for a time of the host's clock, rounded up.
func (h *host) when(local time.Duration) time.Duration {
	return time.Duration(float64(local-h.offset)/h.rate) + 1
}

// process makes the daemon handle something of a session, once it is not paused.
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

// start starts the daemon, as the guard does.
func (h *host) start() {
	if h.alive {
		return
	}
	h.run++
	h.alive, h.paused, h.leaving, h.unguarded, h.waiting = true, false, false, false, nil
	h.memory = new(cluster.LastKnown)
	h.w.log("%s: the daemon starts", h.id)
	h.begin()
}

// begin opens a session and registers as soon as possible.
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
			// Its own former session still exists.
			h.w.after(h.w.between(100*time.Millisecond, 300*time.Millisecond), func() { h.process(s, func() { h.try(s) }) })
		default:
			// The outcome is unknown or the session is over: take a new one.
			s.end("not registered")
		}
	}})
}

// sessionEnded handles the end of the session at the client.
func (h *host) sessionEnded(s *session, reason string) {
	if h.loop == nil || h.loop.s != s {
		return
	}
	if h.loop.machine == nil { // not registered yet
		h.sessionOver()
		return
	}
	l := h.loop
	l.soon(func() { l.step(transition.SessionEnded{Reason: reason}) })
}

// sessionOver closes the session, with no work running, and begins again or exits.
func (h *host) sessionOver() {
	s := h.loop.s
	if h.work != nil {
		h.w.fail("S1: %s closes its session while its work is running", h.id)
		return
	}
	s.ended = "closed"
	h.loop.close()
	h.loop = nil
	h.closeSession(s)
	if h.leaving {
		h.alive = false
		h.w.after(h.w.between(0, 2*h.timeout), h.start)
		return
	}
	h.begin()
}

// closeSession closes a session at the server, if that can be reached, after sending LEAVE.
func (h *host) closeSession(s *session) {
	if h.net != netFine || h.w.down {
		s.stopHearing()
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
			h.w.faults["LEAVE applied for a lost holder"]++
		} else {
			h.w.faults["LEAVE refused for a lost holder"]++
		}
		h.w.after(s.latency(), end)
	})
}

// trusts reports whether the host, as a candidate, accepts the end of a session as the end of the work.
func (h *host) trusts() bool {
	return h.w.traits.trusts[h.number] || h.w.broken.name == trustSessionEnd || h.w.broken.timed
}

// noneTrusts reports whether no host accepts the end of a session as the end of the work: then sessions may end at any time.
func (w *world) noneTrusts() bool { return !slices.Contains(w.traits.trusts, true) && !w.broken.timed }
