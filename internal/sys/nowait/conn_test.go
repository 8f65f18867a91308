package nowait

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// connect returns both ends of a TCP connection. The first one is of this package.
func connect(t *testing.T) (c net.Conn, other *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dialed.Close()
		accepted.Close()
	})
	if c = NewConn(dialed); c == dialed {
		t.Fatal("a TCP connection is not supported")
	}
	return c, accepted.(*net.TCPConn)
}

func TestConn(t *testing.T) {
	c, other := connect(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<19) // more than the kernel buffers
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(data)
		sent <- err
	}()
	got := make([]byte, len(data))
	if _, err := io.ReadFull(other, got); err != nil || !bytes.Equal(got, data) {
		t.Errorf("sent: %v, equal: %t", err, bytes.Equal(got, data))
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	go func() {
		other.Write(data)
		other.CloseWrite()
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, data) {
		t.Errorf("received: %v, equal: %t", err, bytes.Equal(got, data))
	}
	if n, err := c.Read(nil); n != 0 || err != nil {
		t.Errorf("nothing: %d, %v", n, err)
	}
}

// What was read before a deadline is not lost.
func TestConnDeadlines(t *testing.T) {
	c, other := connect(t)
	other.Write([]byte("ab"))
	one := make([]byte, 1)
	if _, err := io.ReadFull(c, one); err != nil || one[0] != 'a' {
		t.Errorf("%q, %v", one, err)
	}
	c.SetReadDeadline(time.Now().Add(-time.Second))
	if _, err := io.ReadFull(c, one); err != nil || one[0] != 'b' {
		t.Errorf("what was read ahead: %q, %v", one, err)
	}
	_, err := c.Read(one)
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	c.SetReadDeadline(time.Time{})
	other.Write([]byte("c"))
	if _, err := io.ReadFull(c, one); err != nil || one[0] != 'c' {
		t.Errorf("after another deadline: %q, %v", one, err)
	}
	much := make([]byte, 32<<20)
	c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := c.Write(much); n == 0 || n == 32<<20 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("sent %d bytes to a peer that does not read: %v", n, err)
	}
	if n, err := c.Write(one); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("sent %d bytes after the deadline: %v", n, err)
	}
	c.SetWriteDeadline(time.Time{})
	go io.Copy(io.Discard, other)
	if n, err := c.Write(much); n != 32<<20 || err != nil {
		t.Errorf("sent %d bytes without a deadline: %v", n, err)
	}
	if c.(*conn).waits {
		t.Error("the runtime gets the deadlines of writes that do not wait")
	}
}

// A deadline that is set while a write waits ends the write, also if there was another one before.
func TestConnDeadlineOfAWaitingWrite(t *testing.T) {
	for _, first := range []time.Time{{}, time.Now().Add(time.Hour)} {
		c, _ := connect(t)
		c.SetWriteDeadline(first)
		done := make(chan error, 1)
		go func() {
			_, err := c.Write(make([]byte, 32<<20))
			done <- err
		}()
		n := c.(*conn)
		for waits := false; !waits; runtime.Gosched() {
			n.mu.Lock()
			waits = n.waits
			n.mu.Unlock()
		}
		c.SetWriteDeadline(time.Now())
		if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after %s: %v", first, err)
		}
	}
}

func TestConnErrors(t *testing.T) {
	c, other := connect(t)
	other.SetLinger(0)
	other.Close() // sends a reset
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read after a reset: %v", err)
	}
	var op *net.OpError
	if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) || !errors.As(err, &op) || op.Op != "write" || op.Addr == nil {
		t.Errorf("write after a reset: %v", err)
	}
	c.Close()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	if NewConn(near) != near {
		t.Error("a connection without a descriptor is wrapped")
	}
}
