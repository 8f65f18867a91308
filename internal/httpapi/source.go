package httpapi

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"strconv"
)

// source identifies who is at the other end of a connection: a host by its address, or a local user by the socket. Limits
// are kept for each address. An IPv6 host has a whole /64 of addresses at hand, so they are kept for each /64 as well, at
// several times the limit of one address: its hosts can't multiply themselves, and one of them can't use up the share of
// its neighbors.
type source struct {
	address string
	network string // the /64 of an IPv6 address, else empty
}

// sourceAt returns the source with a remote address as in [http.Request.RemoteAddr].
func sourceAt(remote string) source {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return source{address: remote}
	}
	addr := at.Addr().Unmap()
	s := source{address: addr.String()}
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
	if c := countedOf(conn); c != nil {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// connOf returns the connection that a request came by, nil if it is not one of [places].
func connOf(r *http.Request) *counted {
	c, _ := r.Context().Value(connKey{}).(*counted)
	return c
}

func countedOf(conn net.Conn) *counted {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	c, _ := conn.(*counted)
	return c
}

// sourceOf returns the source of a request.
func sourceOf(r *http.Request) source {
	if c := connOf(r); c != nil {
		return c.source
	}
	return sourceAt(r.RemoteAddr)
}

// newCounted wraps an accepted connection. Over a unix socket the kernel says which user is at the other end.
func newCounted(conn net.Conn, pool *places) *counted {
	c := &counted{Conn: conn, pool: pool, source: sourceAt(conn.RemoteAddr().String())}
	if u, ok := conn.(*net.UnixConn); ok {
		c.source = source{address: "socket"}
		if peer, err := peerOf(u); err == nil {
			c.peer, c.source.address = peer, "uid "+strconv.FormatUint(uint64(peer.Uid), 10)
		}
	}
	return c
}
