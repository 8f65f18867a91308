package cli

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"zkelectd/internal/operator/status"
)

// link is a network path between one daemon and the server, which can be cut.
type link struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

func newLink(t *testing.T, target string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener}
	l.wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			l.connect(c, target)
		}
	})
	t.Cleanup(func() {
		listener.Close()
		l.set(true)
		l.wg.Wait()
	})
	return l
}

func (l *link) connect(c net.Conn, target string) {
	s, err := net.Dial("tcp", target)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || l.down {
		c.Close()
		if err == nil {
			s.Close()
		}
		return
	}
	l.conns = append(l.conns, c, s)
	l.wg.Go(func() { io.Copy(s, c); s.Close() })
	l.wg.Go(func() { io.Copy(c, s); c.Close() })
}

func (l *link) set(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	if down {
		for _, c := range l.conns {
			c.Close()
		}
		l.conns = nil
	}
}

// A leader that is cut off until the server has expired its session: its child is dead before another one starts, and it joins
// again by itself, in a new session.
func TestSessionThatExpiresOnTheServer(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	l := newLink(t, shared.Addr())
	servers := f.servers
	f.servers = []string{l.listener.Addr().String()}
	f.configure("a", "dc1", 2, "")
	f.start("a")
	f.until("a leads", leads("a"))
	f.waitForChild("a", 1)
	f.servers = servers
	f.configure("b", "dc1", 1, "")
	f.start("b")
	f.until("b has joined", func(g status.Group) bool { return len(g.Members) == 2 })

	l.set(true)
	g := f.until("b leads", leads("b"))
	if g.Cause != "failure" {
		t.Errorf("cause %s: %s", g.Cause, g.Reason)
	}
	f.waitForChild("b", 1)
	l.set(false)
	f.until("a is back, and leads as the better one", leads("a"))
	f.waitForChild("a", 2)
	if all := f.checkInvariants(); len(all) != 3 {
		t.Errorf("tenures %+v", all)
	}
	if n := strings.Count(f.daemons["a"].output(), "msg=registered"); n != 2 {
		t.Errorf("a registered %d times", n)
	}
}

// Short interruptions of the connection change nothing.
func TestBlipChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	l := newLink(t, shared.Addr())
	f.servers = []string{l.listener.Addr().String()}
	f.configure("a", "dc1", 1, "zookeeper: {session_timeout: 30s}\n")
	f.start("a")
	before := f.until("a leads", leads("a"))
	f.waitForChild("a", 1)
	for range 3 {
		l.set(true)
		l.set(false)
		after := f.until("a leads", leads("a"))
		if after.Term != before.Term {
			t.Errorf("term %d, then %d", before.Term, after.Term)
		}
	}
	if all := f.checkInvariants(); len(all) != 1 || all[0].ended {
		t.Errorf("tenures %+v", all)
	}
}
