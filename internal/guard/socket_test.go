package guard

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A peer that reads wakes the runtime's poller only if it has sent something: an idle leader would wake twice as often otherwise.
func TestReadingPeerDoesNotWake(t *testing.T) {
	near, far, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	defer far.Close()
	// An edge-triggered poller as that of the runtime, which also asks for room to write.
	poller, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(poller)
	near.in.Control(func(fd uintptr) {
		err = unix.EpollCtl(poller, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET})
	})
	if err != nil {
		t.Fatal(err)
	}
	woken := func() int {
		n, err := unix.EpollWait(poller, make([]unix.EpollEvent, 4), 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	buf := make([]byte, 16)
	for range 3 {
		if _, err := near.Write([]byte("to the peer")); err != nil {
			t.Fatal(err)
		}
		if _, err := far.Read(buf); err != nil {
			t.Fatal(err)
		}
		if n := woken(); n != 0 {
			t.Fatalf("%d events after the peer has read", n)
		}
		if _, err := far.Write([]byte("from the peer")); err != nil {
			t.Fatal(err)
		}
		if n := woken(); n != 1 {
			t.Fatalf("%d events after the peer has written", n)
		}
		if n, err := near.Read(buf); err != nil || string(buf[:n]) != "from the peer" {
			t.Fatalf("%q, %v", buf[:n], err)
		}
	}
	far.Close()
	if n := woken(); n != 1 {
		t.Errorf("%d events after the peer has closed its end", n)
	}
}

// Read waits for a message, its deadline, the end of the peer or Close.
func TestSocketWaits(t *testing.T) {
	near, far, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	defer far.Close()
	type result struct {
		text string
		err  error
	}
	results := make(chan result)
	read := func() {
		go func() {
			buf := make([]byte, 16)
			n, err := near.Read(buf)
			results <- result{string(buf[:n]), err}
		}()
	}
	for range 100 {
		read()
		if _, err := far.Write([]byte("message")); err != nil {
			t.Fatal(err)
		}
		if r := <-results; r.text != "message" || r.err != nil {
			t.Fatal(r)
		}
	}
	near.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	read()
	if r := <-results; !errors.Is(r.err, os.ErrDeadlineExceeded) {
		t.Error(r)
	}
	near.SetReadDeadline(time.Time{})
	read()
	far.Close()
	if r := <-results; !errors.Is(r.err, io.EOF) {
		t.Error(r)
	}
	other, peer, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	near.Close()
	near = other
	read()
	near.Close()
	if r := <-results; !errors.Is(r.err, os.ErrClosed) {
		t.Error(r)
	}
}

// WriteWithin waits for a slow peer, but not for one that does not read at all.
func TestWriteWithin(t *testing.T) {
	near, far, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	defer far.Close()
	data := []byte(strings.Repeat("x", 4<<20))
	began := time.Now()
	if err := near.WriteWithin(data, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) < 50*time.Millisecond {
		t.Errorf("%v after %s", err, time.Since(began))
	}
	drained := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, far)
		drained <- err
	}()
	if err := near.WriteWithin(data, testTimeout); err != nil {
		t.Error(err)
	}
	near.Close()
	if err := <-drained; err != nil {
		t.Error(err)
	}
}
