// Package faultproxy provides a TCP proxy that can inject network faults, for the fault campaign and the benchmarks.
package faultproxy

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Mode is what a proxy does with the data that passes.
type Mode int32

// The modes.
const (
	Pass      Mode = iota // forwards everything
	Refuse                // closes all connections, and refuses new ones
	BlackHole             // silently drops everything
	HalfOpen              // silently drops what comes from the target
	Slow                  // adds the delay
	Jitter                // adds a random delay, up to the delay
	// adds the delay to a fifth of the data, twice the delay to a fifth of that, …, like a retransmission by TCP
	Lossy
	HoldToTarget   // holds what goes to the target until the mode changes
	HoldFromTarget // holds what comes from the target until the mode changes
	Hold           // holds both
	NewSession     // makes a ZooKeeper server open a new session for each client that continues one
)

// lossRate is the probability that Lossy loses data, and that it loses the same data again.
const lossRate = 0.2

// Proxy is a TCP proxy to a target. Its creator must close it.
type Proxy struct {
	target   string
	listener net.Listener
	delay    atomic.Int64
	limit    atomic.Int64 // of clients; 0 for none
	accepted atomic.Int64
	wg       sync.WaitGroup

	mu      sync.Mutex
	mode    Mode
	changed chan struct{} // closed when the mode changes
	rng     *rand.Rand
	conns   map[*net.TCPConn]bool
	done    chan struct{} // closed by Close
}

// New returns a proxy to target, host:port, that forwards everything.
func New(target string) (*Proxy, error) { return Listen("127.0.0.1:0", target) }

// ForTest starts a proxy until the end of a test.
func ForTest(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Listen is New with an address to listen at.
func Listen(address, target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		target: target, listener: listener, changed: make(chan struct{}), rng: rand.New(rand.NewPCG(1, 1)),
		conns: make(map[*net.TCPConn]bool), done: make(chan struct{}),
	}
	p.wg.Go(p.accept)
	return p, nil
}

// Port returns the port at which the proxy listens.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Addr returns the address at which the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.accepted.Add(1)
		p.wg.Go(func() { p.serve(c.(*net.TCPConn)) })
	}
}

func (p *Proxy) serve(c *net.TCPConn) {
	if !p.register(c) || p.current() == Refuse || p.full() {
		p.drop(c)
		return
	}
	s, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil || !p.register(s.(*net.TCPConn)) {
		p.drop(c)
		if err == nil {
			s.Close()
		}
		return
	}
	to := s.(*net.TCPConn)
	p.wg.Go(func() { p.copy(c, to, false) })
	p.copy(to, c, true)
}

// register adds a connection. It reports false if the proxy is closed.
func (p *Proxy) register(c *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		return false
	default:
		p.conns[c] = true
		return true
	}
}

func (p *Proxy) drop(c *net.TCPConn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	c.Close()
}

// copy copies data until either end is closed.
func (p *Proxy) copy(from, to *net.TCPConn, back bool) {
	defer p.drop(from)
	defer p.drop(to)
	buf := make([]byte, 32<<10)
	for first := !back; ; first = false {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		switch m := p.current(); {
		case m == NewSession && first && n >= sessionEnd:
			clear(buf[sessionStart:sessionEnd])
		case m == BlackHole, m == HalfOpen && back:
			// Nothing may follow the data that was dropped.
			p.discard(from)
			return
		default:
			p.wait(p.delayFor(m))
			p.waitWhileHeld(back)
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// Where a connect request, which is the first thing that a ZooKeeper client sends, has the id of the session to
// continue.
const (
	sessionStart = 4 + 4 + 8 + 4 // length, protocol version, last zxid, timeout
	sessionEnd   = sessionStart + 8
)

// delayFor returns the delay that a mode adds this time.
func (p *Proxy) delayFor(m Mode) time.Duration {
	delay := time.Duration(p.delay.Load())
	p.mu.Lock()
	defer p.mu.Unlock()
	switch m {
	case Slow:
		return delay
	case Jitter:
		return time.Duration(p.rng.Int64N(int64(delay) + 1))
	case Lossy:
		var total time.Duration
		for p.rng.Float64() < lossRate {
			total, delay = total+delay, 2*delay
		}
		return total
	default:
		return 0
	}
}

// wait waits for d, or until the proxy is closed.
func (p *Proxy) wait(d time.Duration) {
	if d == 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.done:
	}
}

// waitWhileHeld waits while the mode holds the data in this direction.
func (p *Proxy) waitWhileHeld(back bool) {
	for {
		p.mu.Lock()
		m, changed := p.mode, p.changed
		p.mu.Unlock()
		if m != Hold && (m != HoldToTarget || back) && (m != HoldFromTarget || !back) {
			return
		}
		select {
		case <-changed:
		case <-p.done:
			return
		}
	}
}

// discard reads until the connection is closed.
func (p *Proxy) discard(from *net.TCPConn) {
	buf := make([]byte, 32<<10)
	for {
		if _, err := from.Read(buf); err != nil {
			return
		}
	}
}

// Accepted returns how many clients have connected, with those that were refused.
func (p *Proxy) Accepted() int64 { return p.accepted.Load() }

// SetLimit sets how many clients may be connected; the connections of others are closed at once. 0 is for no limit.
func (p *Proxy) SetLimit(clients int) { p.limit.Store(int64(clients)) }

// full reports whether there are more clients than may be.
func (p *Proxy) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.limit.Load()
	return n > 0 && int64(len(p.conns)) > 2*n // each has a connection to the target
}

// SetDelay sets the delay of Slow, Jitter and Lossy.
func (p *Proxy) SetDelay(d time.Duration) { p.delay.Store(int64(d)) }

// Seed seeds the random delays of Jitter and Lossy.
func (p *Proxy) Seed(seed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rng = rand.New(rand.NewPCG(seed, 1))
}

// SetMode sets the mode.
func (p *Proxy) SetMode(m Mode) {
	p.mu.Lock()
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	if m == Refuse {
		p.Reset(false)
	}
}

func (p *Proxy) current() Mode {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode
}

// Reset closes all connections, with a RST if hard is true.
func (p *Proxy) Reset(hard bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if hard {
			c.SetLinger(0)
		}
		c.Close()
	}
}

// Close stops the proxy and closes all connections.
func (p *Proxy) Close() {
	p.listener.Close()
	p.mu.Lock()
	close(p.done)
	p.mu.Unlock()
	p.Reset(false)
	p.wg.Wait()
}
