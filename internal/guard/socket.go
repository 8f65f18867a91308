package guard

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socket is an end of the connection between the guard and the daemon or a keeper. Unlike that of a file, its Write
// does not wait for the peer.
type socket struct {
	*os.File
	raw syscall.RawConn
}

// newSocket returns a socket for a file descriptor.
func newSocket(fd int, name string) (*socket, error) {
	if err := unix.SetNonblock(fd, true); err != nil { // else NewFile would block a thread while it waits
		return nil, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(fd), name)
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &socket{file, raw}, nil
}

// Write writes what fits into the socket's buffer, and returns an error if that is not all.
func (s *socket) Write(data []byte) (n int, err error) {
	if s.raw.Write(func(fd uintptr) bool {
		n, err = unix.Write(int(fd), data)
		return true // done, even after EAGAIN: do not wait for space
	}) != nil {
		return 0, os.ErrClosed
	}
	if err == nil && n < len(data) {
		err = io.ErrShortWrite
	}
	return max(0, n), err
}

// WriteWithin writes data, and waits for a peer that does not read for up to limit; then the error is
// os.ErrDeadlineExceeded.
func (s *socket) WriteWithin(data []byte, limit time.Duration) error {
	if err := s.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, err := s.File.Write(data)
	return err
}
