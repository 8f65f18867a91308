package zkserver

import (
	"context"
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

// secureReady reports whether the TLS port accepts connections or is not configured. The server opens it after the other port.
func (s *Server) secureReady(ctx context.Context) bool {
	if s.opt.TLS == nil {
		return true
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.SecureAddr())
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
