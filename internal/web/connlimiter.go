package web

import (
	"cmp"
	"net"
	"net/http"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// connLimiter is a listener that limits the number of connections and divides them fairly. At the limit, each new connection
// evicts one without an active request. Probes do not count as active requests, and the limit of active requests is lower than
// that of connections, so a new connection is always accepted, and probes are answered whatever other clients do.
// [golang.org/x/net/netutil.LimitListener] stops accepting at its limit, which would let one client block all others.
type connLimiter struct {
	net.Listener
	limit int
	mu    sync.Mutex
	conns []*limitedConn // in the order of their last state change
}

// Accept implements net.Listener.
func (l *connLimiter) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := newLimitedConn(conn, l)
		evicted, ok := l.add(c)
		if evicted != nil {
			evicted.Close()
		}
		if ok {
			return c, nil
		}
		conn.Close()
	}
}

// add adds a new connection. At the limit it replaces another one, which it returns for the caller to close. It returns false
// if the connection must be rejected.
func (l *connLimiter) add(c *limitedConn) (evicted *limitedConn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) >= l.limit {
		if evicted = l.chooseEviction(c.client); evicted == nil {
			return nil, false
		}
		l.removeLocked(evicted)
	}
	l.conns = append(l.conns, c)
	return evicted, true
}

// chooseEviction returns the connection to evict for a new one, or nil if all have active requests: among those of the network
// with the most connections, and there of the address with the most, the one that has been idle longest. So a client that
// opens many connections evicts its own.
func (l *connLimiter) chooseEviction(newcomer client) *limitedConn {
	addresses, networks := map[string]int{newcomer.address: 1}, map[string]int{newcomer.hostKey(): 1}
	for _, c := range l.conns {
		addresses[c.client.address]++
		networks[c.client.hostKey()]++
	}
	var evicted *limitedConn
	for _, c := range l.conns {
		if c.activeRequests > 0 {
			continue
		}
		if evicted == nil || cmp.Or(cmp.Compare(networks[c.client.hostKey()], networks[evicted.client.hostKey()]),
			cmp.Compare(addresses[c.client.address], addresses[evicted.client.address])) > 0 {
			evicted = c
		}
	}
	return evicted
}

// hostKey returns the key by which hosts are counted: the network of an IPv6 address, otherwise the address itself.
func (c client) hostKey() string { return cmp.Or(c.network, c.address) }

// removeLocked removes a connection. The caller holds l.mu.
func (l *connLimiter) removeLocked(c *limitedConn) {
	l.conns = slices.DeleteFunc(l.conns, func(o *limitedConn) bool { return o == c })
}

func (l *connLimiter) removeConn(c *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeLocked(c)
}

// connState is the http.Server.ConnState hook. The server reports StateActive once it has read the header of a request.
func (l *connLimiter) connState(conn net.Conn, _ http.ConnState) {
	c := limitedConnOf(conn)
	if c == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.conns, c); i >= 0 {
		l.conns = append(slices.Delete(l.conns, i, i+1), c)
	}
}

// limitedConn is a connection of a [connLimiter].
type limitedConn struct {
	net.Conn
	limiter        *connLimiter
	client         client
	peer           *unix.Ucred // the other end of a unix socket, nil if unknown
	activeRequests int         // its requests that are being served, except probes; guarded by limiter.mu
}

// Close closes the connection and removes it from the limiter.
func (c *limitedConn) Close() error {
	defer c.limiter.removeConn(c)
	return c.Conn.Close()
}

// addActiveRequests adds n to the number of active requests. It does nothing if c is nil.
func (c *limitedConn) addActiveRequests(n int) {
	if c == nil {
		return
	}
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.activeRequests += n
}
