package zkstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

func FuzzHandshake(f *testing.F) {
	f.Add(connectResponse(0x1234, time.Second))
	f.Add([]byte("HTTP/1.1 400 Bad Request"))
	f.Add([]byte{0, 0, 0, 20, 19: 0, 20: 0xff, 21: 0xff, 22: 0xff, 23: 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		h, complete, err := parseHandshake(data)
		if err != nil || !complete {
			if complete || h.session != 0 && err == nil {
				t.Errorf("%x: %+v, %t, %v", data, h, complete, err)
			}
			return
		}
		if len(h.password) > maxHandshake || h.timeout < 0 {
			t.Errorf("%x: a password of %d bytes, a timeout of %s", data, len(h.password), h.timeout)
		}
		again, complete, err := parseHandshake(encodeResponse(h.session, h.timeout, h.password))
		if err != nil || !complete || again.session != h.session || again.timeout != h.timeout || !bytes.Equal(again.password, h.password) {
			t.Errorf("%+v became %+v, %t, %v", h, again, complete, err)
		}
		// It may arrive in pieces: before the last byte there is neither a result nor an error.
		whole := 4 + int(binary.BigEndian.Uint32(data))
		for n := range whole {
			if _, complete, err := parseHandshake(data[:n]); complete || err != nil {
				t.Fatalf("%x: after %d of %d bytes it is complete: %t, %v", data, n, whole, complete, err)
			}
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
		u := sessionCloser{dial: dialPlayback(t, data), session: 7, password: make([]byte, passwordLen)}
		err := u.closeAt(ctx, "a:1")
		if ctx.Err() != nil {
			t.Fatal("it waits forever")
		}
		h, complete, broken := parseHandshake(data)
		rest := data[min(len(data), 4+int(binary.BigEndian.Uint32(append(data[:len(data):len(data)], 0, 0, 0, 0)))):]
		switch {
		case err == nil && (!complete || broken != nil || h.session != 7 || len(rest) < 4+replyHeaderLen):
			t.Errorf("%x: closed", data)
		case errors.Is(err, ErrNoSuchSession) && (!complete || h.session == 7):
			t.Errorf("%x: %v", data, err)
		}
	})
}

// Inspecting arbitrary packets neither panics nor misinterprets them.
func FuzzPacketInspection(f *testing.F) {
	f.Add(encodeConnect(time.Second, 7, make([]byte, passwordLen)), []byte{0, 0, 0, 1})
	f.Add([]byte{0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5}, []byte{})
	f.Add(make([]byte, replyHeaderLen), make([]byte, 4))
	f.Fuzz(func(t *testing.T, packet, xid []byte) {
		if id, ok := connectRequestSession(packet); ok {
			if again, ok := connectRequestSession(encodeConnect(time.Second, id, nil)); !ok || again != id {
				t.Errorf("session %x became %x", id, again)
			}
		}
		if isCloseRequest(packet) && len(packet) < 12 {
			t.Errorf("%x closes", packet)
		}
		if isCloseReply(packet, xid) && (len(packet) != replyHeaderLen || !bytes.HasPrefix(packet, xid)) {
			t.Errorf("%x answers %x", packet, xid)
		}
	})
}

// The result of the check does not depend on how the stream is divided.
func FuzzFrameChecker(f *testing.F) {
	f.Add([]byte{0, 0, 0, 16, 19: 0, 20: 0, 21: 0, 22: 0, 23: 17}, byte(3))
	f.Add([]byte{0, 0, 0, 15}, byte(1))
	f.Add([]byte{0x7f, 0, 0, 0}, byte(0))
	f.Fuzz(func(t *testing.T, stream []byte, piece byte) {
		var whole, pieces frameChecker
		want := whole.check(stream)
		var got error
		for rest := stream; len(rest) > 0 && got == nil; {
			n := min(int(piece)+1, len(rest))
			got = pieces.check(rest[:n])
			rest = rest[n:]
		}
		if (want == nil) != (got == nil) || (want == nil && pieces.remaining != whole.remaining) {
			t.Errorf("%x: %v in one piece, %v in pieces of %d", stream, want, got, int(piece)+1)
		}
		if len(stream) >= 4 {
			if size := binary.BigEndian.Uint32(stream); want == nil && (size < replyHeaderLen || size > maxReply) {
				t.Errorf("%x is accepted", stream)
			}
		}
	})
}
