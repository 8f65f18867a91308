package zk

import (
	"context"
	"net"
	"testing"
	"time"

	"zkelectd/internal/sys/boottime"
)

// keepFirstConn returns a dialer that stores the first connection in conn.
func keepFirstConn(conn *net.Conn) DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if *conn == nil {
			*conn = c
		}
		return c, err
	}
}

// granting returns a server script that grants a session timeout and passes on the requests after the connect request.
func granting(timeout time.Duration, requests chan<- []byte) func(*scriptedServer, net.Conn) {
	return func(_ *scriptedServer, c net.Conn) {
		if _, err := readPacket(c); err != nil {
			return
		}
		c.Write(connectResponse(0x1234, timeout))
		answer(c, func(req []byte, xid, op int32) []byte {
			if op == wireOpClose {
				return encodePacket(xid, 0)
			}
			select {
			case requests <- req:
			default:
			}
			return nil
		})
	}
}

// The lease must be shortened before anything is sent in the session, because the server now uses the smaller timeout (A2).
func TestOnShrinkRunsBeforeAnythingIsSent(t *testing.T) {
	requests := make(chan []byte, 16)
	server := newScriptedServer(t, granting(20*time.Second, nil), granting(2*time.Second, requests))
	var conn net.Conn
	s := open(t, Options{Servers: []string{server.addr}, Timeout: 20 * time.Second, dialer: dialBy(keepFirstConn(&conn))})
	grants, proceed := make(chan Grant), make(chan struct{})
	s.OnShrink(20*time.Second, func(g Grant) {
		grants <- g
		<-proceed
	})
	before := boottime.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	conn.Close()
	read := make(chan struct{})
	go func() { // queued by the library until it may be sent
		defer close(read)
		s.Get(ctx, "/", true)
	}()
	g := <-grants
	if g.Server != server.addr || g.Timeout != 2*time.Second || g.Base != 20*time.Second || g.RequestedAt < before || g.RequestedAt > boottime.Now() {
		t.Errorf("OnShrink was called with %+v", g)
	}
	if s.Connected() {
		t.Error("connected before the lease was shortened")
	}
	select {
	case req := <-requests:
		t.Errorf("sent before the lease was shortened: %x", req)
	case <-time.After(200 * time.Millisecond):
	}
	close(proceed)
	<-requests // now it may be sent
	if s.Timeout() != 2*time.Second {
		t.Errorf("the timeout is %s", s.Timeout())
	}
	if s.Err() != nil {
		t.Errorf("the session ended: %v", s.Err())
	}
	cancel()
	<-read
}
