package zk

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Servers whose data was rolled back (wiped, or restored from a backup) refuse every client that has seen newer data:
// they close the connection without a reply, forever. A server without a quorum does the same. To tell the two apart, a
// probe requests the same session as a client that has seen nothing: a server that accepts it has older data than this
// client.

// hangUpsBeforeProbe is the number of consecutive hang-ups before each probe. A session that the servers know but
// refuse ends after probesBeforeEnd probes: before that, a follower may merely lag behind, or a quorum may have just
// formed again.
const (
	hangUpsBeforeProbe = 3
	probesBeforeEnd    = 3
)

// noteHangUp records that a server closed the connection instead of answering a connect request.
func (s *Session) noteHangUp(on *wireConn, err error) {
	if !isHangUp(err) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangUps++
	s.hungUp = on
}

// markDisconnected records the loss of the connection. The caller holds s.mu.
func (s *Session) markDisconnected() {
	if s.connected {
		s.connected, s.disconnectedAt = false, time.Now()
		s.reportAt, s.reportPause = s.disconnectedAt.Add(outageReport), outageReport
		select {
		case s.disconnected <- struct{}{}:
		default: // supervise has not taken the last one yet
		}
		if s.onDisconnect != nil {
			s.onDisconnect()
		}
	}
}

// shouldProbe reports whether servers have hung up on the session for so long that a probe should find out why. Every
// lease based on the session must be over, since a probe may move the session away from the library's connection (S1).
// The caller holds s.mu.
func (s *Session) shouldProbe(now time.Time) bool {
	alone := s.err == nil && !s.connected && !s.probing && s.handshake.session != 0
	return alone && s.hangUps >= hangUpsBeforeProbe && now.Sub(s.disconnectedAt) > s.longestTimeout
}

// startProbe starts a probe of the server that hung up last, if one is due.
func (s *Session) startProbe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shouldProbe(time.Now()) {
		return
	}
	s.probing, s.hangUps = true, 0
	hungUp, h, last := s.hungUp, s.handshake, s.refusals+1 >= probesBeforeEnd
	s.goroutines.Go(func() {
		found := s.probeServer(hungUp.addr, hungUp.dialAgain(), h, last)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.probing = false
		if s.refusals++; !found {
			s.refusals = 0
		}
	})
}

// probeServer requests the session from a server, and ends it if the server does not know it, or if the server knows
// but refuses it and this is the last probe. It reports whether the server knows the session.
func (s *Session) probeServer(addr string, dial DialFunc, h handshake, last bool) bool {
	ctx, cancel := context.WithTimeout(s.ctx, closeTimeout)
	defer cancel()
	u := sessionCloser{dial: dial, session: h.session, password: h.password, timeout: h.timeout}
	g, err := u.attachAt(ctx, addr)
	const older = "the data of the ZooKeeper servers is older than what this daemon has seen: were they wiped, or " +
		"restored from a backup?"
	switch {
	case errors.Is(err, ErrNoSuchSession):
		s.opt.Log.Error("the ZooKeeper servers no longer have this session", "server", addr, "session",
			fmt.Sprintf("0x%x", h.session), "advice", older)
		s.markGone()
		s.end(fmt.Errorf("the servers no longer have the session: %s", older))
	case errors.Is(err, errAnotherSession): // every lease is over, and the servers will not continue this session
		s.end(fmt.Errorf("%s: %w", addr, err))
	case err != nil:
		s.opt.Log.Debug("cannot find out why the server hangs up", "server", addr, "err", err)
	case !last:
		s.noteGrant(g)
		s.opt.Log.Warn("a ZooKeeper server refuses this session although it has it: its data is older than what this "+
			"daemon has seen", "server", addr)
	default:
		s.noteGrant(g)
		s.opt.Log.Error("the ZooKeeper servers refuse this session", "server", addr, "session",
			fmt.Sprintf("0x%x", h.session), "advice", older)
		s.end(fmt.Errorf("the servers refuse the session: %s", older))
	}
	return err == nil
}
