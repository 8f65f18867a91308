package zk

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"zkelectd/internal/sys/boottime"
)

// packet encodes a request without a body.
func packet(xid, op int32) []byte {
	b := binary.BigEndian.AppendUint32(nil, 8)
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	return binary.BigEndian.AppendUint32(b, uint32(op))
}

// A ping is sent unless the server has just got a RENEW. What is done from time to time is done after pings and renewals.
func TestNeedlessPings(t *testing.T) {
	const xidPing, opExists = -2, 3
	s := bareSession(t, io.Discard)
	awake, other := s.Awake(), s.Awake()
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	w := &wireConn{Conn: near, s: s, requested: true, handshakeDone: true, timeout: time.Minute, sent: make(map[int32]int32)}
	ping, exists, multi := packet(xidPing, wireOpPing), packet(7, opExists), packet(8, wireOpMulti)
	ago := func(d time.Duration) { w.renewedAt = boottime.Now() - d }
	for _, c := range []struct {
		name     string
		request  []byte
		before   func()
		needless bool
		awake    bool
	}{
		{name: "the first request", request: exists, before: func() {}},
		{name: "a ping right after it", request: ping, before: func() {}, awake: true},
		{name: "another ping", request: ping, before: func() {}, awake: true},
		{name: "a renewal", request: multi, before: func() { s.renewer.sending.Store(true) }, awake: true},
		{name: "a ping right after a renewal", request: ping, before: func() {}, needless: true},
		{name: "a ping some time later", request: ping, before: func() { ago(time.Minute / 7) }, needless: true},
		{name: "a ping still later", request: ping, before: func() { ago(time.Minute / 5) }, awake: true},
		{name: "a request after that", request: multi, before: func() {}},
	} {
		c.before()
		sent := make(chan string, 1)
		go func() {
			b := make([]byte, 12)
			far.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			n, _ := far.Read(b)
			sent <- string(b[:n])
		}()
		if n, err := w.Write(c.request); n != len(c.request) || err != nil {
			t.Errorf("%s: %d, %v", c.name, n, err)
		}
		want := string(c.request)
		if c.needless {
			want = ""
		}
		if got := <-sent; got != want {
			t.Errorf("%s: sent %q", c.name, got)
		}
		for _, ch := range []chan struct{}{awake.c, other.c} {
			select {
			case <-ch:
				if !c.awake {
					t.Errorf("%s: awake", c.name)
				}
			default:
				if c.awake {
					t.Errorf("%s: not awake", c.name)
				}
			}
		}
	}
}

// A waiter is not woken before its time, and a signal that was sent before counts for nothing.
func TestAwakeWhenItIsTime(t *testing.T) {
	s := bareSession(t, io.Discard)
	a := s.Awake()
	s.signalAwake(1)
	never, over := make(chan time.Time), make(chan struct{})
	close(over)
	at := boottime.Now() + time.Hour
	for len(a.c) > 0 { // the signal may be received, or over be noticed first
		if a.Wait(never, at, over) {
			t.Fatal("an early signal counts")
		}
	}
	s.signalAwake(at - 1)
	if len(a.c) != 0 {
		t.Error("a signal before it is time")
	}
	s.signalAwake(at)
	if len(a.c) != 1 || !a.Wait(never, 0, nil) {
		t.Error("no signal when it is time")
	}
	fired := make(chan time.Time, 1)
	fired <- time.Time{}
	if !a.Wait(fired, at, nil) {
		t.Error("the timer does not count")
	}
}
