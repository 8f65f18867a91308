package zkstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"zkelectd/internal/secretfile"
)

// TLS is how connections to the servers are secured. The files are read for each connection, so that a certificate that
// was renewed counts from the next one on.
type TLS struct {
	Enabled bool `json:"enabled,omitempty"`
	// CA holds the certificates to trust, as PEM; empty for the system's.
	CA string `json:"ca,omitempty"`
	// Cert and Key are shown to a server that asks for them.
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
	// ServerName is what the server's certificate must be for; empty for the host of its address.
	ServerName string `json:"server_name,omitempty"`
}

// dialer opens connections as the access says.
func (a Access) dialer() DialFunc {
	if a.TLS.Enabled {
		return a.TLS.dial
	}
	return (&net.Dialer{}).DialContext
}

// config reads the files.
func (t TLS) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		data, err := secretfile.Read("zookeeper.tls.ca", t.CA, 0)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("zookeeper.tls.ca: %s holds no certificate in PEM", t.CA)
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
		return nil, fmt.Errorf("zookeeper.tls.cert and .key: %s and %s are no pair: %w", t.Cert, t.Key, err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// dial opens a connection and shakes hands.
func (t TLS) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	config, err := t.config()
	if err != nil {
		return nil, err
	}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		config.ServerName = host
	}
	raw, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, t.explain(err)
	}
	return &secured{conn, raw, t}, nil
}

// secured is a connection under TLS. Closing it is hard and at once: a farewell could wait for seconds for a server that
// takes nothing any more, and a session that is over must not send.
type secured struct {
	*tls.Conn
	raw net.Conn
	tls TLS
}

func (c *secured) Close() error { return c.raw.Close() }

// Read explains a refusal. As of TLS 1.3 the server's verdict on our certificate comes after the handshake.
func (c *secured) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	var op *net.OpError
	if errors.As(err, &op) && op.Op == remoteError {
		err = c.tls.explain(err)
	}
	return n, err
}

// remoteError is the Op of an alert that the other side has sent.
const remoteError = "remote error"

// explain says what to do about a failed handshake.
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
			roots = "those in zookeeper.tls.ca " + t.CA
		}
		return fmt.Errorf("TLS: no CA that signed the server's certificate is among %s (%w)", roots, err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("TLS: the server's certificate has expired or is not valid yet: renew it, or set this host's clock (%w)", err)
	case errors.As(err, &name):
		return fmt.Errorf("TLS: the server's certificate is for another name: set zookeeper.tls.server_name to one that it has (%w)", err)
	case errors.As(err, &record):
		return fmt.Errorf("TLS: the server does not speak it at this port: name its secureClientPort in zookeeper.servers (%w)", err)
	case errors.As(err, &op) && op.Op == remoteError:
		if strings.Contains(err.Error(), "protocol version") {
			return fmt.Errorf("TLS: the server speaks no version from 1.2 on (%w)", err)
		}
		if t.Cert == "" {
			return fmt.Errorf("TLS: the server refused us, most likely for want of a certificate: set zookeeper.tls.cert and .key (%w)", err)
		}
		return fmt.Errorf("TLS: the server refused us, most likely for the certificate in zookeeper.tls.cert %s: is it valid, and of a CA that the server trusts? (%w)", t.Cert, err)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("TLS: the server hung up in the handshake: is this its secureClientPort? (%w)", err)
	}
	return fmt.Errorf("TLS: %w", err)
}
