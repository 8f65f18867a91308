package zk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/boottime"
)

// DialFunc opens a connection to a server, like [net.Dialer.DialContext].
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// errSecondSession is returned to go-zookeeper when it tries to open a second session: the requests that it has queued
// must not run in a session other than the one they were made for.
var errSecondSession = errors.New("refused: a client opens only one session")

// dial is go-zookeeper's dialer. The library calls it from one goroutine, once per attempt.
func (s *Session) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	s.mu.Lock()
	s.lastDial = time.Now() // before the backoff, which may take longer than the limit of stuck
	s.mu.Unlock()
	if err := s.backOff(); err != nil {
		return nil, err
	}
	limit := s.handshakeTimeout()
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	login, err := s.opt.Access.SASL.start(ctx, addr)
	var conn net.Conn
	if err == nil {
		conn, err = s.opt.dialer.dial(ctx, network, addr)
	}
	if err != nil {
		s.noteServerError(addr, err)
		return nil, err
	}
	w := &wireConn{Conn: conn, s: s, addr: addr, login: login, deadline: time.Now().Add(limit),
		sent: make(map[int32]int32)}
	if !s.setConn(w) {
		conn.Close()
		return nil, s.Err()
	}
	return w, nil
}

// maxPace limits the pace until a server has answered and T is known.
const maxPace = 15 * time.Second

// pace returns the duration that scales all reconnect timing: the negotiated T, since the requested one may be far from
// it. The caller holds s.mu.
func (s *Session) pace() time.Duration {
	if s.handshake.timeout > 0 {
		return s.handshake.timeout
	}
	return min(s.opt.Timeout, maxPace)
}

// handshakeTimeout returns the time limit for connecting and the handshake together. go-zookeeper allows ten times 2/3
// T for each half of it, which is longer than any lease.
func (s *Session) handshakeTimeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.pace()/3, 200*time.Millisecond)
}

// backOff waits before a reconnect: a random time, so that the members of a fleet do not reconnect at the same
// time, and longer while no server answers.
func (s *Session) backOff() error {
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
		// At most T/4 in total: a leader that works on without ZooKeeper must be back before its session expires.
		step := min(50*time.Millisecond<<min(rounds-1, 5), time.Second, pace/5)
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

// wireConn is the socket under go-zookeeper. It parses the handshake, enforces its deadline, and refuses to open a
// second session.
type wireConn struct {
	net.Conn
	s        *Session
	addr     string
	login    *saslLogin // nil for none
	deadline time.Time  // for the handshake

	packet []byte // the last one that was received
	ready  []byte // what the library has not read of it
	broken error  // why the connection ended, once it has

	mu            sync.Mutex
	requested     bool
	requestedAt   time.Duration // when the connect request was sent, by CLOCK_BOOTTIME
	sawData       bool          // the connect request has a zxid: the client has seen data
	handshakeDone bool
	timeout       time.Duration   // the session timeout that the server has granted
	renewedAt     time.Duration   // when the last RENEW was sent
	sent          map[int32]int32 // the operations without a reply, by xid
}

func (w *wireConn) Write(b []byte) (int, error) {
	w.mu.Lock()
	requested := w.requested
	w.requested = true
	xid, op := requestHead(b)
	if requested {
		w.sent[xid] = op
	}
	now, ping := boottime.Now(), op == wireOpPing
	if requested && !ping && w.s.renewer.takeSending() {
		w.renewedAt = now
	}
	needless := requested && ping && w.renewedAt != 0 && now-w.renewedAt < w.timeout/6
	w.mu.Unlock()
	if needless { // RENEWs come so often that the server hears enough of this session; other requests do not
		return len(b), nil
	}
	if requested {
		w.sendOrClose(b)
		return len(b), nil
	}
	if err := w.s.Err(); err != nil {
		return 0, err
	}
	// The first write is the connect request, in one piece.
	id, zxid, ok := parseConnect(b)
	if !ok || (id == 0 && w.s.SessionID() != 0) {
		w.s.markGone()
		w.s.end(fmt.Errorf("%w: expired", cluster.ErrSessionEnded))
		return 0, errSecondSession
	}
	w.mu.Lock()
	w.requestedAt, w.sawData = boottime.Now(), zxid > 0
	w.mu.Unlock()
	n, err := w.Conn.Write(b)
	if err != nil {
		w.s.noteServerError(w.addr, err)
	}
	return n, err
}

// sendOrClose writes a request, or closes the socket. It never returns an error: go-zookeeper deadlocks if sending
// credentials fails. The library notices a closed socket when it reads, and then fails all pending requests. After the
// end of the session nothing is sent, in particular not the library's own closeSession: that would pass leadership on
// while the work of a session that ended only on this side may still run (S1).
func (w *wireConn) sendOrClose(b []byte) {
	if w.s.Err() == nil {
		if _, err := w.Conn.Write(b); err == nil {
			return
		}
	}
	w.Conn.Close()
}

// Read gives the library one packet after the other. After the end of the connection it gives events that make the
// library forget its watches: a session reads everything again after a reconnect. The library would also set all
// watches again, and read the zxid for that while another goroutine of its own already writes it. Only the library's
// reader calls Read.
func (w *wireConn) Read(b []byte) (int, error) {
	if len(w.ready) == 0 && w.broken == nil {
		w.ready, w.broken = w.receive()
	}
	if len(w.ready) == 0 {
		return 0, w.broken
	}
	n := copy(b, w.ready)
	w.ready = w.ready[n:]
	return n, nil
}

// receive returns the next packet, or what the library still reads and the reason why there is none.
func (w *wireConn) receive() ([]byte, error) {
	w.mu.Lock()
	shaken := w.handshakeDone
	w.mu.Unlock()
	if !shaken {
		return w.receiveHandshake()
	}
	var err error
	if w.packet, err = receivePacket(w.Conn, w.packet, replyHeaderLen, maxReply); err == nil {
		err = w.noteReply(w.packet)
	}
	if err == nil {
		return w.packet, nil
	}
	if errors.Is(err, errNotZooKeeper) {
		w.s.noteServerError(w.addr, err)
	}
	return w.s.unwatchAll(), err
}

func (w *wireConn) receiveHandshake() ([]byte, error) {
	packet, h, err := receiveHandshake(w.Conn)
	if err != nil {
		w.s.noteServerError(w.addr, w.explain(err))
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.sawData {
			w.s.noteHangUp(w, err)
		}
		return nil, err
	}
	w.mu.Lock()
	requestedAt := w.requestedAt
	w.mu.Unlock()
	if err := w.s.noteGranted(h, w.addr, requestedAt); err != nil {
		w.s.end(err)
		return nil, err
	}
	if err := w.authenticate(h); err != nil {
		w.s.noteServerError(w.addr, err)
		return nil, err
	}
	w.s.handshakeDone(h)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handshakeDone, w.timeout = true, h.timeout
	w.Conn.SetDeadline(time.Time{})
	return packet, nil
}

// authenticate authenticates the connection by SASL, so that the library never sends a request without that, and
// finds out who it is to the server. An error is the end of the connection.
func (w *wireConn) authenticate(h handshake) error {
	if h.session == 0 { // the session has expired: the server hangs up
		return nil
	}
	if err := w.Conn.SetDeadline(w.deadline); err != nil {
		return err
	}
	if w.login != nil {
		if err := w.login.authenticate(w.Conn); err != nil {
			return err
		}
	}
	own, err := w.s.identify(w.Conn, w.login)
	if err != nil {
		return err
	}
	return w.s.noteIdentities(own)
}

// explain adds to the reason why there was no connect response the address, and what a server that hangs up says about
// that. It asks only while there is no session yet: the reason is not shown later, and the time counts then.
func (w *wireConn) explain(err error) error {
	if at := w.RemoteAddr(); at != nil && at.String() != w.addr {
		err = fmt.Errorf("%s: %w", at, err)
	}
	if w.s.SessionID() != 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(w.s.ctx, explainLimit)
	defer cancel()
	return explainHangUp(ctx, w.dialAgain(), w.s.opt.Access.TLS.Enabled, w.addr, err)
}

// dialAgain returns a function that connects to the address that this connection leads to.
func (w *wireConn) dialAgain() DialFunc {
	return w.s.opt.dialer.at(w.RemoteAddr().String())
}

// noteReply checks a reply or an event. A confirmed closeSession is the end of the session.
func (w *wireConn) noteReply(packet []byte) error {
	xid, code := int32(binary.BigEndian.Uint32(packet[4:])), binary.BigEndian.Uint32(packet[16:])
	op := int32(xidEvent)
	if xid != xidEvent {
		var known bool
		w.mu.Lock()
		op, known = w.sent[xid]
		delete(w.sent, xid)
		w.mu.Unlock()
		if !known && xid >= 0 { // the library may be about to send a request with that xid, and would take it for the reply
			return fmt.Errorf("%w: a reply to no request", errNotZooKeeper)
		}
	}
	switch {
	case code != 0 && op != xidEvent:
		return nil
	case op == wireOpClose:
		w.s.markGone()
	}
	return checkReply(op, packet[4+replyHeaderLen:])
}

// SetReadDeadline sets the deadline for reads, but never later than that of the handshake until it is done:
// go-zookeeper sets no deadline at all for the body of the connect response.
func (w *wireConn) SetReadDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Conn.SetReadDeadline(w.limit(t))
}

// SetWriteDeadline sets the deadline for writes, but never later than that of the handshake until it is done.
func (w *wireConn) SetWriteDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Conn.SetWriteDeadline(w.limit(t))
}

// limit returns a deadline, or that of the handshake, if that is earlier. The caller holds w.mu.
func (w *wireConn) limit(t time.Time) time.Time {
	if !w.handshakeDone && (t.IsZero() || t.After(w.deadline)) {
		return w.deadline
	}
	return t
}

func (w *wireConn) Close() error {
	w.s.connClosed(w)
	return w.Conn.Close()
}

// hostProvider gives go-zookeeper the servers, in the order that the session has shuffled them into. It does not
// resolve names, so that every dial resolves them again.
type hostProvider struct {
	s *Session

	// The session's mutex guards the following.
	servers []string
	next    int
}

func (h *hostProvider) Init([]string) error { return nil }
func (h *hostProvider) Connected()          {}
func (h *hostProvider) swap(i, j int)       { h.servers[i], h.servers[j] = h.servers[j], h.servers[i] }

// Len returns the number of servers.
func (h *hostProvider) Len() int {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return len(h.servers)
}

// Next returns the next server. It never asks go-zookeeper to wait, because the dialer does that, except after the end
// of the session: then waiting is the only way out of the library's connect loop.
func (h *hostProvider) Next() (server string, wait bool) {
	h.s.mu.Lock()
	server = h.servers[h.next%len(h.servers)]
	h.next++
	h.s.mu.Unlock()
	return server, h.s.Err() != nil
}
