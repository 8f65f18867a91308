package zkserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
)

// TLS configures the secure port of a server. The files are in PEM format.
type TLS struct {
	// Chain is a file with the server's certificate and its PKCS #8 key.
	Chain string
	// CA is a file with the authority that signs the certificates of clients.
	CA string
	// RequireClientCert makes the server reject clients without a certificate.
	RequireClientCert bool
}

func (t *TLS) config(port int) string {
	if t == nil {
		return ""
	}
	clients := "none"
	if t.RequireClientCert {
		clients = "need"
	}
	return fmt.Sprintf(`serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
secureClientPort=%d
secureClientPortAddress=127.0.0.1
ssl.keyStore.location=%s
ssl.keyStore.type=PEM
ssl.trustStore.location=%s
ssl.trustStore.type=PEM
ssl.clientAuth=%s
`, port, t.Chain, t.CA, clients)
}

// SecureAddr returns the address, as host:port, for clients that use TLS.
func (s *Server) SecureAddr() string { return fmt.Sprintf("127.0.0.1:%d", s.securePort) }

// secureReady reports whether the TLS port answers a handshake or is not configured. The server opens it after the
// other port, and the first handshake can take it seconds: Java loads the classes for it then.
func (s *Server) secureReady(ctx context.Context) bool {
	if s.opt.TLS == nil {
		return true
	}
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", s.SecureAddr())
	if err != nil {
		return false
	}
	defer raw.Close()
	// Any answer is good: the certificate may be invalid on purpose, and the server may require one of the client.
	tls.Client(raw, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx)
	return ctx.Err() == nil
}
