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
	f.Add(response(0x1234, time.Second))
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
		// It may come in pieces: until the last byte there is neither an answer nor an error.
		whole := 4 + int(binary.BigEndian.Uint32(data))
		for n := range whole {
			if _, complete, err := parseHandshake(data[:n]); complete || err != nil {
				t.Fatalf("%x: after %d of %d bytes it is complete: %t, %v", data, n, whole, complete, err)
			}
		}
	})
}

// played is a server that says what it is told to, whatever it is asked, and hangs up.
func played(t *testing.T, data []byte) DialFunc {
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

// A session counts as closed when a server has attached to it and said so, whatever else is on that port.
func FuzzCloseSession(f *testing.F) {
	yes := append([]byte{0, 0, 0, replyHeaderLen}, make([]byte, replyHeaderLen)...)
	f.Add(append(response(7, time.Second), yes...))
	f.Add(append(response(7, time.Second), append(yes, yes...)...))
	f.Add(append(response(0, time.Second), yes...))
	f.Add(response(7, time.Second))
	f.Add([]byte("HTTP/1.1 400 Bad Request"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		u := sessionCloser{dial: played(t, data), session: 7, password: make([]byte, passwordLen)}
		err := u.closeAt(ctx, "a:1")
		if ctx.Err() != nil {
			t.Fatal("it waits for ever")
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

// What is looked at while it passes is only looked at.
func FuzzPassingPackets(f *testing.F) {
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

// However a stream is cut, its lengths are those that are checked.
func FuzzFraming(f *testing.F) {
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
		if left, size := stream, uint32(0); len(left) >= 4 {
			if size = binary.BigEndian.Uint32(left); want == nil && (size < replyHeaderLen || size > maxReply) {
				t.Errorf("%x passes", stream)
			}
		}
	})
}
