package guard

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

// Confirm waits for the guard's answer to what was sent last, not for an earlier one.
func TestConfirm(t *testing.T) {
	c := newClient(t)
	confirm := func() <-chan error {
		done := make(chan error, 1)
		go func() { done <- c.l.Confirm(t.Context()) }()
		c.expect(kindLease)
		return done
	}
	c.l.SetLease(time.Second)
	c.expect(kindLease) // which is not answered yet
	c.l.SetRelease([]byte("1"))
	c.expect(kindRelease)
	done := confirm()
	c.send(message{Kind: kindLeaseConfirmed})
	select {
	case err := <-done:
		t.Errorf("the answer to an earlier message counts: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	c.send(message{Kind: kindLeaseConfirmed})
	if err := <-done; err != nil {
		t.Error(err)
	}
	done = confirm()
	c.send(message{Kind: kindLeaseConfirmed})
	if err := <-done; err != nil {
		t.Errorf("again: %v", err)
	}

	limited, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := c.l.Confirm(limited); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without an answer: %v", err)
	}
	c.expect(kindLease)
	c.send(message{Kind: kindLeaseConfirmed})
	done = confirm()
	c.l.Abandon()
	c.expect(kindAbandon)
	c.send(message{Kind: kindLeaseConfirmed})
	if err := <-done; !errors.Is(err, ErrAbandoned) {
		t.Errorf("once it is abandoned: %v", err)
	}
	c.l = c.NewLeadership("h")
	c.expect(kindOpen)
	done = confirm()
	c.loseGuard(ErrLost)
	if err := <-done; !errors.Is(err, ErrLost) {
		t.Errorf("once the guard is lost: %v", err)
	}
}

// With a full disk the file still has the release of before, which the next start would send if guard and daemon are
// killed.
func TestConfirmNeedsTheFile(t *testing.T) {
	c := newClient(t)
	c.SetSession(Credentials{Servers: []string{"a:1"}, ID: 5})
	c.expect(kindSession)
	own := leadershipFile(c.file, c.l.file)
	if err := os.RemoveAll(own); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(own, 0o700); err != nil { // a file cannot replace it
		t.Fatal(err)
	}
	c.l.SetRelease([]byte("1"))
	c.expect(kindRelease)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.l.Confirm(over); err == nil || errors.Is(err, context.Canceled) {
		t.Fatalf("the file is not written: %v", err)
	}
	os.Remove(own)
	done := make(chan error, 1)
	go func() { done <- c.l.Confirm(t.Context()) }()
	c.expect(kindLease)
	c.send(message{Kind: kindLeaseConfirmed})
	if err := <-done; err != nil {
		t.Errorf("there is room again: %v", err)
	}
	if f, err := ReadSessionFile(c.file); err != nil || len(f.Session.Releases) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
}
