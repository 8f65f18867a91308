package guard

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

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
