package web

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

	"zkelectd/internal/sys/secretfile"
)

// unixPrefix is the prefix of addresses that are paths of unix sockets.
const unixPrefix = "unix:"

// The file mode controls who can connect: the daemon's user and group, or the user alone.
const (
	socketMode  = 0o660
	privateMode = 0o600
)

// listen listens on host:port or unix:/path.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	path, isPath := strings.CutPrefix(addr, unixPrefix)
	if !isPath {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("http.listen %s: %w; choose another address (--http)", addr, err)
		}
		return l, nil
	}
	l, err := listenUnix(ctx, path, socketMode)
	if err != nil {
		return nil, fmt.Errorf("http.listen %s: %w", addr, err)
	}
	return l, nil
}

// listenUnix creates the socket in a private directory, and links it to path when it has its mode and accepts connections. So a
// socket at path that refuses connections is always stale. The lock on the directory keeps two processes that start at the
// same time from removing each other's socket.
func listenUnix(ctx context.Context, path string, mode os.FileMode) (net.Listener, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("%w; create the directory first (RuntimeDirectory= in a systemd unit)", err)
	}
	defer dir.Close()
	if err := secretfile.CheckDirectory(dir.Name()); err != nil {
		return nil, fmt.Errorf("its directory %w", err)
	}
	if err := lockDir(ctx, dir); err != nil {
		return nil, err
	}
	if err := removeStaleSocket(ctx, path); err != nil {
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
	s := &socketListener{Listener: listener, path: path}
	s.close = sync.OnceValue(s.remove) // once: a later socket's file may have the same inode number
	if err = os.Chmod(hidden, mode); err == nil {
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

// lockTimeout limits the wait for another process that starts at the same time.
const lockTimeout = 5 * time.Second

// lockDir waits for the lock on a directory. Closing dir releases it.
func lockDir(ctx context.Context, dir *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
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

// removeStaleSocket removes path if it is a socket that no process listens on. It returns an error if path is anything else.
func removeStaleSocket(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("the file exists and is not a socket: remove it, or choose another path (--http)")
	}
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(limited, "unix", path)
	switch {
	case err == nil:
		conn.Close()
		return fmt.Errorf("another process listens on it: stop that process, or choose another path (--http)")
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	}
	return fmt.Errorf("cannot determine whether another process listens on it: %w", err)
}

// socketListener removes its file when it is closed, unless another process has replaced it.
type socketListener struct {
	net.Listener
	path  string
	file  os.FileInfo
	close func() error
}

func (s *socketListener) Close() error { return s.close() }

func (s *socketListener) remove() error {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) {
		os.Remove(s.path)
	}
	return s.Listener.Close()
}
