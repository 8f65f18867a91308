package zk

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

const anotherSession = 0x9999

// openAnother opens another session than the requested one, and passes on whatever is sent after that.
func openAnother(sent chan<- []byte) func(*scriptedServer, net.Conn) {
	return func(s *scriptedServer, c net.Conn) {
		if s.greet(c, anotherSession) != nil {
			return
		}
		rest, _ := io.ReadAll(c)
		sent <- rest
	}
}

// A server that opens another session at a reconnect ends the session before anything is sent: this daemon's ephemerals
// belong to the old one, which may live on, so only Close ends that on the server, after the work.
func TestAnotherSessionAtAReconnectIsTheEnd(t *testing.T) {
	t.Parallel()
	sent := make(chan []byte, 1)
	first := make(chan net.Conn, 1)
	server := newScriptedServer(t, func(s *scriptedServer, c net.Conn) {
		first <- c
		serve(s, c)
	}, openAnother(sent), serve)
	s := open(t, Options{Servers: []string{server.addr}, Timeout: 2 * time.Second})
	(<-first).Close()
	eventually(t, "the end of the session", ended(s))
	contains(t, s.Err(), "another session", "0x9999", "0x1234", server.addr)
	if rest := <-sent; len(rest) > 0 || !errors.Is(s.Err(), cluster.ErrSessionEnded) || s.SessionID() != 0x1234 {
		t.Errorf("%d bytes were sent in another session; session 0x%x: %v", len(rest), s.SessionID(), s.Err())
	}
	if n := server.conns.Load(); n != 2 {
		t.Errorf("%d connections before Close", n)
	}
	closeSession(t, s)
	if n := server.conns.Load(); n != 3 {
		t.Errorf("the old session was not closed: %d connections", n)
	}
}

// A server that opens another session has not said that the old one is over: the next server is asked to close it.
func TestCloserGoesOnAfterAnotherSession(t *testing.T) {
	t.Parallel()
	sent := make(chan []byte, 9)
	other := newScriptedServer(t, openAnother(sent))
	right := newScriptedServer(t, serve)
	handle := SessionHandle{Servers: []string{other.addr, right.addr}, Session: 0x1234, Password: make([]byte, passwordLen)}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := CloseSession(ctx, handle); err != nil || right.conns.Load() != 1 {
		t.Errorf("%v, %d connections to the right server", err, right.conns.Load())
	}
	handle.Servers = handle.Servers[:1]
	err := CloseSession(ctx, handle)
	contains(t, err, other.addr, "another session")
	if errors.Is(err, ErrNoSuchSession) {
		t.Errorf("the session counts as closed: %v", err)
	}
	for range 2 {
		if rest := <-sent; len(rest) > 0 {
			t.Errorf("%d bytes were sent in another session", len(rest))
		}
	}
}
