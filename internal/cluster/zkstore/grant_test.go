package zkstore

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/boottime"
)

// kept dials, and keeps the first connection in conn.
func kept(conn *net.Conn) DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if *conn == nil {
			*conn = c
		}
		return c, err
	}
}

// grants answers a connect request with a session timeout and hands over what comes after it.
func grants(timeout time.Duration, requests chan<- []byte) func(*scripted, net.Conn) {
	return func(_ *scripted, c net.Conn) {
		if _, err := packet(c); err != nil {
			return
		}
		c.Write(response(0x1234, timeout))
		for {
			req, err := packet(c)
			if err != nil {
				return
			}
			if isCloseRequest(req) {
				b := append(binary.BigEndian.AppendUint32(nil, replyHeaderLen), req[4:8]...)
				c.Write(append(b, make([]byte, 12)...))
				return
			}
			select {
			case requests <- req:
			default:
			}
		}
	}
}

// The lease must be cut before anything is sent in the session that the server now counts by less.
func TestSmallerTimeoutIsToldBeforeAnythingIsSent(t *testing.T) {
	requests := make(chan []byte, 16)
	server := script(t, grants(20*time.Second, nil), grants(2*time.Second, requests))
	var conn net.Conn
	s := open(t, Options{Servers: []string{server.addr}, Timeout: 20 * time.Second, Dial: kept(&conn)})
	told, proceed := make(chan Grant), make(chan struct{})
	s.OnShrink(20*time.Second, func(g Grant) {
		told <- g
		<-proceed
	})
	before := boottime.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	conn.Close()
	read := make(chan struct{})
	go func() { // queued by the library, and sent as soon as it may
		defer close(read)
		s.Get(ctx, "/", true)
	}()
	g := <-told
	if g.Server != server.addr || g.Timeout != 2*time.Second || g.Base != 20*time.Second || g.RequestedAt < before || g.RequestedAt > boottime.Now() {
		t.Errorf("told of %+v", g)
	}
	if s.Connected() {
		t.Error("connected before the lease was cut")
	}
	select {
	case req := <-requests:
		t.Errorf("sent before the lease was cut: %x", req)
	case <-time.After(200 * time.Millisecond):
	}
	close(proceed)
	<-requests // now it may
	if s.Timeout() != 2*time.Second {
		t.Errorf("the timeout is %s", s.Timeout())
	}
	if s.Err() != nil {
		t.Errorf("the session ended: %v", s.Err())
	}
	cancel()
	<-read
}

// A larger timeout is safe, and so is one that is no smaller than the lease rests on. The smallest is remembered.
func TestOnlyATimeoutBelowTheBaseIsTold(t *testing.T) {
	server := script(t, grants(10*time.Second, nil), grants(20*time.Second, nil), grants(6*time.Second, nil), grants(8*time.Second, nil), grants(4*time.Second, nil))
	var last atomic.Pointer[net.Conn]
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		last.Store(&c)
		return c, err
	}
	s := open(t, Options{Servers: []string{server.addr}, Timeout: 10 * time.Second, Dial: dial})
	told := make(chan Grant, 4)
	s.OnShrink(6*time.Second, func(g Grant) { told <- g })
	for i, want := range []time.Duration{10 * time.Second, 6 * time.Second, 6 * time.Second, 4 * time.Second} {
		(*last.Load()).Close()
		eventually(t, "the reconnect", func() bool { return s.Reconnects() == i+1 })
		if s.Timeout() != want {
			t.Errorf("after reconnect %d the timeout is %s, want %s", i+1, s.Timeout(), want)
		}
	}
	if g := <-told; g.Timeout != 4*time.Second || len(told) != 0 {
		t.Errorf("told of %+v, and of %d more", g, len(told))
	}
	// Whoever asks later hears of it at once.
	s.OnShrink(5*time.Second, func(g Grant) { told <- g })
	if g := <-told; g.Timeout != 4*time.Second || g.Base != 5*time.Second || g.Server != server.addr {
		t.Errorf("told of %+v", g)
	}
}
