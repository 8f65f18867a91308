package httpapi

import (
	"cmp"
	"net"
	"net/http"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// places bounds the number of connections, and divides them fairly. A connection may be kept only while one of its requests
// has a desk; any other gives way when all places are taken. Probes need no desk, and there are more places than desks: so
// a new connection is always let in, and a probe is answered whatever other clients do. What golang.org/x/net/netutil has
// stops accepting at its limit, which is what an attacker wants.
type places struct {
	net.Listener
	limit int
	mu    sync.Mutex
	open  []*counted // the one that has changed last is at the end
}

// Accept implements net.Listener.
func (p *places) Accept() (net.Conn, error) {
	for {
		conn, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := newCounted(conn, p)
		loser, ok := p.enter(c)
		if loser != nil {
			loser.Close()
		}
		if ok {
			return c, nil
		}
		conn.Close()
	}
}

// enter takes a place for a new connection: a free one, or that of the connection returned.
func (p *places) enter(c *counted) (loser *counted, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) >= p.limit {
		if loser = p.choose(c.source); loser == nil {
			return nil, false
		}
		p.remove(loser)
	}
	p.open = append(p.open, c)
	return loser, true
}

// choose returns the connection that gives way to a new one: of the network with the most connections, there of the address
// with the most, the one that has done nothing for the longest. So a client that opens many takes them from itself.
func (p *places) choose(newcomer source) *counted {
	addresses, networks := map[string]int{newcomer.address: 1}, map[string]int{newcomer.host(): 1}
	for _, c := range p.open {
		addresses[c.source.address]++
		networks[c.source.host()]++
	}
	var loser *counted
	for _, c := range p.open {
		if c.desks > 0 {
			continue
		}
		if loser == nil || cmp.Or(cmp.Compare(networks[c.source.host()], networks[loser.source.host()]),
			cmp.Compare(addresses[c.source.address], addresses[loser.source.address])) > 0 {
			loser = c
		}
	}
	return loser
}

// host returns what counts as one host among others: the network of an IPv6 address, any other address itself.
func (s source) host() string { return cmp.Or(s.network, s.address) }

func (p *places) remove(c *counted) {
	p.open = slices.DeleteFunc(p.open, func(o *counted) bool { return o == c })
}

func (p *places) leave(c *counted) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(c)
}

// changed is the http.Server.ConnState hook. The server calls a connection active once it has read the head of a request.
func (p *places) changed(conn net.Conn, _ http.ConnState) {
	c := countedOf(conn)
	if c == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.open, c); i >= 0 {
		p.open = append(slices.Delete(p.open, i, i+1), c)
	}
}

// counted is a connection with a place.
type counted struct {
	net.Conn
	pool   *places
	source source
	peer   *unix.Ucred // the other end of a unix socket, nil if unknown
	desks  int         // of its requests; guarded by pool.mu
}

// Close gives the place back.
func (c *counted) Close() error {
	defer c.pool.leave(c)
	return c.Conn.Close()
}

// seat notes that a request of this connection has got a desk (1) or has given it back (-1). A nil c is no connection of ours.
func (c *counted) seat(n int) {
	if c == nil {
		return
	}
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.desks += n
}
