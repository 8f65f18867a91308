package zkstore

import (
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"
)

// aged is a server whose data becomes older than what its client has seen.
type aged struct {
	*scripted
	// attach answers a client that has seen nothing and asks for the session.
	attach func(c net.Conn)

	mu       sync.Mutex
	older    bool
	since    time.Time
	attached []time.Duration // when that was, since then
}

const agedTimeout = time.Second

func newAged(t *testing.T, attach func(c net.Conn)) *aged {
	a := &aged{attach: attach}
	a.scripted = script(t, func(_ *scripted, c net.Conn) {
		req, err := packet(c)
		if err != nil {
			return
		}
		a.mu.Lock()
		older, id := a.older, int64(0)
		if older && connectRequestZxid(req) == 0 {
			id, _ = connectRequestSession(req)
			a.attached = append(a.attached, time.Since(a.since))
		}
		a.mu.Unlock()
		switch {
		case !older:
			c.Write(response(0x1234, agedTimeout))
			a.answer(c)
		case id != 0:
			a.attach(c)
		}
	})
	return a
}

// answer answers requests with an error at zxid 5, until the server's data becomes older.
func (a *aged) answer(c net.Conn) {
	for {
		req, err := packet(c)
		if err != nil {
			return
		}
		b := append(binary.BigEndian.AppendUint32(nil, replyHeaderLen), req[4:8]...)
		if isCloseRequest(req) {
			c.Write(append(b, make([]byte, 12)...))
			return
		}
		b = binary.BigEndian.AppendUint64(b, 5)
		code := int32(-101) // no such znode
		c.Write(binary.BigEndian.AppendUint32(b, uint32(code)))
	}
}

func (a *aged) attaches() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.attached
}

// grow makes the server forget what a session has seen, and hangs up on it.
func (a *aged) grow(t *testing.T) *Session {
	t.Helper()
	var conn net.Conn
	s := open(t, Options{Servers: []string{a.addr}, Timeout: agedTimeout, Dial: kept(&conn)})
	s.Get(t.Context(), "/", false)
	a.mu.Lock()
	a.older, a.since = true, time.Now()
	a.mu.Unlock()
	conn.Close()
	return s
}

func TestSessionThatOlderServersDoNotHaveIsGivenUp(t *testing.T) {
	a := newAged(t, func(c net.Conn) { c.Write(encodeResponse(0, 0, make([]byte, passwordLen))) })
	s := a.grow(t)
	eventually(t, "the end of the session", ended(s))
	contains(t, s.Err(), "no longer have the session", "wiped, or restored from a backup")
	// Before that a lease may be in force.
	if first := a.attaches()[0]; first < agedTimeout {
		t.Errorf("the servers were asked for the session after %s of %s", first, agedTimeout)
	}
	if n := a.fresh.Load(); n != 0 {
		t.Errorf("%d sessions were asked for", n)
	}
}

// A server that has the session may be a follower that lags behind: it is given time.
func TestSessionThatOlderServersHaveIsGivenUpLater(t *testing.T) {
	a := newAged(t, func(c net.Conn) {
		c.Write(response(0x1234, agedTimeout))
		pong(c)
	})
	s := a.grow(t)
	eventually(t, "the end of the session", ended(s))
	contains(t, s.Err(), "refuse the session", "wiped, or restored from a backup")
	if n := len(a.attaches()); n != probesBeforeEnd {
		t.Errorf("given up after %d probes", n)
	}
}

// Servers without a quorum hang up as well. That proves nothing: the session may go on when they have one again.
func TestSessionOutlivesServersWithoutAQuorum(t *testing.T) {
	a := newAged(t, func(net.Conn) {})
	s := a.grow(t)
	eventually(t, "three attempts to find out", func() bool {
		all := a.attaches()
		return len(all) >= 3
	})
	if err := s.Err(); err != nil {
		t.Errorf("the session ended: %v", err)
	}
	a.mu.Lock()
	a.older = false
	a.mu.Unlock()
	eventually(t, "the reconnect or the end", func() bool { return s.Connected() || s.Err() != nil })
	if err := s.Err(); err != nil {
		t.Errorf("the session ended: %v", err)
	}
}
