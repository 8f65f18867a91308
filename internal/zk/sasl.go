package zk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"zkelectd/internal/zk/sasl"
)

// SASL says how each connection authenticates by SASL, before the first request on it. It contains file names and no
// secrets.
type SASL struct {
	// Password names a file with one line user:password, for the mechanism DIGEST-MD5.
	Password AuthFile `json:"password,omitzero"`
	// Kerberos says how to log in for the mechanism GSSAPI.
	Kerberos sasl.Kerberos `json:"kerberos,omitzero"`
	// Identity is the name in the scheme sasl that the servers give to connections with Kerberos. If it is empty, they
	// are asked.
	Identity string `json:"identity,omitempty"`
}

// Enabled reports whether connections authenticate by SASL.
func (a SASL) Enabled() bool { return a != SASL{} }

// passwordKey is the setting with [SASL.Password].
const passwordKey = "zookeeper.sasl.password_file"

// user reads the user of DIGEST-MD5.
func (a SASL) user() (identity, error) {
	ids, err := a.Password.read(passwordKey)
	switch {
	case err != nil:
		return identity{}, err
	case len(ids.all) != 1:
		return identity{}, fmt.Errorf("%s: %s must have one line user:password, and has %d", passwordKey,
			a.Password.Path, len(ids.all))
	}
	return ids.all[0], nil
}

// check reads the files and returns an error if any of them is missing or invalid.
func (a SASL) check() error {
	switch {
	case !a.Enabled():
		return nil
	case a.Password.Path != "":
		_, err := a.user()
		return err
	}
	return a.Kerberos.Check()
}

// saslLogin authenticates one connection.
type saslLogin struct {
	exchange sasl.Exchange
	kerberos bool
	id       identity // that the server gives to the connection; the zero value if it must be asked
}

// start returns what authenticates a connection to a server, host:port; nil if connections do not authenticate by SASL.
// It waits for the ticket, if there is none yet, until ctx is done.
func (a SASL) start(ctx context.Context, server string) (*saslLogin, error) {
	switch {
	case !a.Enabled():
		return nil, nil
	case a.Password.Path != "":
		u, err := a.user()
		if err != nil {
			return nil, err
		}
		return &saslLogin{exchange: sasl.NewDigest(u.name, u.password), id: identity{scheme: saslScheme,
			name: u.name}}, nil
	}
	x, err := a.Kerberos.NewExchange(ctx, server)
	if err != nil {
		return nil, err
	}
	l := &saslLogin{exchange: x, kerberos: true}
	if a.Identity != "" {
		l.id = identity{scheme: saslScheme, name: a.Identity}
	}
	return l, nil
}

// wireOpSASL is the operation of SASL, and xidSASL an xid that go-zookeeper does not use.
const (
	wireOpSASL = 102
	xidSASL    = -5
)

// maxSASLSteps limits an exchange: that of Kerberos has three steps.
const maxSASLSteps = 4

// authenticate authenticates a connection on which nothing else is sent.
func (l *saslLogin) authenticate(conn net.Conn) error {
	var challenge []byte
	for range maxSASLSteps {
		token, err := l.exchange.Step(challenge)
		switch {
		case err != nil:
			return fmt.Errorf("SASL: %w", err)
		case l.exchange.Done():
			return nil
		}
		if challenge, err = sendSASL(conn, token); err != nil {
			return l.explain(err)
		}
	}
	return fmt.Errorf("%w: SASL without an end", errNotZooKeeper)
}

// sendSASL sends a token and returns the server's.
func sendSASL(conn net.Conn, token []byte) ([]byte, error) {
	if err := writeRequest(conn, xidSASL, wireOpSASL, appendBuffer(nil, token)); err != nil {
		return nil, err
	}
	body, err := readReply(conn)
	if err != nil {
		return nil, err
	}
	f := fields{rest: body}
	n := f.int()
	if n <= 0 { // -1 for none
		return []byte{}, nil
	}
	challenge := f.skip(n)
	if f.short {
		return nil, fmt.Errorf("%w: a malformed reply", errNotZooKeeper)
	}
	return challenge, nil
}

// explain adds to the error of a server that has refused a token what to do. The server does not say why.
func (l *saslLogin) explain(err error) error {
	var refused *refusedError
	switch {
	case !errors.As(err, &refused):
		return fmt.Errorf("SASL: %w", err)
	case l.kerberos:
		return fmt.Errorf("SASL: the server refuses the ticket: its log says why; often its keytab is not the "+
			"current one of its principal, its clock "+
			"is wrong, kerberos.removeRealmFromPrincipal and auth_to_local do not fit, or it does not use Kerberos "+
			"(%w)", err)
	}
	return fmt.Errorf("SASL: the server refuses the user or the password in %s, or does not use DIGEST-MD5, "+
		"as from 3.9.6 "+
		"on without -Dzookeeper.fips-mode=false: its log says which (%w)", passwordKey, err)
}

// keepTickets renews the tickets of Kerberos until the session ends.
func (s *Session) keepTickets() {
	s.opt.Access.SASL.Kerberos.Keep(s.ctx, s.Servers, func(err error, end time.Time) {
		if end.IsZero() {
			s.opt.Log.Error("there is no valid ticket of Kerberos, so that no connection to ZooKeeper can be opened: "+
				"still trying", "err", err)
			return
		}
		s.opt.Log.Warn("cannot renew the tickets of Kerberos: still trying", "err", err, "valid_until",
			end.Format(time.RFC3339))
	})
}
