package main

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// cable leads to a server. While it is cut nothing comes through, and nobody is told.
type cable struct {
	listener net.Listener
	cut      atomic.Bool
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    []net.Conn
}

func newCable(server string) (*cable, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &cable{listener: listener}
	c.wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			target, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			c.mu.Lock()
			c.conns = append(c.conns, client, target)
			c.mu.Unlock()
			c.wg.Go(func() { c.copy(target, client) })
			c.wg.Go(func() { c.copy(client, target) })
		}
	})
	return c, nil
}

// copy ends with a stream that has a hole: what a cut cable has swallowed is not sent again.
func (c *cable) copy(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if c.cut.Load() {
			io.Copy(io.Discard, from)
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (c *cable) addr() string { return c.listener.Addr().String() }

func (c *cable) close() {
	c.listener.Close()
	c.mu.Lock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.mu.Unlock()
	c.wg.Wait()
}
