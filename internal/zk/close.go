package zk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// finals returns the final transactions of all groups.
func (s *Session) finals() []*FinalTx {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*FinalTx
	s.allGroups(func(g *Group) {
		if len(g.finalOps) > 0 {
			all = append(all, &FinalTx{Root: g.root, Ops: g.finalOps})
		}
	})
	return all
}

// Handle returns what [CloseSession] needs to close the session where Close could not.
func (s *Session) Handle() SessionHandle {
	finals := s.finals()
	s.mu.Lock()
	defer s.mu.Unlock()
	return SessionHandle{Servers: s.opt.Servers, Session: s.handshake.session,
		Password: slices.Clone(s.handshake.password), Access: s.opt.Access, Finals: finals}
}

// Close sends the final transaction of each group and ends the session on the server, so that its ephemerals vanish at
// once. It uses the library's connection, or its own if that one is lost or the session has ended only on this side (a
// write without a reply). The caller must know that no work relies on the session any more (S1). An error means that
// the server did not confirm the end; the ephemerals then stay until the server expires the session.
func (s *Session) Close(ctx context.Context) error {
	if s.Connected() && len(s.finals()) == 0 {
		s.closeViaLibrary(ctx)
	}
	s.end(errors.New("closed"))
	err := s.closeDirectly(ctx)
	finished := make(chan struct{})
	go func() { // ends when the session's own goroutines have
		s.goroutines.Wait()
		close(finished)
	}()
	select {
	case <-finished:
		return err
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("closing the session: %w", ctx.Err()))
	}
}

// closeViaLibrary closes the session through the library, which waits up to a second for the reply and does not return
// it.
func (s *Session) closeViaLibrary(ctx context.Context) {
	closed := make(chan struct{})
	s.goroutines.Go(func() {
		defer close(closed)
		s.zk.Close()
	})
	select {
	case <-closed:
	case <-s.done:
	case <-ctx.Done():
	}
}

// closeDirectly closes the session over a new connection, if the server may still have it. The session must have
// ended on this side, or the library would reattach to it.
func (s *Session) closeDirectly(ctx context.Context) error {
	finals := s.finals()
	s.mu.Lock()
	gone, h, servers := s.gone, s.handshake, s.opt.Servers
	s.mu.Unlock()
	if gone || h.session == 0 {
		return nil
	}
	u := s.closer(s.opt.dialer.dial)
	u.session, u.password, u.finals = h.session, h.password, finals
	err := u.closeAnywhere(ctx, s.opt.dialer.visits(ctx, servers))
	for _, f := range finals {
		switch {
		case f.Applied:
			s.opt.Log.Info("released leadership with the end of the session", "root", f.Root)
		case f.Err != nil:
			s.opt.Log.Warn("could not release leadership with the end of the session", "root", f.Root, "reason", f.Err)
		}
	}
	if err != nil && !errors.Is(err, ErrNoSuchSession) {
		return fmt.Errorf("%w; its ephemerals stay until the server expires it, within %s", err, h.timeout)
	}
	s.markGone()
	return nil
}

// closer returns what opens and closes sessions like this one.
func (s *Session) closer(dial DialFunc) sessionCloser {
	return sessionCloser{dial: dial, sasl: s.opt.Access.SASL, identities: s.currentIdentities(), timeout: s.Timeout()}
}

// markGone records that the server no longer has the session.
func (s *Session) markGone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
}

// end ends the session on this side: it closes the socket, prevents all further sending and stops the library. Only the
// first call has an effect.
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
	s.markDisconnected()
	conn := s.conn
	s.mu.Unlock()
	s.cancel()
	close(s.done)
	if conn != nil {
		conn.Conn.Close()
	}
}

// supervise owns the library's connection. It ends the session if the library gets stuck, and stops the library when
// the session has ended. A library that does not stop is abandoned.
func (s *Session) supervise(events <-chan zk.Event) {
	check := time.NewTimer(s.superviseInterval()) // runs while the session is not connected
	defer check.Stop()
	for {
		select {
		case <-events:
			// Only drained: the callback handles the events. The library closes the channel when it has stopped.
		case <-s.disconnected:
			check.Reset(s.superviseInterval())
		case <-check.C:
			if s.stuck(time.Now()) {
				s.end(errors.New("the ZooKeeper client library is stuck"))
			}
			s.startProbe()
			if !s.Connected() {
				check.Reset(s.superviseInterval())
			}
		case <-s.done:
			s.shutdown(events)
			return
		}
	}
}

// superviseInterval returns how often supervise checks the library while the session is not connected.
func (s *Session) superviseInterval() time.Duration {
	return max(min(s.opt.Timeout, maxPace)/4, 50*time.Millisecond)
}

// stuck reports whether the connection has been lost for too long without a new attempt.
func (s *Session) stuck(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle := s.conn == nil && !s.lostAt.IsZero() && s.lastDial.Before(s.lostAt)
	return idle && now.Sub(s.lostAt) > max(s.pace()/3, 500*time.Millisecond)
}

func (s *Session) shutdown(events <-chan zk.Event) {
	stopped := make(chan struct{})
	go func() { // ends within 3 s: Close does not wait longer
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
