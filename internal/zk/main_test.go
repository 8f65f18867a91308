package zk

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/test/zkserver"
)

// shared is a server for the tests that do not damage it.
var shared zkserver.Lazy

func TestMain(m *testing.M) {
	code := m.Run()
	shared.Stop()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func open(t *testing.T, opt Options) *Session {
	t.Helper()
	if opt.Servers == nil {
		opt.Servers = []string{shared.Addr()}
	}
	if opt.Timeout == 0 {
		opt.Timeout = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := Open(ctx, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSession(t, s) })
	return s
}

func closeSession(t *testing.T, s *Session) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

var roots atomic.Int32

// root creates a new group on the shared server.
func root(t testing.TB, s cluster.ReadWriter) cluster.Paths {
	t.Helper()
	p := cluster.Paths{Root: fmt.Sprintf("/test%d", roots.Add(1))}
	ensureTree(t, s, p)
	return p
}

// ensureTree creates the persistent znodes of a group.
func ensureTree(t testing.TB, s cluster.ReadWriter, p cluster.Paths) {
	t.Helper()
	for _, path := range p.Skeleton() {
		if _, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: path, Data: []byte{}}); err != nil {
			t.Fatal(err)
		}
	}
}

// register registers a member, as package store does it.
func register(t testing.TB, s *Session, p cluster.Paths, id string) (cluster.Incarnation, error) {
	t.Helper()
	results, err := s.Do(t.Context(), p.RegisterTx(cluster.Node{ID: id, Instance: cluster.NewInstance(1)})...)
	if err != nil {
		return cluster.Incarnation{}, err
	}
	return cluster.ParseIncarnation(strings.TrimPrefix(results[len(results)-1].Path, p.Election()+"/"))
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testhelper.Eventually(t, 30*time.Second, what, ok)
}

func ended(s *Session) func() bool { return func() bool { return s.Err() != nil } }

// proxy forwards connections to a server. It can drop replies and refuse connections.
type proxy struct {
	t        *testing.T
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	mute  bool   // drop the server's replies
	dead  bool   // close new connections at once
	sent  []byte // by the client, since the last cut
}

func newProxy(t *testing.T, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, listener: l, target: target}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		dead := p.dead
		p.mu.Unlock()
		if dead {
			c.Close()
			continue
		}
		s, err := net.Dial("tcp", p.target)
		if err != nil {
			c.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, c, s)
		p.mu.Unlock()
		p.wg.Go(func() { io.Copy(s, io.TeeReader(c, p)); s.Close() })
		p.wg.Go(func() { p.answer(c, s); c.Close() })
	}
}

func (p *proxy) answer(c, s net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := s.Read(buf)
		p.mu.Lock()
		mute := p.mute
		p.mu.Unlock()
		if err != nil {
			return
		}
		if mute {
			continue
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

// Write records what the client sends.
func (p *proxy) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = append(p.sent, b...)
	return len(b), nil
}

// operations returns what the client has asked for since the last cut, after its connect request.
func (p *proxy) operations() (all []uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for rest := p.sent; len(rest) >= 12; {
		n := 4 + binary.BigEndian.Uint32(rest)
		all = append(all, binary.BigEndian.Uint32(rest[8:]))
		rest = rest[min(int(n), len(rest)):]
	}
	return all[min(1, len(all)):]
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns, p.sent = nil, nil
}

func (p *proxy) set(mute, dead bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute, p.dead = mute, dead
}

func contains(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v lacks %q", err, w)
		}
	}
}
