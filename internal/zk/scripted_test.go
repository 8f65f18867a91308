package zk

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// scriptedServer is a server that runs one script for each connection, and the last one for all further connections.
type scriptedServer struct {
	addr string
	// fresh counts the connect requests for a new session.
	newSessions atomic.Int32
	conns       atomic.Int32
}

func newScriptedServer(t *testing.T, scripts ...func(s *scriptedServer, c net.Conn)) *scriptedServer {
	return newScriptedServerAt(t, "127.0.0.1:0", scripts...)
}

func newScriptedServerAt(t *testing.T, addr string, scripts ...func(s *scriptedServer, c net.Conn)) *scriptedServer {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &scriptedServer{addr: l.Addr().String()}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			n := int(s.conns.Add(1)) - 1
			wg.Go(func() {
				defer c.Close()
				scripts[min(n, len(scripts)-1)](s, c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return s
}

func readPacket(c net.Conn) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(c, head); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head))
	_, err := io.ReadFull(c, body)
	return append(head, body...), err
}

// connectResponse returns a connect response.
func connectResponse(session int64, timeout time.Duration) []byte {
	return encodeResponse(session, timeout, make([]byte, passwordLen))
}

func encodeResponse(session int64, timeout time.Duration, password []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(20+len(password)))
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(timeout.Milliseconds()))
	b = binary.BigEndian.AppendUint64(b, uint64(session))
	b = binary.BigEndian.AppendUint32(b, uint32(len(password)))
	return append(b, password...)
}

// greet reads the connect request and grants a session.
func (s *scriptedServer) greet(c net.Conn, session int64) error {
	req, err := readPacket(c)
	if err != nil {
		return err
	}
	if id, _, ok := parseConnect(req); ok && id == 0 {
		s.newSessions.Add(1)
	}
	_, err = c.Write(connectResponse(session, 2*time.Second))
	return err
}

func staySilent(_ *scriptedServer, c net.Conn) { io.Copy(io.Discard, c) }

// serve answers pings and closeSession, and nothing else.
func serve(s *scriptedServer, c net.Conn) {
	if s.greet(c, 0x1234) != nil {
		return
	}
	answerPings(c)
}

func answerPings(c net.Conn) {
	answer(c, func(_ []byte, xid, op int32) []byte {
		if op == wireOpPing || op == wireOpClose {
			return encodePacket(xid, 0)
		}
		return nil
	})
}

// answer answers each request, until the session is closed.
func answer(c net.Conn, reply func(req []byte, xid, op int32) []byte) {
	for {
		req, err := readPacket(c)
		if err != nil {
			return
		}
		xid, op := requestHead(req)
		c.Write(reply(req, xid, op))
		if op == wireOpClose {
			return
		}
	}
}

// replies grants a session, and answers its requests.
func replies(reply func(xid, op int32) []byte) func(*scriptedServer, net.Conn) {
	return func(s *scriptedServer, c net.Conn) {
		if s.greet(c, 0x1234) == nil {
			answer(c, func(_ []byte, xid, op int32) []byte { return reply(xid, op) })
		}
	}
}

func TestSilentOrPartialHandshakeTimesOut(t *testing.T) {
	half := func(_ *scriptedServer, c net.Conn) {
		readPacket(c)
		c.Write(connectResponse(0x1234, time.Second)[:13])
		staySilent(nil, c)
	}
	for name, bad := range map[string]func(*scriptedServer, net.Conn){"silent": staySilent, "half a response": half} {
		t.Run(name, func(t *testing.T) {
			server := newScriptedServer(t, bad, serve)
			began := time.Now()
			s := open(t, Options{Servers: []string{server.addr}, Timeout: 3 * time.Second})
			// The library alone would wait ten times 2/3 T, or forever.
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the second attempt came after %s", took)
			}
			if s.SessionID() != 0x1234 {
				t.Errorf("session %x", s.SessionID())
			}
		})
	}
}

func TestNotAZooKeeperServer(t *testing.T) {
	server := newScriptedServer(t, func(_ *scriptedServer, c net.Conn) {
		readPacket(c)
		c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := Open(ctx, Options{Servers: []string{server.addr}, Timeout: 3 * time.Second})
	contains(t, err, "not a ZooKeeper server", server.addr)
}

// A server that sends an invalid length is disconnected, and the session reconnects. go-zookeeper alone would panic.
func TestReplyWithInvalidLengthIsRejected(t *testing.T) {
	for name, reply := range map[string][]byte{
		"an event shorter than its header": {0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff}, "empty": {0, 0, 0, 0}, "of gigabytes": {0xff, 0xff, 0xff, 0xff}, "of two": {0x7f, 0xff, 0xff, 0xff, 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := newScriptedServer(t, func(s *scriptedServer, c net.Conn) {
				if s.greet(c, 0x1234) == nil {
					c.Write(reply)
					staySilent(s, c)
				}
			}, serve)
			s := open(t, Options{Servers: []string{server.addr}, Timeout: 4 * time.Second})
			eventually(t, "a second connection", func() bool { return server.conns.Load() >= 2 && s.Connected() })
			if s.Err() != nil {
				t.Errorf("the session ended: %v", s.Err())
			}
		})
	}
}

func TestFrozenAfterTheHandshake(t *testing.T) {
	server := newScriptedServer(t, func(s *scriptedServer, c net.Conn) {
		if s.greet(c, 0x1234) == nil {
			staySilent(s, c)
		}
	}, serve)
	s := open(t, Options{Servers: []string{server.addr}, Timeout: 2 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := s.Get(ctx, "/", true); err == nil {
		t.Error("a read was answered")
	}
	eventually(t, "a second connection", func() bool { return server.conns.Load() >= 2 && s.Connected() })
	if s.Err() != nil {
		t.Errorf("the session ended: %v", s.Err())
	}
}

// If sending credentials fails on a reconnect, the library deadlocks, so the session must end.
func TestStuckLibraryIsAbandoned(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		timeout, granted, lost time.Duration // lost: how long ago the connection was lost
		dialed                 time.Duration // relative to the loss
		connected, stuck       bool
	}{
		"not lost":                      {timeout: time.Second},
		"lost long ago":                 {timeout: time.Second, lost: time.Minute, dialed: -1, stuck: true},
		"connected again":               {timeout: time.Second, lost: time.Minute, dialed: -1, connected: true},
		"dialed since":                  {timeout: time.Second, lost: time.Minute, dialed: 1},
		"dialed at the same time":       {timeout: time.Second, lost: time.Minute},
		"after more than half a second": {timeout: time.Second, lost: 500*time.Millisecond + 1, dialed: -1, stuck: true},
		"after more than a third":       {timeout: 9 * time.Second, lost: 3*time.Second + 1, dialed: -1, stuck: true},
		"after more than a third of the granted timeout": {timeout: 9 * time.Second, granted: 3 * time.Second, lost: time.Second + 1, dialed: -1, stuck: true},
	} {
		s := &Session{opt: Options{Timeout: c.timeout}, handshake: handshake{timeout: c.granted}}
		if c.lost != 0 {
			s.lostAt = now.Add(-c.lost)
			s.lastDial = s.lostAt.Add(c.dialed)
		}
		if c.connected {
			s.conn = new(wireConn)
		}
		if s.stuck(now) != c.stuck {
			t.Errorf("%s: stuck: %t", name, !c.stuck)
		}
	}
}

// A znode that is created between the failed read and the setting of the existence watch is read.
func TestZnodeCreatedDuringARead(t *testing.T) {
	const (
		statLen = 68
		noNode  = -101
		noAuth  = -102
	)
	for code, want := range map[int32]error{0: nil, noAuth: cluster.ErrNoAuth, noNode: cluster.ErrNoNode} {
		var reads atomic.Int32
		server := newScriptedServer(t, replies(func(xid, op int32) []byte {
			switch {
			case op == 3: // exists
				return encodePacket(xid, 0, make([]byte, statLen)...)
			case op == 4 && reads.Add(1) == 1: // getData
				return encodePacket(xid, noNode)
			case op == 4 && code == 0:
				return encodePacket(xid, 0, append([]byte{0, 0, 0, 1, 'x'}, make([]byte, statLen)...)...)
			case op == 4:
				return encodePacket(xid, code)
			default:
				return encodePacket(xid, 0)
			}
		}))
		s := open(t, Options{Servers: []string{server.addr}, Timeout: 2 * time.Second})
		data, _, err := s.Get(t.Context(), "/a", true)
		if !errors.Is(err, want) || (err == nil) != (string(data) == "x") || reads.Load() != 2 {
			t.Errorf("%v: %q, %v, after %d reads", want, data, err, reads.Load())
		}
	}
}
