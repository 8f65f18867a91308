package zk

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/faultproxy"
)

func isMissing(t *testing.T, path string) bool {
	t.Helper()
	_, _, err := open(t, Options{}).Get(t.Context(), path, false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		t.Fatal(err)
	}
	return err != nil
}

// Close ends the session on the server regardless of the state of the connection.
func TestCloseEndsTheSessionOnTheServer(t *testing.T) {
	for name, hurt := range map[string]func(*testing.T, *faultproxy.Proxy, *Session, cluster.Paths){
		"connected": func(*testing.T, *faultproxy.Proxy, *Session, cluster.Paths) {},
		"connection lost": func(t *testing.T, px *faultproxy.Proxy, s *Session, _ cluster.Paths) {
			px.SetMode(faultproxy.Refuse)
			eventually(t, "the loss of the connection", func() bool { return !s.Connected() })
			px.SetMode(faultproxy.Pass)
		},
		"ended by a write without a reply": func(t *testing.T, px *faultproxy.Proxy, s *Session, p cluster.Paths) {
			px.SetMode(faultproxy.HalfOpen)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := s.Do(ctx, create(p.Root+"/late", true)); !errors.Is(err, cluster.ErrUnknown) {
				t.Errorf("without a reply: %v", err)
			}
			px.SetMode(faultproxy.Pass)
		},
	} {
		t.Run(name, func(t *testing.T) {
			px := faultproxy.ForTest(t, shared.Addr())
			s := open(t, Options{Servers: []string{px.Addr()}, Timeout: 60 * time.Second})
			p := root(t, s)
			if _, err := s.Do(t.Context(), create(p.Root+"/mine", true)); err != nil {
				t.Fatal(err)
			}
			hurt(t, px, s, p)
			closeSession(t, s)
			if !isMissing(t, p.Root+"/mine") || !isMissing(t, p.Root+"/late") {
				t.Error("the ephemerals exist after Close")
			}
		})
	}
}

// A write that was not sent must not end the session, and with it leadership.
func TestWriteWithExpiredContextIsNotSent(t *testing.T) {
	s := open(t, Options{})
	p := root(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Do(ctx, create(p.Root+"/x", false))
	if !errors.Is(err, cluster.ErrNotSent) || !errors.Is(err, context.Canceled) || s.Err() != nil {
		t.Errorf("%v; session: %v", err, s.Err())
	}
}

// refuseClose is a server that answers closeSession with an error code.
func refuseClose(s *scriptedServer, c net.Conn) {
	replies(func(xid, _ int32) []byte { return encodePacket(xid, -118) })(s, c) // session moved
}

func TestRefusedCloseSessionReturnsAnError(t *testing.T) {
	server := newScriptedServer(t, refuseClose)
	contains(t, CloseSession(t.Context(), SessionHandle{Servers: []string{server.addr}, Session: 0x1234, Password: make([]byte, passwordLen)}), "-118", server.addr)
}

// slowCloseConn is a connection that takes long to close, as with TLS, and that counts writes once counting is enabled.
type slowCloseConn struct {
	net.Conn
	closing chan struct{}
	over    *atomic.Bool
	late    *atomic.Int32
	closes  *atomic.Int32
}

func (c slowCloseConn) Write(b []byte) (int, error) {
	if c.over.Load() {
		c.late.Add(1)
	}
	return c.Conn.Write(b)
}

func (c slowCloseConn) Close() error {
	c.closes.Add(1)
	<-c.closing
	return c.Conn.Close()
}

// A session that has ended only on this side must not be closed on the server without the caller: the work may still run (S1).
func TestNothingIsSentAfterTheEnd(t *testing.T) {
	var late, closes atomic.Int32
	var over atomic.Bool
	closing := make(chan struct{})
	s := open(t, Options{Timeout: 20 * time.Second, dialer: dialBy(func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return slowCloseConn{conn, closing, &over, &late, &closes}, err
	})})
	p := root(t, s)
	if _, err := s.Do(t.Context(), create(p.Root+"/mine", true)); err != nil {
		t.Fatal(err)
	}
	over.Store(true)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.end(errors.New("a write got no reply in time"))
	}()
	<-s.Done()
	// The library now stops, and tries to close the session while the socket is still open.
	eventually(t, "closeSession is sent or refused", func() bool { return late.Load() > 0 || closes.Load() > 1 })
	if n := late.Load(); n != 0 {
		t.Errorf("%d packets were sent after the end", n)
	}
	if isMissing(t, p.Root+"/mine") {
		t.Error("the ephemeral vanished when the session ended on this side")
	}
	over.Store(false)
	close(closing)
	<-ended
}
