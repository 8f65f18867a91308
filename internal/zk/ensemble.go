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

// ensembleLimit bounds the question to one address of a server, as does a quarter of the session timeout.
const ensembleLimit = time.Second

// errForeign is why a server does not count that says that it does not know the session.
var errForeign = errors.New("it is of another ensemble, or its sessions are local (localSessionsEnabled)")

// EnsembleError is the error of [Session.CheckEnsemble].
type EnsembleError struct {
	// Here is the server that the session is connected to, Of how many are configured.
	Here string
	Of   int
	// Doubts are why some of them do not count. Foreign are those of them that say that they are of another ensemble
	// than Here.
	Doubts, Foreign []string
}

func (e *EnsembleError) Error() string {
	return fmt.Sprintf("only %d of %d servers are known to be of one ensemble with %s: %s", e.Of-len(e.Doubts), e.Of,
		e.Here, strings.Join(e.Doubts, "; "))
}

// proven reports whether more than half of the servers are of one ensemble.
func (e *EnsembleError) proven() bool { return 2*len(e.Doubts) < e.Of }

// ensembleCheck is the last result of a check.
type ensembleCheck struct {
	running sync.Mutex // held while one runs

	on    *wireConn // the connection that it was about
	at    time.Time
	found *EnsembleError
}

// checkFor is how long doubts count for the groups that share a session. A proof counts as long as the connection.
const checkFor = 3 * time.Second

// CheckEnsemble returns an [EnsembleError] unless more than half of the configured servers prove to be of the ensemble
// that the session is connected to: one that was mistyped may be of another, which knows nothing of what was written
// before.
func (s *Session) CheckEnsemble(ctx context.Context) error {
	e, err := s.askEnsemble(ctx)
	if err == nil && !e.proven() {
		return e
	}
	return err
}

// ForeignServers returns those configured servers that say that they are of another ensemble than the one that the
// session is connected to, here.
func (s *Session) ForeignServers(ctx context.Context) (here string, foreign []string, err error) {
	e, err := s.askEnsemble(ctx)
	if err != nil {
		return "", nil, err
	}
	return e.Here, e.Foreign, nil
}

// askEnsemble asks all servers whether they know a session that it opens at the one to which this session is connected:
// those of one ensemble do, and no other one does. No answer proves nothing. The groups of a session share the result.
func (s *Session) askEnsemble(ctx context.Context) (*EnsembleError, error) {
	c := &s.ensemble
	c.running.Lock()
	defer c.running.Unlock()
	conn := s.liveConn()
	if conn == nil {
		return nil, fmt.Errorf("%w: no connection to ZooKeeper", cluster.ErrNotSent)
	}
	if c.on == conn && (c.found.proven() || time.Since(c.at) < checkFor) {
		return c.found, nil
	}
	servers := slices.Compact(slices.Sorted(slices.Values(s.Servers())))
	doubts, err := s.compareServers(ctx, conn, servers)
	if err != nil {
		return nil, err
	}
	found := &EnsembleError{Here: conn.addr, Of: len(servers)}
	for _, server := range servers {
		doubt := doubts[server]
		if doubt != nil {
			found.Doubts = append(found.Doubts, server+": "+doubt.Error())
		}
		if errors.Is(doubt, errForeign) {
			found.Foreign = append(found.Foreign, server)
		}
	}
	c.on, c.at, c.found = conn, time.Now(), found
	return found, nil
}

// liveConn returns the connection to a server that has answered the handshake, which shows that this session is of
// its ensemble; nil if there is none.
func (s *Session) liveConn() *wireConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.connected {
		return nil
	}
	return s.conn
}

// compareServers returns why servers do not count as of one ensemble with that of a connection. No answer proves
// nothing.
func (s *Session) compareServers(ctx context.Context, conn *wireConn, servers []string,
) (doubts map[string]error, err error) {
	here := s.closer(conn.dialAgain())
	limit := min(ensembleLimit, here.timeout/4)
	opened, err := here.openAt(ctx, limit, conn.addr)
	if err != nil {
		err = explainHangUp(ctx, here.dial, s.opt.Access.TLS.Enabled, conn.addr, err)
		return nil, fmt.Errorf("%w: %s opens no further session: %w", cluster.ErrNotSent, conn.addr, err)
	}
	here.session, here.password = opened.session, opened.password
	defer func() { _ = here.closeWithin(ctx, limit, conn.addr) }() // else it expires
	doubts = make(map[string]error)
	for _, server := range servers {
		doubts[server] = s.knows(ctx, limit, server, here)
		if err := here.attachWithin(ctx, limit, conn.addr); err != nil {
			// then it may have ended before the server was asked; else it goes on
			return nil, fmt.Errorf("%w: %s did not keep a session: %w", cluster.ErrNotSent, conn.addr, err)
		}
	}
	return doubts, nil
}

// knows returns an error unless a server knows a session. If its name has several addresses, more than half of them
// must; if none of those is foreign, more than half of those of IPv4 or of those of IPv6, as often only one of the two
// leads to a server.
func (s *Session) knows(ctx context.Context, limit time.Duration, server string, u sessionCloser) error {
	lookup, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	addresses, err := ServerAddresses(lookup, server)
	if err != nil {
		return err
	}
	var all, known [2]int
	foreign := false
	for _, address := range addresses {
		// one after the other: they may be those of one server, which serves a session on one connection
		u.dial = s.opt.dialer.at(address)
		family := 0
		if strings.HasPrefix(address, "[") {
			family = 1
		}
		all[family]++
		switch doubt := u.attachWithin(ctx, limit, server); {
		case doubt == nil:
			known[family]++
		case errors.Is(doubt, ErrNoSuchSession):
			foreign = true
		default:
			err = doubt
		}
	}
	switch {
	case foreign && 2*(known[0]+known[1]) <= len(addresses):
		return errForeign
	case foreign, 2*known[0] > all[0], 2*known[1] > all[1]:
		return nil
	}
	return err
}

// attachWithin attaches to the session at a server and hangs up.
func (u sessionCloser) attachWithin(ctx context.Context, limit time.Duration, server string) error {
	return askWithin(ctx, limit, func(ctx context.Context) error {
		_, err := u.attachAt(ctx, server)
		return err
	})
}

// openAt opens a session at a server and hangs up.
func (u sessionCloser) openAt(ctx context.Context, limit time.Duration, server string) (handshake, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, hangUp, err := u.connect(ctx, server)
	if err != nil {
		return handshake{}, err
	}
	defer hangUp()
	return u.open(conn)
}
