package zkstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
)

// Servers whose data is older than what a client has seen (wiped, or restored from a backup) refuse that client: they hang
// up without an answer, for ever. A server without a quorum hangs up in the same way. So the session is asked for once
// more, as by a client that has seen nothing: a server that answers this had refused the session for its age alone.

// hangUpsBeforeProbe is how often servers must have hung up in a row before each probe. A session that servers have but
// refuse is given up after probesBeforeEnd of them: it may only be that a follower lags behind, or that a quorum has just
// formed again.
const (
	hangUpsBeforeProbe = 3
	probesBeforeEnd    = 3
)

// hungUp notes that a server has hung up on a connect request without an answer.
func (s *Session) hungUp(addr string, err error) {
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangUps++
	s.hangUpAt = addr
}

// disconnected notes the loss of the connection. s.mu is held.
func (s *Session) disconnected() {
	if s.connected {
		s.connected, s.apart = false, time.Now()
	}
}

// suspect reports whether servers have hung up on the session for so long that it is time to find out why: every lease
// that it has carried is over, since a probe may take it away from the library's connection. s.mu is held.
func (s *Session) suspect(now time.Time) bool {
	alone := s.err == nil && !s.connected && !s.probing && s.shake.session != 0
	return alone && s.hangUps >= hangUpsBeforeProbe && now.Sub(s.apart) > s.longest
}

// probe begins to find out whether the servers refuse the session for its age.
func (s *Session) probe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.suspect(time.Now()) {
		return
	}
	s.probing, s.hangUps = true, 0
	addr, h, last := s.hangUpAt, s.shake, s.refused+1 >= probesBeforeEnd
	s.owned.Go(func() {
		found := s.probeAt(addr, h, last)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.probing = false
		if s.refused++; !found {
			s.refused = 0
		}
	})
}

// probeAt ends the session if the server has answered and does not have it, or, if this is the last probe, has it and
// refuses it. It reports whether the server has it.
func (s *Session) probeAt(addr string, h handshake, last bool) bool {
	ctx, cancel := context.WithTimeout(s.life, closeTimeout)
	defer cancel()
	u := undertaker{dial: s.opt.Dial, session: h.session, password: h.password, timeout: h.timeout}
	g, err := u.attachAt(ctx, addr)
	const older = "the data of the ZooKeeper servers is older than what this daemon has seen: were they wiped, or restored from a backup?"
	switch {
	case errors.Is(err, ErrNoSuchSession):
		s.opt.Log.Error("the ZooKeeper servers no longer have this session", "server", addr, "session", fmt.Sprintf("0x%x", h.session), "hint", older)
		s.vanished()
		s.end(fmt.Errorf("the servers no longer have the session: %s", older))
	case err != nil:
		s.opt.Log.Debug("cannot find out why the server hangs up", "server", addr, "err", err)
	case !last:
		s.granted(g)
		s.opt.Log.Warn("a ZooKeeper server refuses this session although it has it: its data is older than what this daemon has seen", "server", addr)
	default:
		s.granted(g)
		s.opt.Log.Error("the ZooKeeper servers refuse this session", "server", addr, "session", fmt.Sprintf("0x%x", h.session), "hint", older)
		s.end(fmt.Errorf("the servers refuse the session: %s", older))
	}
	return err == nil
}
