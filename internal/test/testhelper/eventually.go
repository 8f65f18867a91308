package testhelper

import (
	"testing"
	"time"
)

// Eventually waits until ok returns true. After limit it fails the test with what did not happen, and logs the state.
func Eventually(t testing.TB, limit time.Duration, what string, ok func() bool, state ...func() string) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	over := time.After(limit)
	for !ok() {
		select {
		case <-tick.C:
		case <-over:
			for _, s := range state {
				t.Log(s())
			}
			t.Fatalf("did not happen within %s: %s", limit, what)
		}
	}
}
