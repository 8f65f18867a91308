package zkstore

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// recorder is a connection that keeps what is written.
type recorder struct {
	net.Conn
	written         bytes.Buffer
	readBy, writeBy time.Time
}

func (r *recorder) SetReadDeadline(t time.Time) error  { r.readBy = t; return nil }
func (r *recorder) SetWriteDeadline(t time.Time) error { r.writeBy = t; return nil }

func (r *recorder) Write(b []byte) (int, error) { return r.written.Write(b) }
func (r *recorder) Close() error                { return nil }

// The library asks for a new session whenever it has forgotten the first one. Requests that were made for the first
// session would be sent in it, so nothing of it gets to the server, and the session is over.
func TestARequestForASecondSessionIsRefused(t *testing.T) {
	server := script(t, serve)
	s := open(t, Options{Servers: []string{server.addr}, Timeout: 2 * time.Second})

	again := &recorder{}
	request := encodeConnect(2*time.Second, s.SessionID(), make([]byte, passwordLen))
	if n, err := (&wireConn{Conn: again, s: s}).Write(request); err != nil || n != len(request) || s.Err() != nil {
		t.Fatalf("a reconnect: %d bytes, %v; the session: %v", n, err, s.Err())
	}
	second := &recorder{}
	if _, err := (&wireConn{Conn: second, s: s}).Write(encodeConnect(2*time.Second, 0, make([]byte, passwordLen))); !errors.Is(err, errSecondSession) {
		t.Errorf("a second session: %v", err)
	}
	if second.written.Len() > 0 {
		t.Errorf("%d bytes were sent for a second session", second.written.Len())
	}
	if !errors.Is(s.Err(), cluster.ErrSessionEnded) {
		t.Errorf("the session goes on: %v", s.Err())
	}
	s.mu.Lock()
	gone := s.gone
	s.mu.Unlock()
	if !gone {
		t.Error("the library has learnt that the session is over, and it will be closed all the same")
	}
	closeSession(t, s)
	if n := server.fresh.Load(); n != 1 {
		t.Errorf("%d sessions were asked for", n)
	}
}

// Until the handshake is over no deadline is later than its limit, whatever the library asks for; after it they are the library's.
func TestNothingOutlastsTheLimitOfTheHandshake(t *testing.T) {
	limit := time.Now().Add(time.Minute)
	for _, shaken := range []bool{false, true} {
		for name, asked := range map[string]time.Time{"none": {}, "earlier": limit.Add(-time.Second), "later": limit.Add(time.Second)} {
			want := asked
			if !shaken && name != "earlier" {
				want = limit
			}
			r := &recorder{}
			w := &wireConn{Conn: r, deadline: limit, handshakeDone: shaken}
			w.SetReadDeadline(asked)
			w.SetWriteDeadline(asked)
			if !r.readBy.Equal(want) || !r.writeBy.Equal(want) {
				t.Errorf("%s, shaken %t: %s and %s, want %s", name, shaken, r.readBy, r.writeBy, want)
			}
		}
	}
}

// A close that the server has confirmed is not asked for again.
func TestAConfirmedCloseIsNotRepeated(t *testing.T) {
	server := script(t, serve)
	s := open(t, Options{Servers: []string{server.addr}, Timeout: 2 * time.Second})
	closeSession(t, s)
	if n := server.conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// An event uses up the watches that it belongs to, and no others.
func TestEventsUseUpTheirWatches(t *testing.T) {
	for of, left := range map[zk.EventType][]bool{ // that of the data, that of the children
		zk.EventNodeCreated: {false, true}, zk.EventNodeDataChanged: {false, true},
		zk.EventNodeChildrenChanged: {true, false}, zk.EventNodeDeleted: {false, false},
	} {
		s := &Session{wake: make(chan struct{}, 1), armed: map[watch]bool{{"/a", false}: true, {"/a", true}: true, {"/b", false}: true}}
		s.event(zk.Event{Type: of, Path: "/a"})
		if s.armed[watch{"/a", false}] != left[0] || s.armed[watch{"/a", true}] != left[1] || !s.armed[watch{"/b", false}] {
			t.Errorf("%s leaves %v", of, s.armed)
		}
		if h := s.TakeHints(); !h.Has("/a") || h.Has("/b") || len(s.wake) != 1 {
			t.Errorf("%s hints %v", of, h)
		}
	}
}
