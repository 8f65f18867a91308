package guard

import (
	"time"

	"zkelectd/internal/sys/boottime"
)

// earliest returns the first of the given points in time, ignoring those that are 0; 0 if all are.
func earliest(times ...time.Duration) time.Duration {
	var first time.Duration
	for _, at := range times {
		if at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// past reports whether a point in time has been reached; 0 is never reached.
func past(at time.Duration) bool { return at != 0 && boottime.Now() >= at }

// wake sends to a channel of one element, unless that is full: who waits for it is woken.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
