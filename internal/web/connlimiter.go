package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// connLimiter is a listener that limits the number of connections and divides them fairly. At the limit, each new
// connection evicts one without an active request. Probes do not count as active requests, and the limit of active
// requests is lower than that of connections, so a new connection is always accepted, and probes are answered whatever
// other clients do. [golang.org/x/net/netutil.LimitListener] stops accepting at its limit, which would let one client
// block all others.
type connLimiter struct {
	net.Listener
	limit int
	mu    sync.Mutex
	conns []*limitedConn // the oldest first
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

// add adds a new connection. At the limit it replaces another one, which it returns for the caller to close. It returns
// false if the connection must be rejected.
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

// chooseEviction returns the connection to evict for a new one, or nil if all have active requests: among those of the
// network with the most connections, and there of the address with the most, the oldest. So a client that opens many
// connections evicts its own.
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

// client identifies the other end of a connection: a host by its address, or a local user of the unix socket. Limits
// apply to each address. An IPv6 host usually controls a whole /64 of addresses, so limits also apply to each /64, at
// several times the limit of one address: its hosts cannot multiply their limits, and one of them cannot use up those
// of its neighbors.
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

// networkFactor is how many times the limit of one address a whole IPv6 network gets.
const networkFactor = 2

// quota limits how many of something may be in use concurrently: in total, for each address, and for each IPv6 network.
type quota struct {
	total, perClient int
	mu               sync.Mutex
	used             int
	usedBy           map[client]int // keys have only an address or only a network
}

func newQuota(total, perClient int) *quota {
	return &quota{total: total, perClient: perClient, usedBy: make(map[client]int)}
}

// acquire takes one for a client. It returns false if a limit is reached. Otherwise the caller must release it.
func (s *quota) acquire(from client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	address, network := client{address: from.address}, client{network: from.network}
	if s.used >= s.total || s.usedBy[address] >= s.perClient ||
		(from.network != "" && s.usedBy[network] >= networkFactor*s.perClient) {
		return false
	}
	s.used++
	s.usedBy[address]++
	if from.network != "" {
		s.usedBy[network]++
	}
	return true
}

func (s *quota) release(from client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	for _, key := range []client{{address: from.address}, {network: from.network}} {
		if s.usedBy[key] > 1 {
			s.usedBy[key]--
		} else {
			delete(s.usedBy, key)
		}
	}
}
