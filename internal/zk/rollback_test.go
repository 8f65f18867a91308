package zk

import (
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"
)

// rolledBackServer is a server whose data is rolled back to before what its client has seen.
type rolledBackServer struct {
	*scriptedServer
	// attach answers a client that has seen nothing and requests the session.
	attach func(c net.Conn)

	mu       sync.Mutex
	older    bool
	since    time.Time
	attached []time.Duration // when clients attached, since the rollback
}

const rollbackTimeout = time.Second

func newRolledBackServer(t *testing.T, attach func(c net.Conn)) *rolledBackServer {
	a := &rolledBackServer{attach: attach}
	a.scriptedServer = newScriptedServer(t, func(_ *scriptedServer, c net.Conn) {
		req, err := readPacket(c)
		if err != nil {
			return
		}
		a.mu.Lock()
		older, id := a.older, int64(0)
		if session, zxid, ok := parseConnect(req); older && ok && zxid == 0 {
			id = session
			a.attached = append(a.attached, time.Since(a.since))
		}
		a.mu.Unlock()
		switch {
		case !older:
			c.Write(connectResponse(0x1234, rollbackTimeout))
			a.answer(c)
		case id != 0:
			a.attach(c)
		}
	})
	return a
}

// answer answers requests with an error at zxid 5 until the server's data is rolled back.
func (a *rolledBackServer) answer(c net.Conn) {
	answer(c, func(_ []byte, xid, op int32) []byte {
		if op == wireOpClose {
			return encodePacket(xid, 0)
		}
		b := encodePacket(xid, -101) // no such znode
		binary.BigEndian.PutUint64(b[8:], 5)
		return b
	})
}

func (a *rolledBackServer) attachTimes() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.attached
}

// rollBack opens a session, rolls the server's data back and closes the connection.
func (a *rolledBackServer) rollBack(t *testing.T) *Session {
	t.Helper()
	var conn net.Conn
	s := open(t, Options{Servers: []string{a.addr}, Timeout: rollbackTimeout, dialer: dialBy(keepFirstConn(&conn))})
	s.Get(t.Context(), "/", false)
	a.mu.Lock()
	a.older, a.since = true, time.Now()
	a.mu.Unlock()
	conn.Close()
	return s
}

func TestSessionUnknownToRolledBackServersEnds(t *testing.T) {
	a := newRolledBackServer(t, func(c net.Conn) { c.Write(encodeResponse(0, 0, make([]byte, passwordLen))) })
	s := a.rollBack(t)
	eventually(t, "the end of the session", ended(s))
	contains(t, s.Err(), "no longer have the session", "wiped, or restored from a backup")
	// Before that a lease may be in force.
	if first := a.attachTimes()[0]; first < rollbackTimeout {
		t.Errorf("the first probe came after %s of %s", first, rollbackTimeout)
	}
	if n := a.newSessions.Load(); n != 0 {
		t.Errorf("%d new sessions were requested", n)
	}
}

// Servers without a quorum hang up too. That proves nothing: the session may continue when they have a quorum again.
func TestSessionSurvivesServersWithoutAQuorum(t *testing.T) {
	a := newRolledBackServer(t, func(net.Conn) {})
	s := a.rollBack(t)
	eventually(t, "three probes", func() bool {
		all := a.attachTimes()
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
