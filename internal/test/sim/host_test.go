package sim

import (
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
	timeout     time.Duration
	rate        float64 // of its clock, relative to true time
	offset      time.Duration
	shown       time.Duration // the last time that the clock has shown
	net         net
	watchesLost time.Duration // until then its watches are lost
	view        *view         // what a server without quorum knows
	residents   []*resident   // one in each resource
	members     []*member     // one in each group of the world

	// The daemon's process. A run is over when its number is no longer the current one.
	run     int
	alive   bool
	paused  bool
	waiting []func() // what a paused process has yet to handle
	session *session // nil while there is none
	leaving bool     // it exits when its session has ended

	failsafe  failsafeHost
	silencing silencing
	readsLate time.Duration // until then it reads lease znodes late

	// The guard.
	unguarded bool          // the guard is dead
	starved   time.Duration // until then it acts late
	closer    *session      // the session of a daemon that died
}

func newHost(w *world, i int) *host {
	t := &w.traits
	h := &host{w: w, number: i, id: fmt.Sprintf("n%d", i), site: fmt.Sprintf("dc%d", i%2), timeout: t.timeouts[i]}
	for _, r := range w.resources {
		in := newResident(h, r)
		h.residents, h.members = append(h.residents, in), append(h.members, in.members...)
	}
	h.rate, h.offset = 1+(w.rng.Float64()-0.5)*cluster.Drift, w.between(0, time.Hour)
	for _, m := range h.residents {
		m.report.draw(m.r)
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
		if h.alive && h.run == run && h.session == s {
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
	for _, m := range h.members {
		m.memory, m.had = new(cluster.LastKnown), 0
	}
	h.beginPromises()
	h.w.log("%s: the daemon starts", h.id)
	h.begin()
}

// begin opens a session and registers in all groups as soon as possible.
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
	h.session = h.open()
	h.setBudget()
	for _, m := range h.residents {
		m.r.changed()
		m.join()
	}
}

// working reports whether leader-only work is running on the host.
func (h *host) working() bool {
	return slices.ContainsFunc(h.members, func(m *member) bool { return m.work != nil })
}

// stopStandbys ends the standbys of the host.
func (h *host) stopStandbys() {
	for _, m := range h.residents {
		m.standby.stop()
	}
}

// sessionEnded handles the end of the session at the client.
func (h *host) sessionEnded(s *session, reason string) {
	if h.session != s {
		return
	}
	for _, m := range h.residents {
		if in := m.instance; in != nil {
			in.handle(transition.SessionEnded{Reason: reason})
		}
	}
	if h.over() {
		h.sessionOver()
	}
}

// ending reports whether the session is over, or ends in order.
func (h *host) ending() bool {
	return h.session.ended != "" || h.session.cut != 0 || h.leaving
}

// over reports whether all instances on the host's session are over.
func (h *host) over() bool {
	return !h.working() && !slices.ContainsFunc(h.residents, func(m *resident) bool {
		return m.instance != nil && !m.instance.over() && !m.instance.abandoned
	})
}

// sessionOver closes the session, with no work running, and begins again or exits.
func (h *host) sessionOver() {
	s := h.session
	if h.working() {
		h.w.fail("S1: %s closes its session while its work is running", h.id)
		return
	}
	s.ended = "closed"
	h.endInstances()
	h.closeSession(s)
	if h.leaving {
		h.alive = false
		h.stopStandbys()
		h.w.after(h.w.between(0, 2*h.timeout), h.start)
		return
	}
	h.begin()
}

// endInstances ends all instances, and their session for the client.
func (h *host) endInstances() {
	for _, m := range h.residents {
		if m.instance != nil {
			m.instance.close()
			m.drop()
		}
	}
	h.session = nil
}

// closeSession closes a session at the server, if that can be reached, after sending FINAL for each group.
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
		if !h.w.tree.Alive(s.id) {
			end()
			return
		}
		sent := false
		for _, g := range h.w.groups {
			ops := s.final[g.number]
			if len(ops) == 0 {
				continue
			}
			sent = true
			if _, err := h.w.apply(s, h.w.broken.relax(g, ops)); err == nil {
				h.w.faults["FINAL applied for a lost holder"]++
			} else {
				h.w.faults["FINAL refused for a lost holder"]++
			}
		}
		if !sent {
			end()
			return
		}
		h.w.after(s.latency(), end)
	})
}
