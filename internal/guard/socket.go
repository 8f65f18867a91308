package guard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/nowait"
)

// socket is an end of the connection between the guard and the daemon or a keeper. The Go runtime waits for a file in both directions,
// so each message that the peer reads would wake this process, since there is room for the next one. So the runtime waits for an epoll
// instance instead, which waits for messages only.
type socket struct {
	file    *os.File // the runtime does not wait for it
	ready   *os.File // the epoll instance
	raw, in syscall.RawConn
}

// newSocket returns a socket for a file descriptor.
func newSocket(fd int, name string) (*socket, error) {
	if err := unix.SetNonblock(fd, false); err != nil { // else NewFile would make the runtime wait for it
		return nil, os.NewSyscallError("fcntl", err)
	}
	s := &socket{file: os.NewFile(uintptr(fd), name)}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), s.file.Close())
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("epoll_create1", err), s.file.Close())
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP}
	err = errors.Join(unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &event), unix.SetNonblock(epoll, true))
	s.ready = os.NewFile(uintptr(epoll), name)
	var rawErr, inErr error
	s.raw, rawErr = s.file.SyscallConn()
	s.in, inErr = s.ready.SyscallConn()
	if err = errors.Join(err, rawErr, inErr); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot wait for messages: %w", err), s.Close())
	}
	return s, nil
}

// Read reads what has arrived, and waits until something has.
func (s *socket) Read(b []byte) (n int, err error) {
	receive := func(fd uintptr) bool {
		n, err = nowait.Read(int(fd), b)
		return true
	}
	waitErr := s.in.Read(func(uintptr) bool {
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			if s.raw.Read(receive) != nil {
				err = os.ErrClosed
			}
		}
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case errors.Is(waitErr, os.ErrDeadlineExceeded):
		return 0, waitErr
	case waitErr != nil:
		return 0, os.ErrClosed // SyscallConn has another error for that
	case err != nil:
		return 0, err
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// SetReadDeadline sets the deadline for Read.
func (s *socket) SetReadDeadline(t time.Time) error { return s.ready.SetReadDeadline(t) }

// Write writes what fits into the socket's buffer, and returns an error if that is not all.
func (s *socket) Write(data []byte) (n int, err error) {
	if s.raw.Write(func(fd uintptr) bool {
		n, err = nowait.Write(int(fd), data)
		return true // done, even after EAGAIN: do not wait for space
	}) != nil {
		return 0, os.ErrClosed
	}
	if err == nil && n < len(data) {
		err = io.ErrShortWrite
	}
	return max(0, n), err
}

// WriteWithin writes data, and waits for a peer that does not read for up to limit; then the error is os.ErrDeadlineExceeded. It keeps
// a thread meanwhile.
func (s *socket) WriteWithin(data []byte, limit time.Duration) error {
	for until := time.Now().Add(limit); ; {
		n, err := s.Write(data)
		data = data[n:]
		left := time.Until(until)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, io.ErrShortWrite) && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			return err
		case left <= 0:
			return os.ErrDeadlineExceeded
		}
		if err := s.raw.Control(func(fd uintptr) {
			unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(left.Milliseconds())+1)
		}); err != nil {
			return err
		}
	}
}

// SyscallConn returns the connection for other system calls.
func (s *socket) SyscallConn() (syscall.RawConn, error) { return s.raw, nil }

// Close closes the socket. A Read that waits returns os.ErrClosed.
func (s *socket) Close() error { return errors.Join(s.ready.Close(), s.file.Close()) }
