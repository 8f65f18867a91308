package zkstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
)

// DialFunc opens a connection to a server.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// errSecondSession is what go-zookeeper gets when it wants to open a session after the first: the requests that it has
// queued must not run in another session than the one they were made for.
var errSecondSession = errors.New("refused: a session is used once")

// dial is go-zookeeper's dialer. It is called from one goroutine, once per attempt.
func (s *Session) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	s.mu.Lock()
	s.dialed = time.Now() // before the pause, which may be longer than what counts as stuck
	s.mu.Unlock()
	if err := s.pause(); err != nil {
		return nil, err
	}
	limit := s.handshakeLimit()
	ctx, cancel := context.WithTimeout(s.life, limit)
	defer cancel()
	conn, err := s.opt.Dial(ctx, network, addr)
	if err != nil {
		s.trouble(addr, err)
		return nil, err
	}
	w := &wireConn{Conn: conn, s: s, addr: addr, limit: time.Now().Add(limit)}
	if !s.adopt(w) {
		conn.Close()
		return nil, s.Err()
	}
	return w, nil
}

// longestPace stands for T where the server has not answered yet and what was requested is longer.
const longestPace = 15 * time.Second

// pace is what reconnecting is timed by: T as negotiated, since what was requested may be far from it. s.mu is held.
func (s *Session) pace() time.Duration {
	if s.shake.timeout > 0 {
		return s.shake.timeout
	}
	return min(s.opt.Timeout, longestPace)
}

// handshakeLimit bounds connecting and the handshake. go-zookeeper allows ten times 2/3 T for each half of it, which
// outlasts every lease.
func (s *Session) handshakeLimit() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.pace()/3, 200*time.Millisecond)
}

// pause spreads the reconnects of a fleet, and waits longer while no server answers.
func (s *Session) pause() error {
	s.mu.Lock()
	first, failures, pace := s.attempts == 0, s.failures, s.pace()
	s.attempts++
	s.mu.Unlock()
	if s.Err() != nil {
		return s.Err()
	}
	if first {
		return nil
	}
	wait := rand.N(max(pace/20, time.Millisecond))
	if rounds := failures / s.hosts.Len(); rounds > 0 {
		step := min(50*time.Millisecond<<min(rounds-1, 5), time.Second)
		wait += step/2 + rand.N(step/2)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-s.done:
		return s.Err()
	}
}

// wireConn is the socket under go-zookeeper. It reads the handshake along, keeps its deadlines, and refuses to open a
// second session.
type wireConn struct {
	net.Conn
	s     *Session
	addr  string
	limit time.Time // for the handshake

	mu      sync.Mutex
	asked   bool
	sent    time.Duration // when the connect request was, of CLOCK_BOOTTIME
	known   bool          // it says that the client has seen something
	shaken  bool
	packet  []byte
	frames  framing // of what comes after the handshake
	closing []byte  // the xid of closeSession once it was sent
}

func (w *wireConn) Write(b []byte) (int, error) {
	w.mu.Lock()
	asked := w.asked
	w.asked = true
	if asked && isClose(b) {
		w.closing = bytes.Clone(b[4:8])
	}
	w.mu.Unlock()
	if asked {
		w.send(b)
		return len(b), nil
	}
	if err := w.s.Err(); err != nil {
		return 0, err
	}
	// The first write is the connect request, in one piece.
	if id, ok := connectRequestSession(b); !ok || (id == 0 && w.s.SessionID() != 0) {
		w.s.vanished()
		w.s.end(fmt.Errorf("%w: expired", cluster.ErrSessionEnded))
		return 0, errSecondSession
	}
	w.mu.Lock()
	w.sent, w.known = boottime.Now(), connectRequestZxid(b) > 0
	w.mu.Unlock()
	n, err := w.Conn.Write(b)
	if err != nil {
		w.s.trouble(w.addr, err)
	}
	return n, err
}

// send writes a request or closes the socket, and never fails: go-zookeeper deadlocks for good if it is told that
// credentials could not be sent. It notices by reading as well, and then answers all that is pending. After the
// session's end nothing is sent. Least of all the library's own closeSession, which would hand leadership on while the
// child of a session that ended for this side only may still run (S1).
func (w *wireConn) send(b []byte) {
	if w.s.Err() == nil {
		if _, err := w.Conn.Write(b); err == nil {
			return
		}
	}
	w.Conn.Close()
}

func (w *wireConn) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shaken {
		if w.closing != nil && answersClose(b[:n], w.closing) {
			w.s.vanished()
		}
		if bad := w.frames.pass(b[:n]); bad != nil {
			w.s.trouble(w.addr, bad)
			return 0, bad
		}
		return n, err
	}
	if err != nil {
		hint := ""
		if !w.s.opt.Access.TLS.Enabled && errors.Is(err, io.EOF) {
			hint = "; a port for TLS hangs up like this: zookeeper.tls.enabled"
		}
		w.s.trouble(w.addr, fmt.Errorf("no connect response: %w%s", err, hint))
		if w.known {
			w.s.hungUp(w.addr, err)
		}
		return n, err
	}
	w.packet = append(w.packet, b[:n]...)
	h, complete, err := parseHandshake(w.packet)
	if err != nil {
		w.s.trouble(w.addr, err)
		return 0, err
	}
	if complete {
		w.shaken, w.packet = true, nil
		w.Conn.SetDeadline(time.Time{})
		w.s.shook(h, w.addr, w.sent)
	}
	return n, nil
}

// SetReadDeadline keeps the limit of the handshake: go-zookeeper sets none at all for the body of the response.
func (w *wireConn) SetReadDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.shaken && (t.IsZero() || t.After(w.limit)) {
		t = w.limit
	}
	return w.Conn.SetReadDeadline(t)
}

// SetWriteDeadline keeps the limit of the handshake.
func (w *wireConn) SetWriteDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.shaken && (t.IsZero() || t.After(w.limit)) {
		t = w.limit
	}
	return w.Conn.SetWriteDeadline(t)
}

func (w *wireConn) Close() error {
	w.s.dropped(w)
	return w.Conn.Close()
}

// hosts hands the servers to go-zookeeper, in an order of its own for each session. Names are passed on unresolved, so
// that every dial resolves them again.
type hosts struct {
	s       *Session
	servers []string
	next    int
}

func (h *hosts) Init([]string) error { return nil }
func (h *hosts) Len() int            { return len(h.servers) }
func (h *hosts) Connected()          {}

// Next never asks go-zookeeper to wait, as the dialer does that, except when all is over: then it is the only way out of
// the loop that connects.
func (h *hosts) Next() (server string, wait bool) {
	server = h.servers[h.next%len(h.servers)]
	h.next++
	return server, h.s.Err() != nil
}
