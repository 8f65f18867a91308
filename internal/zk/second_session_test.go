package zk

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// recordingConn is a connection that records what is written.
type recordingConn struct {
	net.Conn
	written bytes.Buffer
}

func (r *recordingConn) Write(b []byte) (int, error) { return r.written.Write(b) }
func (r *recordingConn) Close() error                { return nil }

// The library requests a new session whenever it has lost the first one. It would send the requests that were made for the
// first session in it, so nothing may reach the server, and the session must end.
func TestSecondSessionIsRefused(t *testing.T) {
	server := newScriptedServer(t, serve)
	s := open(t, Options{Servers: []string{server.addr}, Timeout: 2 * time.Second})

	again := &recordingConn{}
	request := encodeConnect(2*time.Second, s.SessionID(), make([]byte, passwordLen))
	if n, err := (&wireConn{Conn: again, s: s}).Write(request); err != nil || n != len(request) || s.Err() != nil {
		t.Fatalf("a reconnect: %d bytes, %v; the session: %v", n, err, s.Err())
	}
	second := &recordingConn{}
	if _, err := (&wireConn{Conn: second, s: s}).Write(encodeConnect(2*time.Second, 0, make([]byte, passwordLen))); !errors.Is(err, errSecondSession) {
		t.Errorf("a second session: %v", err)
	}
	if second.written.Len() > 0 {
		t.Errorf("%d bytes were sent for a second session", second.written.Len())
	}
	if !errors.Is(s.Err(), cluster.ErrSessionEnded) {
		t.Errorf("the session has not ended: %v", s.Err())
	}
	s.mu.Lock()
	gone := s.gone
	s.mu.Unlock()
	if !gone {
		t.Error("the session has expired, but Close would still close it")
	}
	closeSession(t, s)
	if n := server.newSessions.Load(); n != 1 {
		t.Errorf("%d new sessions were requested", n)
	}
}

// A close that the server has confirmed is not repeated.
func TestConfirmedCloseIsNotRepeated(t *testing.T) {
	server := newScriptedServer(t, serve)
	s := open(t, Options{Servers: []string{server.addr}, Timeout: 2 * time.Second})
	closeSession(t, s)
	if n := server.conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// An event disarms the watches that it belongs to, and no others.
func TestEventsDisarmTheirWatches(t *testing.T) {
	for of, left := range map[zk.EventType][]bool{ // whether the data watch and the child watch stay armed
		zk.EventNodeCreated: {false, true}, zk.EventNodeDataChanged: {false, true},
		zk.EventNodeChildrenChanged: {true, false}, zk.EventNodeDeleted: {false, false},
	} {
		s := bareSession(t, io.Discard)
		s.armed = map[watch]*armedWatch{{"/a", false}: {}, {"/a", true}: {}, {"/b", false}: {}}
		s.event(zk.Event{Type: of, Path: "/a"})
		if (s.armed[watch{"/a", false}] != nil) != left[0] || (s.armed[watch{"/a", true}] != nil) != left[1] || s.armed[watch{"/b", false}] == nil {
			t.Errorf("%s leaves %v", of, s.armed)
		}
		if h := s.TakeHints(); !h.Has("/a") || h.Has("/b") || len(s.own.wake) != 1 {
			t.Errorf("%s hints %v", of, h)
		}
	}
}
