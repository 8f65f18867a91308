package zk

import "time"

// Grant is a session timeout that a server has granted.
type Grant struct {
	// Server is the one that granted it.
	Server string
	// Timeout is the granted timeout, Base the one that the lease is computed from.
	Timeout, Base time.Duration
	// RequestedAt is when the connect request was sent, by CLOCK_BOOTTIME. Before that the server could not have used
	// Timeout.
	RequestedAt time.Duration
}

// OnDisconnect makes the session call f when the connection is lost. f must neither block nor use the session.
func (s *Session) OnDisconnect(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onDisconnect = f
}

// OnShrink makes the session call f whenever a server grants a session timeout below base, and calls it at once if one
// has done so before. At a reconnect, f runs before anything is sent on the new connection, so it must be quick and
// must not call the session.
func (s *Session) OnShrink(base time.Duration, f func(Grant)) {
	s.mu.Lock()
	s.baseTimeout, s.onShrink = base, f
	g := s.smallestGrant
	s.mu.Unlock()
	if g.Timeout < base {
		g.Base = base
		f(g)
	}
}

// noteGrant records a granted timeout. It returns after OnShrink's function has returned.
func (s *Session) noteGrant(g Grant) {
	s.mu.Lock()
	if s.smallestGrant.Timeout == 0 || g.Timeout < s.smallestGrant.Timeout {
		s.smallestGrant = g
	}
	s.longestTimeout = max(s.longestTimeout, g.Timeout)
	f := s.onShrink
	g.Base = s.baseTimeout
	s.mu.Unlock()
	if g.Timeout < g.Base { // Base is 0 if there is no function
		f(g)
	}
}
