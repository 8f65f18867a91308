package zkstore

import "time"

// Shrunk says that a server has granted a shorter session timeout than the one that the lease rests on.
type Shrunk struct {
	// Server granted it.
	Server string
	// Timeout is what was granted, Base what the lease rests on.
	Timeout, Base time.Duration
	// Asked is the time of CLOCK_BOOTTIME before which the server could not have counted by Timeout: the request for it
	// was sent then.
	Asked time.Duration
}

// OnShrink calls f whenever a server has granted a session timeout below base. At a reconnect f runs before anything is
// sent on the new connection, so it must be quick and must not call the session. Where a smaller timeout was granted
// before, f is called at once.
func (s *Session) OnShrink(base time.Duration, f func(Shrunk)) {
	s.mu.Lock()
	s.base, s.onShrink = base, f
	last := s.smallest
	s.mu.Unlock()
	if last.Timeout < base {
		last.Base = base
		f(last)
	}
}

// granted notes the timeout that a server has granted to the session, and returns when OnShrink's function has.
func (s *Session) granted(g Shrunk) {
	s.mu.Lock()
	if s.smallest.Timeout == 0 || g.Timeout < s.smallest.Timeout {
		s.smallest = g
	}
	s.longest = max(s.longest, g.Timeout)
	f := s.onShrink
	g.Base = s.base
	s.mu.Unlock()
	if g.Timeout < g.Base { // which is 0 without a function
		f(g)
	}
}
