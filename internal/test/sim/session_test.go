package sim

import (
	"errors"
	"fmt"
	"time"

	"zkelectd/internal/cluster"
)

// session is both ends of one ZooKeeper session, and the connection between them. Requests and replies stay in order within a
// connection, as with TCP; a connection that breaks loses what is in flight, but a write may still arrive.
type session struct {
	w  *world
	h  *host
	id int64
	T  time.Duration // the session timeout that the server applies

	epoch          int // counts connections
	handshakeEpoch int // the epoch of the last handshake: what was sent in earlier ones can no longer arrive
	lost           int // an epoch in which a message, and so all later ones, were lost
	lateWrite      time.Duration
	quiet          bool     // the server does not hear from the client
	selves         []string // the incarnation registered in it in each group, known to the client or not
	up             bool     // connected, as the client sees it
	arrived        time.Duration
	replied        time.Duration
	held           []func()      // what a hanging connection holds back
	pending        []*request    // sent but not answered
	wrote          time.Duration // when the last write that passed the quorum was sent: the server has heard from the client since then
	expiry         int           // invalidates scheduled expiries
	ended          string        // why it is over for the client
	era            int
	renewer        *renewer
	instances      int            // how many have begun
	loops          int            // likewise
	refusedSince   time.Duration  // since when the servers have refused it
	final          [][]cluster.Op // FINAL of each group, to be sent before it is closed
	handshakes     int            // after the first
	leases         *leases
	cut            time.Duration // no lease may outlast it, because the session timeout has shrunk; 0 for no limit
}

// request is a read, a write or the closing of the session.
type request struct {
	from            *instance // nil if it is the host's own
	ops             []cluster.Op
	path            string
	children, watch bool
	sent            time.Duration
	epoch           int
	done            func(reply)
	answered        bool
}

type reply struct {
	results []cluster.Result
	data    []byte
	names   []string
	stat    cluster.Stat
	err     error
}

func (h *host) open() *session {
	s := &session{w: h.w, h: h, id: h.w.tree.Open(), T: h.grant(true), up: true, lost: -1, era: h.w.era}
	s.selves, s.final = make([]string, len(h.residents)), make([][]cluster.Op, len(h.members))
	s.renewer = newRenewer(s)
	s.wrote = h.w.now
	h.w.sessions[s.id] = s
	h.w.all = append(h.w.all, s)
	s.createLease()
	return s
}

// latency returns the latency of one message.
func (s *session) latency() time.Duration {
	t := &s.w.traits
	most := t.latency[s.h.number]
	d := s.w.between(most/4, most)
	if s.w.chance(t.slow) {
		d += s.w.between(0, s.T/3)
	}
	return d
}

// send sends a request; done gets the reply, or an error as store would return it.
func (s *session) send(r *request) {
	switch {
	case s.ended != "":
		r.done(reply{err: cluster.ErrSessionEnded})
		return
	case !s.up || r.from != nil && r.from.refused():
		r.done(reply{err: cluster.ErrNotSent})
		return
	}
	r.sent, r.epoch = s.w.now, s.epoch
	s.pending = append(s.pending, r)
	s.arrived = max(s.arrived, s.w.now+s.latency())
	s.w.at(s.arrived, func() { s.arrive(r) })
}

// arrive handles a request at the server.
func (s *session) arrive(r *request) {
	w := s.w
	switch {
	case r.epoch == s.epoch && (s.h.net == netHangs || s.h.net == netCut || s.h.net == netStale && (r.ops != nil || len(s.held) > 0)):
		// A server keeps the order of a session, so what follows a write waits with it.
		s.held = append(s.held, func() { s.arrive(r) })
		return
	case r.epoch != s.epoch || w.down:
		s.arriveLate(r)
		return
	}
	if s.h.net != netStale {
		s.quiet = false // the server has heard from the client
		s.expiry++
		if s.h.paused || s.h.session != s {
			s.stopHearing()
		}
	}
	var rep reply
	switch {
	case s.h.net == netStale && r.ops == nil:
		rep = s.h.view.read(r) // it does not know that the session has ended
	case !w.tree.Alive(s.id):
		rep.err = cluster.ErrSessionEnded
	case r.ops != nil:
		rep.results, rep.err = w.apply(s, r.ops)
		s.wrote = max(s.wrote, r.sent)
	case r.children:
		rep.names, rep.stat, rep.err = w.tree.Children(s.id, r.path, r.watch)
	default:
		rep.data, rep.stat, rep.err = w.tree.Get(s.id, r.path, r.watch)
	}
	s.deliver(r.epoch, func() { s.answer(r, rep) })
}

// arriveLate handles a request on a lost connection. The server may have it, or may still get it: then a write takes effect
// without a reply. It is void once the client has reconnected, because the session has moved on.
func (s *session) arriveLate(r *request) {
	w := s.w
	if r.ops == nil || w.down || r.epoch < s.handshakeEpoch || s.lost == r.epoch || !w.chance(w.traits.lateWrites) {
		s.lost = r.epoch
		return
	}
	s.lateWrite = max(s.lateWrite, w.now+w.between(0, s.T))
	w.at(s.lateWrite, func() {
		if r.epoch >= s.handshakeEpoch && w.tree.Alive(s.id) && !w.down {
			w.log("%s: a write from a lost connection arrives", s.h.id)
			w.apply(s, r.ops)
		}
	})
}

// deliver takes something from the server to the client, in order.
func (s *session) deliver(epoch int, do func()) {
	s.replied = max(s.replied, s.w.now+s.latency())
	s.w.at(s.replied, func() { s.receive(epoch, do) })
}

func (s *session) receive(epoch int, do func()) {
	switch {
	case epoch != s.epoch || s.ended != "":
	case s.h.net == netHangs || s.h.net == netCut:
		s.held = append(s.held, func() { s.receive(epoch, do) })
	default:
		s.h.process(s, do)
	}
}

func (s *session) answer(r *request, rep reply) {
	if r.answered {
		return
	}
	r.answered = true
	s.forget(r)
	if errors.Is(rep.err, cluster.ErrSessionEnded) {
		s.end("expired")
	}
	r.done(rep)
}

func (s *session) forget(r *request) {
	for i, p := range s.pending {
		if p == r {
			s.pending = append(s.pending[:i], s.pending[i+1:]...)
			return
		}
	}
}

// fired notifies a client that a watch has fired. It may come late, but never after a reply that shows the change.
func (s *session) fired(path string) {
	if s.h.net == netStale {
		return // its server does not know; the client reads everything again when it connects to another
	}
	if s.w.now < s.h.watchesLost || s.w.chance(s.w.traits.lostWatch) {
		return
	}
	if s.w.chance(s.w.traits.lateWatch) {
		s.replied = max(s.replied, s.w.now+s.w.between(0, s.T/2))
	}
	s.deliver(s.epoch, func() {
		if isLease(path) {
			s.leases.read(path)
			return
		}
		if in := s.h.residents[s.w.resourceOf(path).number].instance; in != nil {
			in.hint(path)
		}
	})
}

// disconnect breaks the connection: the client notices after a while, and what was in flight has an unknown outcome.
func (s *session) disconnect(notice time.Duration) {
	s.epoch++
	s.drop()
	s.w.after(notice, func() { s.h.process(s, s.disconnected) })
}

// drop drops what a hanging connection holds back. Some of it may have arrived.
func (s *session) drop() {
	held := s.held
	s.held = nil
	for _, do := range held {
		do()
	}
}

func (s *session) disconnected() {
	if s.ended != "" || !s.up {
		return
	}
	s.up = false
	s.h.suspect()
	lost := s.pending
	s.pending = nil
	for _, r := range lost {
		if !r.answered {
			r.answered = true
			r.done(reply{err: cluster.ErrUnknown})
		}
	}
	s.reconnect()
}

// reconnect tries until it succeeds or the server says that the session is over.
func (s *session) reconnect() {
	s.w.after(s.w.between(time.Millisecond, s.T/20+100*time.Millisecond), func() {
		s.h.process(s, func() {
			switch {
			case s.ended != "" || s.up:
			case s.h.net != netFine || s.w.down:
				s.reconnect()
			case s.era != s.w.era:
				s.refused()
			case !s.w.tree.Alive(s.id):
				s.end("expired")
			default:
				s.handshake()
			}
		})
	})
}

// touch records that the server has heard from the client.
func (s *session) touch() {
	s.wrote, s.quiet = s.w.now, false
	s.expiry++
}

// stopHearing records that the server no longer hears from the client. It last did so at some time since the last write that
// passed the quorum was sent; it may expire the session from 0.75 tick before until a tick after T has passed since then.
func (s *session) stopHearing() {
	w := s.w
	if s.quiet || !w.tree.Alive(s.id) {
		return
	}
	s.quiet = true
	tick := s.T / time.Duration(w.ticks)
	heard, limit := w.between(max(s.wrote, w.now-s.T/3), w.now), w.between(s.T-tick*3/4, s.T+tick)
	if w.chance(0.3) { // the earliest possible expiry
		heard, limit = max(s.wrote, w.now-s.T/3), s.T-tick*3/4
	}
	s.expiry++
	planned := s.expiry
	w.at(heard+limit, func() { s.expire(planned) })
}

func (s *session) expire(planned int) {
	switch {
	case planned != s.expiry || !s.w.tree.Alive(s.id):
	case s.w.down: // no server is up to do it; one that comes back gives every session its whole timeout
	default:
		s.w.log("%s: session %d expires at the server", s.h.id, s.id)
		s.w.close(s)
	}
}

// end ends the session for the client.
func (s *session) end(reason string) {
	if s.ended != "" {
		return
	}
	s.ended = reason
	s.epoch++
	s.drop()
	lost := s.pending
	s.pending = nil
	for _, r := range lost {
		if !r.answered {
			r.answered = true
			r.done(reply{err: fmt.Errorf("%w: %w", cluster.ErrUnknown, cluster.ErrSessionEnded)})
		}
	}
	s.h.sessionEnded(s, reason)
	s.stopHearing()
}
