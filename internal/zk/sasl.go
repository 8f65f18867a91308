package zk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"zkelectd/internal/cluster"
	"zkelectd/internal/zk/sasl"
)

// SASL says how each connection authenticates by SASL, before the first request on it. It contains file names and no secrets.
type SASL struct {
	// Password names a file with one line user:password, for the mechanism DIGEST-MD5.
	Password AuthFile `json:"password,omitzero"`
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
		return identity{}, fmt.Errorf("%s: %s must have one line user:password, and has %d", passwordKey, a.Password.Path, len(ids.all))
	}
	return ids.all[0], nil
}

// Check reads the files that a names and returns an error if any of them is missing or invalid.
func (a SASL) Check() error {
	if !a.Enabled() {
		return nil
	}
	_, err := a.user()
	return err
}

// saslLogin authenticates one connection.
type saslLogin struct {
	exchange sasl.Exchange
	id       identity // that the server gives to the connection
}

// start returns what authenticates a connection to a server; nil if connections do not authenticate by SASL.
func (a SASL) start(_ context.Context, _ string) (*saslLogin, error) {
	if !a.Enabled() {
		return nil, nil
	}
	u, err := a.user()
	if err != nil {
		return nil, err
	}
	return &saslLogin{exchange: sasl.NewDigest(u.name, u.password), id: identity{scheme: saslScheme, name: u.name}}, nil
}

// wireOpSASL is the operation of SASL, xidSASL an xid that go-zookeeper does not use.
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
			return explainSASL(err)
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

// explainSASL adds to the error of a server that has refused a token what to do. The server does not say why.
func explainSASL(err error) error {
	var refused *refusedError
	if !errors.As(err, &refused) {
		return fmt.Errorf("SASL: %w", err)
	}
	return fmt.Errorf("SASL: the server refuses the user or the password in %s, or does not use DIGEST-MD5: its log says which (%w)", passwordKey, err)
}

// noteSASL records the identity that the servers have given to the session. All must give the same one: znodes are created for it.
func (s *Session) noteSASL(i identity) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.sasl == identity{}:
		s.sasl = i
		s.identities.all = append(slices.Clip(s.identities.all), i)
		s.acl = s.opt.Access.ACL.entries(s.identities)
	case s.sasl != i:
		return fmt.Errorf("%w: this server takes the session for %s, another one for %s: do all servers have the same SASL settings, and was "+
			"the user replaced? Then restart the daemon", cluster.ErrNoAuth, i, s.sasl)
	}
	return nil
}
