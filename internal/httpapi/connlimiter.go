package httpapi

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
func (p *connLimiter) Accept() (net.Conn, error) {
	for {
		conn, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := newLimitedConn(conn, p)
		loser, ok := p.add(c)
		if loser != nil {
			loser.Close()
		}
		if ok {
			return c, nil
		}
		conn.Close()
	}
}

// add adds a new connection. At the limit it replaces another one, which it returns for the caller to close. It returns false
// if the connection must be rejected.
func (p *connLimiter) add(c *limitedConn) (evicted *limitedConn, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.conns) >= p.limit {
		if evicted = p.chooseEviction(c.client); evicted == nil {
			return nil, false
		}
		p.remove(evicted)
	}
	p.conns = append(p.conns, c)
	return evicted, true
}

// chooseEviction returns the connection to evict for a new one, or nil if all have active requests: among those of the network
// with the most connections, and there of the address with the most, the one that has been idle longest. So a client that
// opens many connections evicts its own.
func (p *connLimiter) chooseEviction(newcomer client) *limitedConn {
	addresses, networks := map[string]int{newcomer.address: 1}, map[string]int{newcomer.hostKey(): 1}
	for _, c := range p.conns {
		addresses[c.client.address]++
		networks[c.client.hostKey()]++
	}
	var loser *limitedConn
	for _, c := range p.conns {
		if c.activeRequests > 0 {
			continue
		}
		if loser == nil || cmp.Or(cmp.Compare(networks[c.client.hostKey()], networks[loser.client.hostKey()]),
			cmp.Compare(addresses[c.client.address], addresses[loser.client.address])) > 0 {
			loser = c
		}
	}
	return loser
}

// hostKey returns the key by which hosts are counted: the network of an IPv6 address, otherwise the address itself.
func (s client) hostKey() string { return cmp.Or(s.network, s.address) }

func (p *connLimiter) remove(c *limitedConn) {
	p.conns = slices.DeleteFunc(p.conns, func(o *limitedConn) bool { return o == c })
}

func (p *connLimiter) removeConn(c *limitedConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(c)
}

// connState is the http.Server.ConnState hook. The server reports StateActive once it has read the header of a request.
func (p *connLimiter) connState(conn net.Conn, _ http.ConnState) {
	c := limitedConnOf(conn)
	if c == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.conns, c); i >= 0 {
		p.conns = append(slices.Delete(p.conns, i, i+1), c)
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
