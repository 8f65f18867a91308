package web

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"strconv"
)

// client identifies the other end of a connection: a host by its address, or a local user of the unix socket. Limits apply to
// each address. An IPv6 host usually controls a whole /64 of addresses, so limits also apply to each /64, at several times the
// limit of one address: its hosts cannot multiply their limits, and one of them cannot use up those of its neighbors.
type client struct {
	address string
	network string // the /64 of an IPv6 address, else empty
}

// clientAt returns the client with a remote address as in [http.Request.RemoteAddr].
func clientAt(remote string) client {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return client{address: remote}
	}
	addr := at.Addr().Unmap()
	s := client{address: addr.String()}
	if addr.Is6() {
		if p, err := addr.WithZone("").Prefix(64); err == nil {
			s.network = p.String()
		}
	}
	return s
}

// connKey is the key of the *counted connection in a request's context.
type connKey struct{}

// withConn puts a connection into the context of its requests. It is the http.Server.ConnContext hook.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	if c := limitedConnOf(conn); c != nil {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// connOf returns the connection of a request, or nil if it is not one of a [connLimiter].
func connOf(r *http.Request) *limitedConn {
	c, _ := r.Context().Value(connKey{}).(*limitedConn)
	return c
}

func limitedConnOf(conn net.Conn) *limitedConn {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	c, _ := conn.(*limitedConn)
	return c
}

// clientOf returns the client that sent a request.
func clientOf(r *http.Request) client {
	if c := connOf(r); c != nil {
		return c.client
	}
	return clientAt(r.RemoteAddr)
}

// newLimitedConn wraps an accepted connection. For a unix socket, the kernel tells which user is at the other end.
func newLimitedConn(conn net.Conn, limiter *connLimiter) *limitedConn {
	c := &limitedConn{Conn: conn, limiter: limiter, client: clientAt(conn.RemoteAddr().String())}
	if u, ok := conn.(*net.UnixConn); ok {
		c.client = client{address: "socket"}
		if peer, err := peerCredentials(u); err == nil {
			c.peer, c.client.address = peer, "uid "+strconv.FormatUint(uint64(peer.Uid), 10)
		}
	}
	return c
}
