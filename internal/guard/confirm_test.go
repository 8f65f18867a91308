package guard

import (
	"context"
	"errors"
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
