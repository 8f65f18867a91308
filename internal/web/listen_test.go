package web

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// overSocket returns a client that uses a unix socket.
func overSocket(path string) *http.Client {
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
}

func TestServeOnUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	// The socket of a killed daemon does not prevent a new one.
	left, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	left.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serveAt(ctx, "unix:"+path, handlerFor(leader())) }()
	if code, body := fetch(t, overSocket(path), "http://zkelectd/leader"); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if err := serveAt(ctx, "unix:"+path, handlerFor(leader())); err == nil || !strings.Contains(err.Error(), "another process listens on it") {
		t.Errorf("a second one: %v", err)
	}
	if code, _ := fetch(t, overSocket(path), "http://zkelectd/leader"); code != 200 {
		t.Errorf("after a second one was refused: %d", code)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended with %v", err)
	}
	if names, _ := os.ReadDir(filepath.Dir(path)); len(names) > 0 {
		t.Errorf("it leaves behind %v", names)
	}
}

// Who can write in the directory could replace the socket.
func TestNoSocketInASharedDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := serveAt(t.Context(), "unix:"+filepath.Join(dir, "s"), handlerFor(leader())); err == nil || !strings.Contains(err.Error(), "its directory can be changed by others") {
		t.Errorf("%v", err)
	}
}

func TestOnlySocketsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (Endpoint{Addr: "unix:" + path}).listen(t.Context()); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("with a regular file: %v", err)
	}
	if data, _ := os.ReadFile(path); string(data) != "precious" {
		t.Error("the file is gone")
	}
	if _, err := (Endpoint{Addr: "unix:" + filepath.Join(dir, "no", "s")}).listen(t.Context()); err == nil || !strings.Contains(err.Error(), "create the directory first") {
		t.Errorf("without a directory: %v", err)
	}
}

// A daemon that ends late must not remove its successor's socket.
func TestCloseKeepsAnotherSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := Endpoint{Addr: "unix:" + path}.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(path)
	second, err := Endpoint{Addr: "unix:" + path}.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
	first.(*socketListener).file = second.(*socketListener).file // as if the kernel had reused the inode number
	first.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("closed again: %v", err)
	}
	second.Close()
	if _, err := os.Lstat(path); err == nil {
		t.Error("its own socket was not removed")
	}
}

// If several daemons start at the same time with a stale socket, one of them listens, and clients can connect to it.
func TestConcurrentListenersOnOneSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for range 20 {
		left, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		left.(*net.UnixListener).SetUnlinkOnClose(false)
		left.Close()
		var all sync.WaitGroup
		got := make(chan net.Listener, 8)
		for range cap(got) {
			all.Go(func() {
				if l, err := (Endpoint{Addr: "unix:" + path}).listen(t.Context()); err == nil {
					got <- l
				}
			})
		}
		all.Wait()
		close(got)
		if len(got) != 1 {
			t.Errorf("%d listen", len(got))
		}
		if c, err := net.Dial("unix", path); err != nil {
			t.Error(err)
		} else {
			c.Close()
		}
		for l := range got {
			l.Close()
		}
	}
}

// A process that holds the lock on the directory must not block the daemon's end.
func TestWaitForTheLockIsLimited(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := serveAt(ctx, "unix:"+filepath.Join(dir.Name(), "s"), handlerFor(leader())); err == nil || !strings.Contains(err.Error(), "another process holds the lock on "+dir.Name()) {
		t.Errorf("second server: error %v", err)
	}
}
