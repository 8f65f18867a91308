package zkstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// CloseWith has Close send a transaction before, in the session; none takes that back.
func (s *Session) CloseWith(ops ...cluster.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = ops
}

// Ended returns what it takes to close the session where Close could not.
func (s *Session) Ended() Ended {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Ended{Servers: s.opt.Servers, Session: s.shake.session, Password: slices.Clone(s.shake.password), Access: s.opt.Access, Last: &Last{Ops: s.last}}
}

// Close ends the session on the server, so that its ephemerals vanish at once: through its connection, or, where that is
// lost or the session has ended for this side only (a write without a reply), through one of its own. Whoever calls it
// must know that nothing works on the strength of the session any more (S1). An error says that the server did not
// confirm it; then the ephemerals stay until the server ends the session.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	plainly := s.connected && len(s.last) == 0
	s.mu.Unlock()
	if plainly {
		s.farewell(ctx)
	}
	s.end(errors.New("closed"))
	err := s.closeElsewhere(ctx)
	finished := make(chan struct{})
	go func() { // ends when the session's own goroutines have
		s.owned.Wait()
		close(finished)
	}()
	select {
	case <-finished:
		return err
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("closing the session: %w", ctx.Err()))
	}
}

// farewell closes the session through the library, which waits a second for the answer and does not tell it.
func (s *Session) farewell(ctx context.Context) {
	closed := make(chan struct{})
	s.owned.Go(func() {
		defer close(closed)
		s.zk.Close()
	})
	select {
	case <-closed:
	case <-s.done:
	case <-ctx.Done():
	}
}

// closeElsewhere closes a session that the server may still have. This side must be over, lest it take the session back.
func (s *Session) closeElsewhere(ctx context.Context) error {
	s.mu.Lock()
	gone, h, last := s.gone, s.shake, &Last{Ops: s.last}
	s.mu.Unlock()
	if gone || h.session == 0 {
		return nil
	}
	err := undertaker{dial: s.opt.Dial, who: s.identities(), session: h.session, password: h.password, last: last}.closeAnywhere(ctx, s.opt.Servers)
	switch {
	case last.Applied:
		s.opt.Log.Info("leadership is released with the end of the session")
	case last.Refused != nil:
		s.opt.Log.Warn("leadership is not released with the end of the session", "reason", last.Refused)
	}
	if err != nil && !errors.Is(err, ErrNoSuchSession) {
		return fmt.Errorf("%w; its ephemerals stay until the server ends it, after up to %s", err, h.timeout)
	}
	s.vanished()
	return nil
}

// vanished notes that the server has no such session any more.
func (s *Session) vanished() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
}

// end makes the session over: the socket is closed hard, nothing is sent any more, and the library is told to stop.
func (s *Session) end(reason error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	if !errors.Is(reason, cluster.ErrSessionEnded) {
		reason = fmt.Errorf("%w: %w", cluster.ErrSessionEnded, reason)
	}
	s.err = reason
	s.disconnected()
	conn := s.conn
	s.mu.Unlock()
	s.cancel()
	close(s.done)
	if conn != nil {
		conn.Conn.Close()
	}
}

// supervise owns the library's connection: it notices when that stops making progress, and stops it when the session
// has ended. A library that is stuck is abandoned.
func (s *Session) supervise(events <-chan zk.Event) {
	tick := time.NewTicker(s.interval())
	defer tick.Stop()
	for {
		select {
		case <-events:
			// Only drained: the callback has seen them. The channel is closed when the library has stopped.
		case <-tick.C:
			if s.stuck(time.Now()) {
				s.end(errors.New("the client library makes no progress"))
			}
			s.probe()
		case <-s.done:
			s.shutdown(events)
			return
		}
	}
}

// interval is how often supervise looks.
func (s *Session) interval() time.Duration {
	return max(min(s.opt.Timeout, longestPace)/4, 50*time.Millisecond)
}

// stuck reports whether the connection was lost and no other has been tried for long.
func (s *Session) stuck(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle := s.conn == nil && !s.lost.IsZero() && s.dialed.Before(s.lost)
	return idle && now.Sub(s.lost) > max(s.pace()/3, 500*time.Millisecond)
}

func (s *Session) shutdown(events <-chan zk.Event) {
	stopped := make(chan struct{})
	go func() { // ends within 3 s: Close waits no longer
		s.zk.Close()
		close(stopped)
	}()
	limit := time.NewTimer(5 * time.Second)
	defer limit.Stop()
	for {
		select {
		case _, open := <-events:
			if !open {
				<-stopped
				return
			}
		case <-limit.C:
			return
		}
	}
}
