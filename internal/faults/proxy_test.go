package faults

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// mode is what a link does to what passes.
type mode int32

const (
	pass      mode = iota
	refuse         // connections are closed, and new ones refused
	blackHole      // nothing comes through, and nobody is told
	halfOpen       // only what goes to the target comes through
	slow           // everything takes up to the link's delay longer
)

// link is a network path to a port that can be made to fail.
type link struct {
	target   string
	listener net.Listener
	mode     atomic.Int32
	delay    atomic.Int64
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[*net.TCPConn]bool
	done  chan struct{} // closed with the link
}

func newLink(target string) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{target: target, listener: listener, conns: make(map[*net.TCPConn]bool), done: make(chan struct{})}
	l.wg.Go(l.accept)
	return l, nil
}

func (l *link) port() int { return l.listener.Addr().(*net.TCPAddr).Port }

func (l *link) accept() {
	for {
		c, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { l.serve(c.(*net.TCPConn)) })
	}
}

func (l *link) serve(c *net.TCPConn) {
	if !l.keep(c) || mode(l.mode.Load()) == refuse {
		l.drop(c)
		return
	}
	s, err := net.DialTimeout("tcp", l.target, 5*time.Second)
	if err != nil || !l.keep(s.(*net.TCPConn)) {
		l.drop(c)
		if err == nil {
			s.Close()
		}
		return
	}
	to := s.(*net.TCPConn)
	l.wg.Go(func() { l.copy(c, to, false) })
	l.copy(to, c, true)
}

// keep notes a connection, unless the link is closed.
func (l *link) keep(c *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.done:
		return false
	default:
		l.conns[c] = true
		return true
	}
}

func (l *link) drop(c *net.TCPConn) {
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
	c.Close()
}

// copy moves bytes until either end is closed.
func (l *link) copy(from, to *net.TCPConn, back bool) {
	defer l.drop(from)
	defer l.drop(to)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		switch m := mode(l.mode.Load()); {
		case m == blackHole, m == halfOpen && back:
			// What was swallowed leaves a hole in the stream: nothing may follow.
			l.swallow(from)
			return
		case m == slow:
			late := time.NewTimer(time.Duration(l.delay.Load()))
			select {
			case <-late.C:
			case <-l.done:
				late.Stop()
			}
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// swallow reads away until the connection is closed.
func (l *link) swallow(from *net.TCPConn) {
	buf := make([]byte, 32<<10)
	for {
		if _, err := from.Read(buf); err != nil {
			return
		}
	}
}

// set changes what the link does.
func (l *link) set(m mode) {
	l.mode.Store(int32(m))
	if m == refuse {
		l.reset(false)
	}
}

// reset breaks what is connected; hard says so with a RST.
func (l *link) reset(hard bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if hard {
			c.SetLinger(0)
		}
		c.Close()
	}
}

func (l *link) close() {
	l.listener.Close()
	l.mu.Lock()
	close(l.done)
	l.mu.Unlock()
	l.reset(false)
	l.wg.Wait()
}
