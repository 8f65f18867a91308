package httpapi

import (
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
)

// bounded holds the number of connections down. Where all places are taken, whoever has kept one the longest without
// asking anything gives way: so neither idle clients nor ones that never finish their question keep a probe out. If all are
// being answered, the new one is turned away: a load balancer takes that for a no, as it should.
type bounded struct {
	net.Listener
	mu      sync.Mutex
	free    int
	waiting []*counted // that have asked nothing yet, or nothing more; the longest first
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b.take() {
			c := &counted{Conn: conn}
			c.release = sync.OnceFunc(func() { b.give(c) })
			return c, nil
		}
		conn.Close()
	}
}

func (b *bounded) take() bool {
	b.mu.Lock()
	if b.free == 0 && len(b.waiting) > 0 {
		oldest := b.waiting[0]
		b.mu.Unlock()
		oldest.Close() // gives its place back
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	if b.free == 0 {
		return false
	}
	b.free--
	return true
}

func (b *bounded) give(c *counted) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free++
	c.gone = true
	b.forget(c)
}

func (b *bounded) forget(c *counted) {
	b.waiting = slices.DeleteFunc(b.waiting, func(w *counted) bool { return w == c })
}

// turned is told by the server what becomes of a connection. It calls one active once it has read a whole question.
func (b *bounded) turned(conn net.Conn, state http.ConnState) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	c, ok := conn.(*counted)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(c)
	if (state == http.StateNew || state == http.StateIdle) && !c.gone {
		b.waiting = append(b.waiting, c)
	}
}

// counted gives its place back once.
type counted struct {
	net.Conn
	release func()
	gone    bool
}

func (c *counted) Close() error {
	defer c.release()
	return c.Conn.Close()
}
