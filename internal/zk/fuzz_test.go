package zk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

func FuzzHandshake(f *testing.F) {
	f.Add(connectResponse(0x1234, time.Second))
	f.Add([]byte("HTTP/1.1 400 Bad Request"))
	f.Add([]byte{0, 0, 0, 20, 19: 0, 20: 0xff, 21: 0xff, 22: 0xff, 23: 0xff})
	f.Add(connectResponse(0x1234, -time.Second))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, h, err := receiveHandshake(bytes.NewReader(data))
		if err != nil {
			if h.session != 0 {
				t.Errorf("%x: %+v, %v", data, h, err)
			}
			return
		}
		if len(h.password) > maxHandshake || h.session != 0 && h.timeout <= 0 {
			t.Errorf("%x: a password of %d bytes, a timeout of %s", data, len(h.password), h.timeout)
		}
		_, again, err := receiveHandshake(bytes.NewReader(encodeResponse(h.session, h.timeout, h.password)))
		if err != nil || again.session != h.session || again.timeout != h.timeout || !bytes.Equal(again.password, h.password) {
			t.Errorf("%+v became %+v, %v", h, again, err)
		}
	})
}

// dialPlayback dials a server that ignores all requests, sends data and hangs up.
func dialPlayback(t *testing.T, data []byte) DialFunc {
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close() })
		go io.Copy(io.Discard, far) // ends with either side
		go func() {
			far.Write(data)
			far.Close()
		}()
		return near, nil
	}
}

// A session counts as closed only if a ZooKeeper server attached to it and confirmed the close.
func FuzzCloseSession(f *testing.F) {
	yes := append([]byte{0, 0, 0, replyHeaderLen}, make([]byte, replyHeaderLen)...)
	f.Add(append(connectResponse(7, time.Second), yes...))
	f.Add(append(connectResponse(7, time.Second), append(yes, yes...)...))
	f.Add(append(connectResponse(0, time.Second), yes...))
	f.Add(connectResponse(7, time.Second))
	f.Add([]byte("HTTP/1.1 400 Bad Request"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		u := sessionCloser{dial: dialPlayback(t, data), session: 7}
		err := u.closeAt(ctx, "a:1")
		if ctx.Err() != nil {
			t.Fatal("it waits forever")
		}
		_, h, broken := receiveHandshake(bytes.NewReader(data))
		rest := data[min(len(data), 4+int(binary.BigEndian.Uint32(append(data[:len(data):len(data)], 0, 0, 0, 0)))):]
		switch {
		case err == nil && (broken != nil || h.session != 7 || len(rest) < 4+replyHeaderLen):
			t.Errorf("%x: closed", data)
		case errors.Is(err, ErrNoSuchSession) && (broken != nil || h.session == 7):
			t.Errorf("%x: %v", data, err)
		}
	})
}

// dialReply dials a server that grants a session, answers the first request and hangs up.
func dialReply(reply func(xid int32) []byte) DialFunc {
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() { // ends with either side
			defer far.Close()
			if _, err := readPacket(far); err != nil {
				return
			}
			far.Write(connectResponse(7, time.Second))
			if req, err := readPacket(far); err == nil {
				xid, _ := requestHead(req)
				far.Write(reply(xid))
			}
		}()
		return near, nil
	}
}

// Whatever a server answers, the library neither panics nor uses memory that the answer does not account for.
func FuzzReplies(f *testing.F) {
	requests := []func(context.Context, *Session){
		func(ctx context.Context, s *Session) { s.Get(ctx, "/a", false) },
		func(ctx context.Context, s *Session) { s.Get(ctx, "/a", true) },
		func(ctx context.Context, s *Session) { s.Children(ctx, "/a", true) },
		func(ctx context.Context, s *Session) { s.Do(ctx, cluster.Op{Kind: cluster.OpDelete, Path: "/a"}) },
		func(ctx context.Context, s *Session) { s.getACL(ctx, "/a") },
		func(ctx context.Context, s *Session) { s.own.Sync(ctx) },
	}
	for i := range requests {
		f.Add(byte(i), []byte{0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff}, false)
		f.Add(byte(i), []byte{0x7f, 0xff, 0xff, 0xff}, false)
		f.Add(byte(i), []byte{0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff}, false)
		f.Add(byte(i), []byte{0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 1, 'x'}, true)
		f.Add(byte(i), []byte{0, 0, 0, 1, 'x', 75: 0}, false)
	}
	f.Fuzz(func(t *testing.T, request byte, body []byte, event bool) {
		dial := dialReply(func(xid int32) []byte {
			if event {
				xid = xidEvent
			}
			return encodePacket(xid, 0, body...)
		})
		s, err := Open(t.Context(), Options{Servers: []string{"a:1"}, Timeout: time.Second, dialer: dialBy(dial)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		requests[int(request)%len(requests)](ctx, s)
		s.end(io.EOF)
		s.goroutines.Wait()
	})
}
