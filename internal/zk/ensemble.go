package zk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"zkelectd/internal/cluster"
)

// ensembleLimit bounds the question to one address of a server.
const ensembleLimit = 2 * time.Second

// errForeign is why a server does not count that says that it does not know the session.
var errForeign = errors.New("it is of another ensemble, or its sessions are local (localSessionsEnabled)")

// EnsembleError is the error of [Session.CheckEnsemble].
type EnsembleError struct {
	// Here is the server that the session is connected to, Of how many are configured.
	Here string
	Of   int
	// Doubts are why some of them do not count. Foreign are those of them that say that they are of another ensemble than Here.
	Doubts, Foreign []string
}

func (e *EnsembleError) Error() string {
	return fmt.Sprintf("only %d of %d servers are known to be of one ensemble with %s: %s", e.Of-len(e.Doubts), e.Of, e.Here, strings.Join(e.Doubts, "; "))
}

// proven reports whether more than half of the servers are of one ensemble.
func (e *EnsembleError) proven() bool { return 2*len(e.Doubts) < e.Of }

// ensembleCheck is the last result of a check.
type ensembleCheck struct {
	running sync.Mutex // held while one runs

	on    *wireConn // the connection that it was about
	at    time.Time
	found *EnsembleError
	err   error
}

// checkFor is how long a result counts for the groups that share a session.
const checkFor = 3 * time.Second

// CheckEnsemble returns an [EnsembleError] unless more than half of the configured servers prove to be of the ensemble that the session is
// connected to: one that was mistyped may be of another, which knows nothing of what was written before.
func (s *Session) CheckEnsemble(ctx context.Context) error {
	e, err := s.askEnsemble(ctx)
	if err == nil && !e.proven() {
		return e
	}
	return err
}

// ForeignServers returns those configured servers that say that they are of another ensemble than the one that the session is connected
// to, here.
func (s *Session) ForeignServers(ctx context.Context) (here string, foreign []string, err error) {
	e, err := s.askEnsemble(ctx)
	if err != nil {
		return "", nil, err
	}
	return e.Here, e.Foreign, nil
}

// askEnsemble asks all servers whether they know a session that it opens at the one to which this session is connected: those of one
// ensemble do, and no other one does. No answer proves nothing. The groups of a session share the result.
func (s *Session) askEnsemble(ctx context.Context) (*EnsembleError, error) {
	c := &s.ensemble
	c.running.Lock()
	defer c.running.Unlock()
	s.mu.Lock()
	conn := s.conn
	if !s.connected { // an answer to the handshake shows that this session is of the server's ensemble
		conn = nil
	}
	s.mu.Unlock()
	if conn == nil {
		return nil, fmt.Errorf("%w: no connection to ZooKeeper", cluster.ErrNotSent)
	}
	if c.on != conn || time.Since(c.at) > checkFor {
		found, err := s.compareServers(ctx, conn)
		c.on, c.at, c.found, c.err = conn, time.Now(), found, err
	}
	return c.found, c.err
}

func (s *Session) compareServers(ctx context.Context, conn *wireConn) (*EnsembleError, error) {
	u := sessionCloser{dial: conn.dialAgain(), timeout: s.Timeout(), password: make([]byte, passwordLen)} // no password yet
	limit := min(ensembleLimit, u.timeout/2)                                                              // the session must outlast the questions
	opened, err := u.openAt(ctx, limit, conn.addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %s opens no further session: %w", cluster.ErrNotSent, conn.addr, err)
	}
	u.session, u.password = opened.session, opened.password
	servers := slices.Compact(slices.Sorted(slices.Values(s.opt.Servers)))
	results := make([]error, len(servers))
	var asking sync.WaitGroup
	for i, server := range servers {
		asking.Go(func() { results[i] = s.knows(ctx, limit, server, u) })
	}
	asking.Wait()
	if err := u.closeWithin(ctx, limit, conn.addr); err != nil { // then it may have ended before the others were asked
		return nil, fmt.Errorf("%w: %s did not keep a session for so long: %w", cluster.ErrNotSent, conn.addr, err)
	}
	e := &EnsembleError{Here: conn.addr, Of: len(servers)}
	for i, err := range results {
		if err != nil {
			e.Doubts = append(e.Doubts, servers[i]+": "+err.Error())
		}
		if errors.Is(err, errForeign) {
			e.Foreign = append(e.Foreign, servers[i])
		}
	}
	return e, nil
}

// knows returns an error unless a server knows a session. If its name has several addresses, more than half of those of IPv4 or of those of
// IPv6 must: often only one of the two kinds leads to a server.
func (s *Session) knows(ctx context.Context, limit time.Duration, server string, u sessionCloser) error {
	lookup, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	addresses, err := ServerAddresses(lookup, server)
	if err != nil {
		return err
	}
	results := make([]error, len(addresses))
	var asking sync.WaitGroup
	for i, address := range addresses {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			at := u
			if at.dial = s.opt.Dial; s.opt.at != nil {
				at.dial = s.opt.at(address)
			}
			_, results[i] = at.attachAt(ctx, server)
		})
	}
	asking.Wait()
	var all, known [2]int
	for i, err := range results {
		family := 0
		if strings.HasPrefix(addresses[i], "[") {
			family = 1
		}
		all[family]++
		if err == nil {
			known[family]++
		}
	}
	switch foreign := slices.ContainsFunc(results, func(err error) bool { return errors.Is(err, ErrNoSuchSession) }); {
	case 2*known[0] > all[0] || 2*known[1] > all[1]:
		return nil
	case foreign:
		return errForeign
	}
	return errors.New(strings.ReplaceAll(errors.Join(results...).Error(), "\n", ", "))
}

// openAt opens a session at a server and hangs up.
func (u sessionCloser) openAt(ctx context.Context, limit time.Duration, server string) (handshake, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
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
