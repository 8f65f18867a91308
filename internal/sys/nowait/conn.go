package nowait

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// conn is a TCP connection.
type conn struct {
	net.Conn
	raw syscall.RawConn
	in  *bufio.Reader

	writing sync.Mutex // held during a write; locked before mu
	mu      sync.Mutex
	writeBy time.Time // the deadline for writes; zero for none
	waits   bool      // a write waits: the runtime knows writeBy
}

// readSize is how much is read at once: a reply to a client that reads its length first then costs one call, and not
// two.
const readSize = 1 << 10

// NewConn returns a connection that reads from and writes to c by the calls of this package, and that reads ahead. The
// runtime still waits for it. It returns c itself if that is not possible.
func NewConn(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	n := &conn{Conn: c, raw: raw}
	n.in = bufio.NewReaderSize(receiver{n}, readSize)
	return n
}

func (c *conn) Read(b []byte) (int, error) { return c.in.Read(b) }

// receiver is the [io.Reader] below the buffer of a connection.
type receiver struct{ c *conn }

func (r receiver) Read(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	closed := r.c.raw.Read(func(fd uintptr) bool {
		for n, err = Read(int(fd), b); errors.Is(err, unix.EINTR); {
			n, err = Read(int(fd), b)
		}
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case closed != nil:
		return 0, closed
	case err != nil:
		return 0, r.c.failure("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// SetWriteDeadline sets the deadline for writes. The runtime gets it only when a write has to wait: it would wake the
// process at the time of each deadline, even if that was removed before.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeBy = t
	if c.waits {
		return c.Conn.SetWriteDeadline(t)
	}
	return nil
}

// SetDeadline sets both deadlines.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// setWaits records whether a write waits.
func (c *conn) setWaits(to bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits == to {
		return
	}
	c.waits = to
	if to {
		c.Conn.SetWriteDeadline(c.writeBy)
	} else {
		c.Conn.SetWriteDeadline(time.Time{})
	}
}

// writeExpired reports whether the deadline for writes is over.
func (c *conn) writeExpired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.writeBy.IsZero() && !time.Now().Before(c.writeBy)
}

func (c *conn) Write(b []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.writeExpired() {
		return 0, c.failure("write", os.ErrDeadlineExceeded)
	}
	defer c.setWaits(false)
	closed := c.raw.Write(func(fd uintptr) bool {
		for n < len(b) {
			var sent int
			if sent, err = Write(int(fd), b[n:]); err == nil {
				n += sent
			} else if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if !errors.Is(err, unix.EAGAIN) {
			return true
		}
		c.setWaits(true)
		return false
	})
	switch {
	case closed != nil:
		return n, closed
	case err != nil:
		return n, c.failure("write", err)
	}
	return n, nil
}

// failure returns the error that package net has for that of a call.
func (c *conn) failure(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, err)}
}
