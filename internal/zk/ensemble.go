package zk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// ensembleLimit bounds the question to one server.
const ensembleLimit = 2 * time.Second

// ErrForeign is the error for a server of another ensemble than the one that the session is connected to.
var ErrForeign = errors.New("it is of another ensemble, as it does not know a session of this one")

// EnsembleError is the error of [Session.CheckEnsemble]. It matches [ErrForeign] if a server has said so.
type EnsembleError struct {
	// Here is the server that the session is connected to, Of how many are configured.
	Here string
	Of   int
	// Doubts are why the others do not count.
	Doubts []error
}

func (e *EnsembleError) Error() string {
	var texts []string
	for _, doubt := range e.Doubts {
		texts = append(texts, doubt.Error())
	}
	return fmt.Sprintf("only %d of %d servers are known to be of one ensemble with %s: %s", e.Of-len(e.Doubts), e.Of, e.Here, strings.Join(texts, "; "))
}

// Unwrap returns the doubts.
func (e *EnsembleError) Unwrap() []error { return e.Doubts }

// CheckEnsemble returns an [EnsembleError] unless more than half of the configured servers prove to be of the ensemble that the session is
// connected to: one that was mistyped may be of another, which knows nothing of what was written before.
func (s *Session) CheckEnsemble(ctx context.Context) error {
	here, doubts, err := s.doubts(ctx)
	if all := len(s.opt.Servers); err == nil && 2*len(doubts) >= all {
		err = &EnsembleError{here, all, slices.Collect(maps.Values(doubts))}
	}
	return err
}

// ForeignServers returns those configured servers that say that they are of another ensemble than the one that the session is connected to.
func (s *Session) ForeignServers(ctx context.Context) (foreign []string, err error) {
	_, doubts, err := s.doubts(ctx)
	for server, doubt := range doubts {
		if errors.Is(doubt, ErrForeign) {
			foreign = append(foreign, server)
		}
	}
	slices.Sort(foreign)
	return foreign, err
}

// doubts returns the server to which the session is connected, and for each other one that does not prove to be of the same ensemble why
// not. It opens a further session, which all servers of an ensemble know and no other one does. No answer proves nothing.
func (s *Session) doubts(ctx context.Context) (here string, doubts map[string]error, err error) {
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn == nil {
		return "", nil, fmt.Errorf("%w: no connection to ZooKeeper", cluster.ErrNotSent)
	}
	u := sessionCloser{dial: conn.dialAgain(), timeout: s.Timeout(), password: make([]byte, passwordLen)} // no password yet
	opened, err := u.openAt(ctx, conn.addr)
	if err != nil {
		return conn.addr, nil, fmt.Errorf("%s: cannot open a session: %w", conn.addr, err)
	}
	u.session, u.password = opened.session, opened.password
	defer func() { _ = u.closeWithin(ctx, ensembleLimit, conn.addr) }() // else it expires
	doubts = make(map[string]error)
	for _, server := range s.opt.Servers {
		if err := s.knows(ctx, server, u); err != nil {
			doubts[server] = fmt.Errorf("%s: %w", server, err)
		}
	}
	return conn.addr, doubts, nil
}

// knows returns an error unless the server knows a session, at one of its addresses.
func (s *Session) knows(ctx context.Context, server string, u sessionCloser) error {
	ctx, cancel := context.WithTimeout(ctx, ensembleLimit)
	defer cancel()
	addresses, err := ServerAddresses(ctx, server)
	for _, address := range addresses {
		if u.dial = s.opt.Dial; s.opt.at != nil {
			u.dial = s.opt.at(address)
		}
		if _, err = u.attachAt(ctx, server); err == nil {
			return nil
		}
	}
	if errors.Is(err, ErrNoSuchSession) {
		return ErrForeign
	}
	return err
}

// openAt opens a session at a server and hangs up.
func (u sessionCloser) openAt(ctx context.Context, server string) (handshake, error) {
	ctx, cancel := context.WithTimeout(ctx, ensembleLimit)
	defer cancel()
	conn, err := u.dial(ctx, "tcp", server)
	if err != nil {
		return handshake{}, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	h, err := u.shakeHands(conn)
	if err == nil && h.session == 0 {
		err = errNoSession
	}
	return h, err
}

// errNoSession is the error for a server that opens no session.
var errNoSession = errors.New("the server did not open a session")
