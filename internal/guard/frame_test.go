package guard

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

func TestFrameLimits(t *testing.T) {
	var pipe bytes.Buffer
	long := message{Kind: kindStart, Error: strings.Repeat("x", maxFrame-100)}
	if err := writeFrame(&pipe, long); err != nil {
		t.Fatal(err)
	}
	if m, err := readFrame(&pipe); err != nil || m.Error != long.Error {
		t.Errorf("%d bytes, %v", len(m.Error), err)
	}
	long.Error += strings.Repeat("x", 100)
	if err := writeFrame(&pipe, long); err == nil || !strings.Contains(err.Error(), "too long") || pipe.Len() > 0 {
		t.Errorf("%v, %d bytes written", err, pipe.Len())
	}
	// The length alone is refused, before memory is allocated for the body.
	if _, err := readFrame(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff})); !errors.Is(err, errProtocol) {
		t.Error(err)
	}
}

// If the peer does not read, a write fails immediately.
func TestSocketDoesNotBlock(t *testing.T) {
	near, far, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	defer far.Close()
	for err == nil {
		err = writeFrame(near, message{Kind: kindDead, Output: strings.Repeat("x", maxOutput)})
	}
	if !errors.Is(err, io.ErrShortWrite) && !errors.Is(err, syscall.EAGAIN) {
		t.Error(err)
	}
	if m, err := readFrame(far); err != nil || m.Kind != kindDead {
		t.Errorf("%+v, %v", m, err)
	}
}

// A malfunctioning daemon must not crash the guard, which has to enforce S1 then.
func FuzzReadFrame(f *testing.F) {
	f.Add(frame(`{"kind":"lease","at":5}`))
	f.Add(frame(`{"kind":"start","seq":1,"spec":{"path":"/bin/true","argv":["true"],"env":null,"stop_signal":15}}`))
	f.Add(frame(`{"kind":"session","session":{"servers":["a:1"],"id":1,"password":"AA==","timeout":1}}`))
	f.Add(append(frame("{}"), frame("null")...))
	f.Add(frame(""))
	f.Add([]byte{0, 0, 0})
	f.Add([]byte{0, 0x80, 0, 1, '{'})
	f.Fuzz(func(t *testing.T, data []byte) {
		for r := bytes.NewReader(data); ; {
			m, err := readFrame(r)
			if err != nil {
				break
			}
			// A message that was decoded can be encoded and decoded again.
			var pipe bytes.Buffer
			if err := writeFrame(&pipe, m); err != nil {
				t.Fatal(err)
			}
			if again, err := readFrame(&pipe); err != nil || !reflect.DeepEqual(again, m) {
				t.Fatalf("%+v became %+v, %v", m, again, err)
			}
		}
	})
}

// A daemon that exits normally may leave messages unread. It is not killed for that.
func TestDaemonExitsWithUnreadMessages(t *testing.T) {
	near, far, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	d := &daemon{socket: near, out: newOutbox(near, daemonOutbox)}
	g := &guard{daemon: d, log: slog.New(slog.DiscardHandler)}
	g.sendToDaemon(message{Kind: kindLeaseConfirmed})
	far.Close()
	g.sendToDaemon(message{Kind: kindLeaseConfirmed})
	if d.abandoned {
		t.Error("the daemon is abandoned before all of its messages are read")
	}
	_, err = readFrame(near)
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	g.receiveFromDaemon(incoming{daemon: d, err: err})
	if !d.abandoned || d.killing {
		t.Errorf("abandoned: %t, killing: %t", d.abandoned, d.killing)
	}
}
