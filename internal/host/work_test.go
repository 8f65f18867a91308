package host

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// A check that hangs is reported, runs once only, and keeps no other from running.
func TestCheckThatHangsKeepsNoOtherFromRunning(t *testing.T) {
	t.Parallel()
	b := newBoundedChecks(10 * time.Millisecond)
	answer, started := make(chan struct{}), 0
	ended := make(chan struct{})
	hanging := func() []error {
		started++
		defer close(ended)
		<-answer
		return nil
	}
	bad := errors.New("it does not exist")
	for range 3 {
		if found := b.run(t.Context(), "one", hanging); len(found) != 1 {
			t.Fatalf("a check that hangs: %v", found)
		}
		b.limit = time.Minute // the other one is not late
		if found := b.run(t.Context(), "other", func() []error { return []error{bad} }); !slices.Equal(found, []error{bad}) {
			t.Fatalf("the other check: %v", found)
		}
	}
	close(answer)
	<-ended
	if started != 1 {
		t.Errorf("the check that hangs was started %d times", started)
	}
	for done := b.pending["one"]; len(done) == 0; {
		select {
		case found := <-done:
			done <- found
		case <-time.After(30 * time.Second):
			t.Fatal("the result does not come")
		}
	}
	if found := b.run(t.Context(), "one", func() []error { return nil }); found != nil {
		t.Errorf("after it: %v", found)
	}
}
