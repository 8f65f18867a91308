package nowait

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// conn is a TCP connection.
type conn struct {
	net.Conn
	raw syscall.RawConn
	in  *bufio.Reader
}

// readSize is how much is read at once: a reply to a client that reads its length first then costs one call, and not two.
const readSize = 1 << 10

// NewConn returns a connection that reads from and writes to c by the calls of this package, and that reads ahead. The runtime still
// waits for it. It returns c itself if that is not possible.
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

func (c *conn) Write(b []byte) (n int, err error) {
	closed := c.raw.Write(func(fd uintptr) bool {
		for n < len(b) {
			var sent int
			if sent, err = Write(int(fd), b[n:]); err == nil {
				n += sent
			} else if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		return !errors.Is(err, unix.EAGAIN)
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
