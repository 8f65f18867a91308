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

// A ping is sent unless the server has just got a RENEW.
func TestNeedlessPings(t *testing.T) {
	const xidPing, opExists = -2, 3
	s := bareSession(t, io.Discard)
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
	}{
		{name: "the first request", request: exists, before: func() {}},
		{name: "a ping right after it", request: ping, before: func() {}},
		{name: "another ping", request: ping, before: func() {}},
		{name: "a renewal", request: multi, before: func() { s.renewer.sending.Store(true) }},
		{name: "a ping right after a renewal", request: ping, before: func() {}, needless: true},
		{name: "a ping some time later", request: ping, before: func() { ago(time.Minute / 7) }, needless: true},
		{name: "a ping still later", request: ping, before: func() { ago(time.Minute / 5) }},
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
	}
}
