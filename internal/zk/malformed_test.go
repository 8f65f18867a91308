package zk

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// encodePacket returns a reply with its length prefix.
func encodePacket(xid, code int32, body ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(replyHeaderLen+len(body)))
	b = append(binary.BigEndian.AppendUint32(b, uint32(xid)), make([]byte, 8)...)
	return append(binary.BigEndian.AppendUint32(b, uint32(code)), body...)
}

// A connect response without a positive session timeout is refused: go-zookeeper alone would panic.
func TestGrantWithoutATimeoutIsRejected(t *testing.T) {
	t.Parallel()
	for _, granted := range []time.Duration{-time.Second, 0, -1 << 31 * time.Millisecond} {
		server := newScriptedServer(t, func(_ *scriptedServer, c net.Conn) {
			readPacket(c)
			c.Write(connectResponse(0x1234, granted))
			staySilent(nil, c)
		}, serve)
		s := open(t, Options{Servers: []string{server.addr}, Timeout: 2 * time.Second})
		if s.Timeout() != 2*time.Second || server.conns.Load() != 2 {
			t.Errorf("after a grant of %s: the session timeout is %s, after %d connections", granted, s.Timeout(), server.conns.Load())
		}
	}
}

// A reply that ends too early, or that claims to contain more than it does, costs the connection, and an event for
// something that is no path is ignored in the same way: none of them makes go-zookeeper panic or allocate gigabytes.
func TestMalformedReplyCostsTheConnection(t *testing.T) {
	t.Parallel()
	const event = -1
	list := func(s *Session) { s.Children(t.Context(), "/a", false) }
	write := func(s *Session) { s.Do(t.Context(), cluster.Op{Kind: cluster.OpDelete, Path: "/a"}) }
	for name, c := range map[string]struct {
		request func(*Session)
		reply   func(xid int32) []byte
	}{
		"a transaction without results": {write, func(xid int32) []byte { return encodePacket(xid, 0) }},
		"half a result":                 {write, func(xid int32) []byte { return encodePacket(xid, 0, 0, 0, 0, 2) }},
		"children without number":       {list, func(xid int32) []byte { return encodePacket(xid, 0) }},
		"too many children":             {list, func(xid int32) []byte { return encodePacket(xid, 0, 0x7f, 0xff, 0xff, 0xff) }},
		"a negative number of children": {list, func(xid int32) []byte { return encodePacket(xid, 0, 0xff, 0xff, 0xff, 0xff) }},
		"a child longer than its reply": {list, func(xid int32) []byte { return encodePacket(xid, 0, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff) }},
		"data longer than its reply": {func(s *Session) { s.Get(t.Context(), "/a", false) }, func(xid int32) []byte {
			return encodePacket(xid, 0, 0x7f, 0xff, 0xff, 0xff)
		}},
		"an ACL of too many entries": {func(s *Session) { s.zk.GetACL("/a") }, func(xid int32) []byte { return encodePacket(xid, 0, 0x7f, 0xff, 0xff, 0xff) }},
		"an event that is no path":   {list, func(int32) []byte { return encodePacket(event, 0, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 1, 'x') }},
		"an event without a path":    {list, func(int32) []byte { return encodePacket(event, 0, 0, 0, 0, 3) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newScriptedServer(t, func(s *scriptedServer, conn net.Conn) {
				if s.greet(conn, 0x1234) != nil {
					return
				}
				if req, err := readPacket(conn); err == nil {
					conn.Write(c.reply(int32(binary.BigEndian.Uint32(req[4:]))))
					staySilent(s, conn)
				}
			}, serve)
			s := open(t, Options{Servers: []string{server.addr}, Timeout: 4 * time.Second})
			c.request(s)
			eventually(t, "a second connection", func() bool { return server.conns.Load() >= 2 && s.Connected() })
			if s.Err() != nil {
				t.Errorf("the session ended: %v", s.Err())
			}
		})
	}
}

// A reply to a request that was not sent yet costs the connection: nothing says how long it should be, and the library
// would take it for the reply to the request that it is about to send. Replies to pings, and those without a request of
// their own, pass.
func TestReplyToNoRequest(t *testing.T) {
	t.Parallel()
	w := &wireConn{sent: map[int32]int32{-2: wireOpPing, 7: wireOpAuth}}
	for _, c := range []struct {
		xid int32
		ok  bool
	}{{7, true}, {7, false}, {8, false}, {0, false}, {-2, true}, {-2, true}, {xidAuth, true}} {
		if err := w.noteReply(encodePacket(c.xid, 0)); (err == nil) != c.ok {
			t.Errorf("xid %d: %v", c.xid, err)
		}
	}
}
