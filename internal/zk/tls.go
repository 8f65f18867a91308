package zk

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"zkelectd/internal/sys/secretfile"
)

// TLS holds the TLS settings of connections to the servers. The files are read for each connection, so that a renewed
// certificate takes effect with the next one.
type TLS struct {
	Enabled bool `json:"enabled,omitempty"`
	// CA is a PEM file with the certificates to trust; empty for the system's.
	CA string `json:"ca,omitempty"`
	// Cert and Key are PEM files with the client certificate, for a server that requests one, and its key.
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
	// ServerName is the name that the server's certificate must be valid for; empty for the host in the server's address.
	ServerName string `json:"server_name,omitempty"`
}

// config reads the files and returns the TLS configuration.
func (t TLS) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		data, err := secretfile.Read("zookeeper.tls.ca", t.CA, 0)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("zookeeper.tls.ca: %s contains no PEM certificate", t.CA)
		}
	}
	if t.Cert == "" {
		return c, nil
	}
	cert, err := secretfile.Read("zookeeper.tls.cert", t.Cert, 0)
	if err != nil {
		return nil, err
	}
	key, err := secretfile.Read("zookeeper.tls.key", t.Key, 0o007)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("zookeeper.tls.cert and .key: %s and %s do not match: %w", t.Cert, t.Key, err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// client performs the TLS handshake with a server. It closes the connection if that fails.
func (t TLS) client(ctx context.Context, raw net.Conn, server string) (net.Conn, error) {
	config, err := t.config()
	if err == nil && config.ServerName == "" {
		config.ServerName, _, err = net.SplitHostPort(server)
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	var asked *x509.Certificate
	if len(config.Certificates) > 0 {
		own := &config.Certificates[0]
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked = own.Leaf
			return own, nil
		}
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, t.explain(err)
	}
	return &tlsConn{conn, raw, t, asked}, nil
}

// tlsConn is a TLS connection. Close closes the socket at once, without close_notify: sending that could block for
// seconds if the server no longer reads, and a session that has ended must not send.
type tlsConn struct {
	*tls.Conn
	raw   net.Conn
	tls   TLS
	asked *x509.Certificate // the one that the server has asked for; nil for none
}

func (c *tlsConn) Close() error { return c.raw.Close() }

// Read reads from the connection and explains a TLS alert: since TLS 1.3, a server can reject the client certificate
// after the handshake.
func (c *tlsConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == alertOp {
		err = c.tls.explain(err)
	}
	return n, err
}

// alertOp is the Op of the error for an alert that the other side has sent.
const alertOp = "remote error"

// explain wraps the error of a failed handshake with what to do about it.
func (t TLS) explain(err error) error {
	var (
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		name      x509.HostnameError
		record    tls.RecordHeaderError
		op        *net.OpError
	)
	switch {
	case errors.As(err, &authority):
		roots := "the system's roots: set zookeeper.tls.ca"
		if t.CA != "" {
			roots = "zookeeper.tls.ca " + t.CA
		}
		return fmt.Errorf("TLS: the server's certificate is not signed by any CA in %s (%w)", roots, err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("TLS: the server's certificate has expired or is not valid yet: renew it, or set this "+
			"host's clock (%w)", err)
	case errors.As(err, &name):
		return fmt.Errorf("TLS: the server's certificate is for another name: set zookeeper.tls.server_name to one "+
			"that it contains (%w)", err)
	case errors.As(err, &record):
		return fmt.Errorf("TLS: the server does not use TLS on this port: set its secureClientPort (of ZooKeeper 3.5 "+
			"or later) in zookeeper.servers (%w)", err)
	case errors.As(err, &op) && op.Op == alertOp:
		if strings.Contains(err.Error(), "protocol version") {
			return fmt.Errorf("TLS: the server does not support TLS 1.2 or later (%w)", err)
		}
		if t.Cert == "" {
			return fmt.Errorf("TLS: the server rejected the connection, most likely because it requires a client "+
				"certificate: set zookeeper.tls.cert and .key (%w)", err)
		}
		return fmt.Errorf("TLS: the server rejected the connection, most likely because of the certificate in "+
			"zookeeper.tls.cert %s: is it valid, and signed by a CA that the server trusts? (%w)", t.Cert, err)
	case isHangUp(err):
		return fmt.Errorf("TLS: the server closed the connection during the handshake: is this its secureClientPort "+
			"(of ZooKeeper 3.5 or later), and does its maxClientCnxns permit another connection from this host? (%w)", err)
	}
	return fmt.Errorf("TLS: %w", err)
}
