package zkserver

import (
	"context"
	"fmt"
	"net"
)

// TLS is what a server needs for its secure port. The files are PEM.
type TLS struct {
	// Chain holds the certificate and its key, as PKCS #8.
	Chain string
	// CA holds whom clients' certificates must be signed by.
	CA string
	// Clients must show a certificate.
	Clients bool
}

func (t *TLS) settings(port int) string {
	if t == nil {
		return ""
	}
	clients := "none"
	if t.Clients {
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

// SecureAddr is host:port for clients that speak TLS.
func (s *Server) SecureAddr() string { return fmt.Sprintf("127.0.0.1:%d", s.secure) }

// secureListens reports whether the port for TLS accepts connections, or is not wanted. The server opens it after the other one.
func (s *Server) secureListens(ctx context.Context) bool {
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
