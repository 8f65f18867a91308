package zk

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
)

// ACLs name identities, and the servers' settings decide which one they give to a principal or a certificate: so they
// are asked on each connection, before the first request.

// wireOpWhoAmI is the operation that asks for the identities of a connection.
const wireOpWhoAmI = 107

// ErrCannotAsk is the error of a server that cannot say who a connection is. It hangs up.
var ErrCannotAsk = errors.New("this server is older than 3.7, and does not say which identity it gives to a " +
	"principal: set zookeeper.sasl.identity " +
	"to the name in its log, in 'Successfully authenticated client'")

// askIdentities asks the server which identities it has given to the connection.
func askIdentities(conn net.Conn) ([]identity, error) {
	if err := writeRequest(conn, xidSASL, wireOpWhoAmI, nil); err != nil {
		return nil, err
	}
	body, err := readReply(conn)
	const unimplemented = -6
	if refused := (*refusedError)(nil); errors.As(err, &refused) && refused.code == unimplemented {
		return nil, ErrCannotAsk
	} else if err != nil {
		return nil, fmt.Errorf("asking for the identity: %w", err)
	}
	var all []identity
	f := fields{rest: body}
	f.list(func() { all = append(all, identity{scheme: string(f.bytes()), name: string(f.bytes())}) })
	if f.short {
		return nil, fmt.Errorf("%w: a malformed reply", errNotZooKeeper)
	}
	return all, nil
}

// identify returns the identities that a server has given to a connection by SASL and by its certificate. If the server
// cannot say what it makes of a principal, that is an error only where ACLs name it.
func (s *Session) identify(conn net.Conn, l *saslLogin) (own []identity, err error) {
	var asked *x509.Certificate
	if c, ok := conn.(*tlsConn); ok {
		asked = c.asked
	}
	knowsLogin := l == nil || l.id != identity{}
	if l != nil && knowsLogin {
		own = append(own, l.id)
	}
	s.mu.Lock()
	access, cannotAsk := s.access, s.cannotAsk
	s.mu.Unlock()
	if knowsLogin && asked == nil {
		return own, access.checkCertificate(own)
	}
	var all []identity
	if !cannotAsk {
		all, err = askIdentities(conn)
	}
	switch {
	case errors.Is(err, ErrCannotAsk) && (knowsLogin || access.ACL.mayBeOpen()):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cannotAsk = true
		return nil, errors.New("connecting again: this server is older than 3.7")
	case err != nil:
		return nil, err
	case cannotAsk && asked != nil:
		switch name := subjectOf(asked); {
		case name != "":
			all = []identity{{scheme: x509Scheme, name: name}}
		case access.namesCertificates():
			return nil, fmt.Errorf("%w: ACLs name certificates, but this server is older than 3.7, and does not say "+
				"how it writes the "+
				"subject %s: set zookeeper.auth.file", cluster.ErrNoAuth, asked.Subject)
		}
	}
	for _, i := range all {
		if i.scheme == x509Scheme || i.scheme == saslScheme && !knowsLogin {
			own = append(own, i)
		}
	}
	accepted := func(i identity) bool { return i.scheme == saslScheme }
	if l != nil && !cannotAsk && !slices.ContainsFunc(own, accepted) {
		return nil, errors.New("SASL: the server has not accepted the ticket, and goes on without an identity: its " +
			"log says why " +
			"(zookeeper.allowSaslFailedClients lets it)")
	}
	return own, access.checkCertificate(own)
}

// checkCertificate returns an error if ACLs name certificates and the server has not recognized that of the connection.
func (a Access) checkCertificate(own []identity) error {
	recognized := func(i identity) bool { return i.scheme == x509Scheme }
	if a.ACL == ACLAuto || !a.namesCertificates() || slices.ContainsFunc(own, recognized) {
		return nil
	}
	return fmt.Errorf("%w: ACLs name certificates, but the server has not asked for that of this host: set "+
		"ssl.clientAuth=need there, and "+
		"zookeeper.tls.cert here", cluster.ErrNoAuth)
}

// noteIdentities records the identities that a server has given to the session. All servers must give the same ones,
// unless all of them are listed: znodes are created for them.
func (s *Session) noteIdentities(own []identity) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.access.used(own)
	if err := s.access.checkListed(used); err != nil {
		return err
	}
	before := identities{all: s.access.used(s.given)}
	switch {
	case before.equal(identities{all: used}):
		s.given = own
		return nil
	case len(before.all) > 0 && len(s.access.Identities) == 0 && s.access.ACL != ACLAuto:
		return fmt.Errorf("%w: this server takes the session for %s, another one for %s: do all servers have the "+
			"same settings, and was the user "+
			"or the certificate replaced by one with another name? Then restart the daemon", cluster.ErrNoAuth,
			strings.Join(tagsOf(used), ", "), strings.Join(before.tags(), ", "))
	}
	change := len(before.all) == 0 || s.access.ACL == ACLAuto
	s.given = own
	s.identities.all = slices.DeleteFunc(slices.Clone(s.identities.all),
		func(i identity) bool { return i.scheme != digestScheme })
	s.identities.all = append(s.identities.all, used...)
	if change {
		s.acl = s.access.ACL.entries(s.access.named(s.identities))
	}
	return nil
}
