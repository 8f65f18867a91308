package zk

import (
	"sync/atomic"
	"time"

	"zkelectd/internal/sys/boottime"
)

// Awake is signaled right after a ping or RENEWs were sent: whatever has to be done from time to time costs less then, since this
// process and the connection are awake anyway. It is used by one goroutine.
type Awake struct {
	c     chan struct{}
	after atomic.Int64 // no signal is of use before, on CLOCK_BOOTTIME
}

// Awake returns an Awake, which is signaled until the session has ended.
func (s *Session) Awake() *Awake {
	a := &Awake{c: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awake = append(s.awake, a)
	return a
}

// Wait waits until the timer fires, or until the session is awake after a time on CLOCK_BOOTTIME. It returns false if done is closed
// first.
func (a *Awake) Wait(timer <-chan time.Time, after time.Duration, done <-chan struct{}) bool {
	a.after.Store(int64(after))
	for {
		select {
		case <-timer:
			return true
		case <-a.c:
			if boottime.Now() >= after { // otherwise it was sent before this call
				return true
			}
		case <-done:
			return false
		}
	}
}

// signalAwake signals each Awake whose time has come.
func (s *Session) signalAwake(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.awake {
		if int64(now) < a.after.Load() {
			continue
		}
		select {
		case a.c <- struct{}{}:
		default:
		}
	}
}
