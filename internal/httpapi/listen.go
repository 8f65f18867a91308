package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// unixPrefix begins an address that is a path.
const unixPrefix = "unix:"

// socketMode lets the daemon's user and group in: who may connect is a matter of the file.
const socketMode = 0o660

// listen opens host:port or unix:/path.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	path, isPath := strings.CutPrefix(addr, unixPrefix)
	if !isPath {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("http.listen %s: %w; choose another address (--http)", addr, err)
		}
		return l, nil
	}
	l, err := listenUnix(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("http.listen %s: %w", addr, err)
	}
	return l, nil
}

// listenUnix makes the socket where nobody else can reach it, and shows it once it has its mode and is listened to. So
// whoever finds a socket that refuses knows that nobody listens any more. The lock on the directory keeps two that begin
// at once from taking each other's for a stale one.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("%w; make the directory first (RuntimeDirectory= in a unit)", err)
	}
	defer dir.Close()
	if err := lock(ctx, dir); err != nil {
		return nil, err
	}
	if err := clearStale(ctx, path); err != nil {
		return nil, err
	}
	private, err := os.MkdirTemp(dir.Name(), ".z") // mode 0700
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private)
	hidden := filepath.Join(private, "s")
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", hidden)
	if err != nil {
		return nil, err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	s := &socket{Listener: listener, path: path}
	s.close = sync.OnceValue(s.remove) // the next one's file may have the number of this one's
	if err = os.Chmod(hidden, socketMode); err == nil {
		err = os.Link(hidden, path)
	}
	if err == nil {
		s.file, err = os.Lstat(path)
	}
	if err != nil {
		listener.Close()
		return nil, err
	}
	return s, nil
}

// lockLimit is how long another that begins at the same time may take.
const lockLimit = 5 * time.Second

// lock waits for the lock on a directory, which is given up with dir.
func lock(ctx context.Context, dir *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, lockLimit)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("another process holds the lock on %s: stop it, or choose another directory (--http)", dir.Name())
		}
	}
}

// clearStale removes a socket that nobody listens to, and nothing else.
func clearStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("there is something else that is no socket: remove it, or choose another path (--http)")
	}
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(limited, "unix", path)
	switch {
	case err == nil:
		conn.Close()
		return fmt.Errorf("another process listens there: stop it, or choose another path (--http)")
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	}
	return fmt.Errorf("cannot tell whether another process listens there: %w", err)
}

// socket takes its file away with it, once, unless that is another's by now.
type socket struct {
	net.Listener
	path  string
	file  os.FileInfo
	close func() error
}

func (s *socket) Close() error { return s.close() }

func (s *socket) remove() error {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) {
		os.Remove(s.path)
	}
	return s.Listener.Close()
}
