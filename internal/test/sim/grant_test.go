package sim

import (
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
)

// granting is which session timeouts the servers grant to clients, which ask for their host's.
type granting int

const (
	grantAlike   granting = iota
	grantLonger           // the one that leases are computed from, which is configured as the smallest, or longer ones
	grantShorter          // at a reconnect also shorter ones, and the client learns of it at once
)

// grant returns the session timeout to grant.
func (h *host) grant(first bool) time.Duration {
	w := h.w
	switch {
	case w.calm || w.traits.granting == grantAlike:
		return h.timeout
	case w.traits.granting == grantLonger:
		return h.timeout * time.Duration(2+w.rng.IntN(3)) / 2
	case first:
		return h.timeout
	}
	least := 2
	if w.broken.timed { // half of T is longer than a lease, so little would go wrong
		least = 1
	}
	return h.timeout * time.Duration(least+w.rng.IntN(4)) / 4
}

// handshake reconnects the session: the server applies what it grants from then on, and the client learns of it a little
// later.
func (s *session) handshake() {
	w, h := s.w, s.h
	s.epoch++
	s.handshakeEpoch = s.epoch
	s.pending = nil
	s.T = h.grant(false)
	if s.T != h.timeout {
		w.faults["T renegotiated"]++
		w.log("%s: session %d is granted %s", h.id, s.id, s.T)
	}
	s.touch()
	if s.T < h.timeout {
		s.handshakeDone(h.clock())
		return
	}
	epoch, asked := s.epoch, h.clock()
	s.stopHearing() // until something is sent
	w.after(w.between(0, min(2*s.latency(), h.timeout/3)), func() {
		h.process(s, func() {
			switch {
			case s.ended != "":
			case s.epoch != epoch || h.net != netFine || w.down: // lost again before it was read
				s.reconnect()
			case !w.tree.Alive(s.id):
				s.end("expired")
			default:
				s.touch()
				s.handshakeDone(asked)
			}
		})
	})
}

// handshakeDone is the client reading what was granted. If that is less than its lease is computed from, the lease is shortened
// at once, and the session ends in order.
func (s *session) handshakeDone(asked time.Duration) {
	h := s.h
	s.up = true
	s.handshakes++
	s.leases.rereadAll()
	for _, m := range h.residents {
		if m.instance != nil {
			m.instance.hintAll()
		}
	}
	if s.T < h.timeout && h.working() && h.w.chance(0.3) { // the most dangerous moment
		h.w.after(h.w.between(0, h.timeout/4), func() {
			if !h.w.calm {
				h.w.faults["cut off with a shorter T"]++
				h.cut(h.w.between(h.timeout/2, 2*h.timeout), h.timeout*2/3)
			}
		})
	}
	if s.T >= h.timeout || h.w.broken.name == keepLease {
		return
	}
	limit := asked + cluster.SafeLease(s.T, 0)
	s.cut = cluster.Earliest(s.cut, limit)
	for _, m := range h.members {
		if m.lease > limit {
			m.extend(limit)
		}
	}
	if !h.registered() {
		s.end("the session timeout has shrunk")
		return
	}
	for _, m := range h.residents {
		if m.instance != nil {
			m.instance.handle(transition.LeaseCut{Deadline: limit, Reason: "the session timeout has shrunk"})
		}
	}
}
