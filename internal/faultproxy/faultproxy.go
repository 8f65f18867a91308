// Package faultproxy is a network path that can be made to fail: for the fault campaign and the measurements.
package faultproxy

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Mode is what a link does to what passes.
type Mode int32

// The modes.
const (
	Pass      Mode = iota
	Refuse         // connections are closed, and new ones refused
	BlackHole      // nothing comes through, and nobody is told
	HalfOpen       // only what goes to the target comes through
	Slow           // everything takes the link's delay longer
	Jitter         // everything takes longer, by up to the link's delay: so much is chosen anew each time
	Lossy          // a fifth of what is sent is sent again, as TCP does: after the link's delay, then after twice that, …
	HoldTo         // what goes to the target waits until the mode changes, and comes through late
	HoldFrom       // what comes from the target does
	Hold           // both do
)

// lossRate is the probability that Lossy loses something, and then that it loses it again.
const lossRate = 0.2

// Link is a network path to a port. Whoever has made it closes it.
type Link struct {
	target   string
	listener net.Listener
	delay    atomic.Int64
	wg       sync.WaitGroup

	mu      sync.Mutex
	mode    Mode
	changed chan struct{} // closed with the next change of the mode
	rng     *rand.Rand
	conns   map[*net.TCPConn]bool
	done    chan struct{} // closed with the link
}

// New returns a link to target, host:port, that lets all pass.
func New(target string) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Link{
		target: target, listener: listener, changed: make(chan struct{}), rng: rand.New(rand.NewPCG(1, 1)),
		conns: make(map[*net.TCPConn]bool), done: make(chan struct{}),
	}
	l.wg.Go(l.accept)
	return l, nil
}

// Port is that on the loopback address where the link begins.
func (l *Link) Port() int { return l.listener.Addr().(*net.TCPAddr).Port }

func (l *Link) accept() {
	for {
		c, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { l.serve(c.(*net.TCPConn)) })
	}
}

func (l *Link) serve(c *net.TCPConn) {
	if !l.keep(c) || l.current() == Refuse {
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
func (l *Link) keep(c *net.TCPConn) bool {
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

func (l *Link) drop(c *net.TCPConn) {
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
	c.Close()
}

// copy moves bytes until either end is closed.
func (l *Link) copy(from, to *net.TCPConn, back bool) {
	defer l.drop(from)
	defer l.drop(to)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		switch m := l.current(); {
		case m == BlackHole, m == HalfOpen && back:
			// What was swallowed leaves a hole in the stream: nothing may follow.
			l.swallow(from)
			return
		default:
			l.wait(l.late(m))
			l.held(back)
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// late chooses how much longer something takes.
func (l *Link) late(m Mode) time.Duration {
	delay := time.Duration(l.delay.Load())
	l.mu.Lock()
	defer l.mu.Unlock()
	switch m {
	case Slow:
		return delay
	case Jitter:
		return time.Duration(l.rng.Int64N(int64(delay) + 1))
	case Lossy:
		var total time.Duration
		for l.rng.Float64() < lossRate {
			total, delay = total+delay, 2*delay
		}
		return total
	default:
		return 0
	}
}

// wait lets time pass, unless the link is closed.
func (l *Link) wait(d time.Duration) {
	if d == 0 {
		return
	}
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-late.C:
	case <-l.done:
	}
}

// held waits while what goes in this direction is held.
func (l *Link) held(back bool) {
	for {
		l.mu.Lock()
		m, changed := l.mode, l.changed
		l.mu.Unlock()
		if m != Hold && (m != HoldTo || back) && (m != HoldFrom || !back) {
			return
		}
		select {
		case <-changed:
		case <-l.done:
			return
		}
	}
}

// swallow reads away until the connection is closed.
func (l *Link) swallow(from *net.TCPConn) {
	buf := make([]byte, 32<<10)
	for {
		if _, err := from.Read(buf); err != nil {
			return
		}
	}
}

// Delay is what Slow, Jitter and Lossy add from now on.
func (l *Link) Delay(d time.Duration) { l.delay.Store(int64(d)) }

// Seed begins the choices of Jitter and Lossy anew.
func (l *Link) Seed(seed uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rng = rand.New(rand.NewPCG(seed, 1))
}

// Set changes what the link does.
func (l *Link) Set(m Mode) {
	l.mu.Lock()
	l.mode = m
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
	if m == Refuse {
		l.Reset(false)
	}
}

func (l *Link) current() Mode {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mode
}

// Reset breaks what is connected; hard says so with a RST.
func (l *Link) Reset(hard bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if hard {
			c.SetLinger(0)
		}
		c.Close()
	}
}

// Close ends the link and all that goes over it.
func (l *Link) Close() {
	l.listener.Close()
	l.mu.Lock()
	close(l.done)
	l.mu.Unlock()
	l.Reset(false)
	l.wg.Wait()
}
