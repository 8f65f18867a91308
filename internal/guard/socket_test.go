package guard

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

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
