package zkstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// Session is one ZooKeeper session, used once: when it has ended it stays ended, and nothing is sent any more
// (docs/protocol.md, Session). It implements [cluster.ReadWriter], [cluster.Watcher], [cluster.Lifetime] and
// [cluster.Owner].
type Session struct {
	opt   Options
	zk    *zk.Conn
	hosts *hosts

	life   context.Context // over when the session has ended
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{}
	up     chan struct{} // closed at the first handshake
	owned  sync.WaitGroup

	presenting sync.Mutex // held while identities are presented
	presented  identities

	mu        sync.Mutex
	who       identities // whom znodes are created for, by acl
	acl       []zk.ACL
	err       error
	shake     handshake
	connected bool
	conn      *wireConn
	attempts  int
	failures  int
	// reconnects counts the handshakes after the first.
	reconnects int
	// smallest and longest are of the timeouts that were granted; onShrink is called for one below base.
	smallest Shrunk
	longest  time.Duration
	base     time.Duration
	onShrink func(Shrunk)
	// hangUps counts the connect requests in a row on which servers hung up, the last of them at hangUpAt; apart is when
	// the connection was lost.
	hangUps  int
	hangUpAt string
	apart    time.Time
	probing  bool
	refused  int // how many probes in a row found that servers have the session but refuse it
	dialed   time.Time
	lost     time.Time
	troubles map[string]error
	gone     bool // the server has no such session any more
	last     []cluster.Op
	hints    cluster.Hints
	armed    map[watch]bool
}

// watch is a znode and what about it is watched.
type watch struct {
	path     string
	children bool
}

// Open establishes a session. It keeps trying until ctx is over, reporting trouble at growing intervals.
func Open(ctx context.Context, opt Options) (*Session, error) {
	if len(opt.Servers) == 0 || opt.Timeout <= 0 {
		return nil, errors.New("zkstore: servers and a session timeout are needed")
	}
	if len(opt.identities.all) == 0 {
		var err error
		if opt.identities, err = opt.Access.identities(); err != nil {
			return nil, err
		}
	}
	if opt.Dial == nil {
		opt.Dial = opt.Access.dialer()
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	s := &Session{
		opt: opt, who: opt.identities, acl: opt.Access.ACL.list(opt.identities),
		done: make(chan struct{}), wake: make(chan struct{}, 1), up: make(chan struct{}),
		troubles: make(map[string]error), armed: make(map[watch]bool),
	}
	s.life, s.cancel = context.WithCancel(context.Background())
	s.hosts = &hosts{s: s, servers: slices.Clone(opt.Servers)}
	rand.Shuffle(len(s.hosts.servers), func(i, j int) {
		s.hosts.servers[i], s.hosts.servers[j] = s.hosts.servers[j], s.hosts.servers[i]
	})
	conn, events, err := zk.Connect(opt.Servers, opt.Timeout, zk.WithDialer(s.dial), zk.WithHostProvider(s.hosts),
		zk.WithEventCallback(s.event), zk.WithLogger(logger{opt.Log}), zk.WithLogInfo(false))
	if err != nil {
		s.cancel()
		return nil, err
	}
	s.zk = conn
	s.owned.Go(func() { s.supervise(events) })
	if err := s.established(ctx); err != nil {
		s.end(err)
		return nil, err
	}
	return s, nil
}

// established waits for the first handshake and authenticates.
func (s *Session) established(ctx context.Context) error {
	interval := 2 * time.Second
	report := time.NewTimer(interval)
	defer report.Stop()
	for {
		select {
		case <-s.up:
			return s.present(ctx, s.identities())
		case <-s.done:
			return s.Err()
		case <-report.C:
			s.opt.Log.Warn("no ZooKeeper server answers, still trying", "tried", s.tried())
			interval = min(2*interval, time.Minute)
			report.Reset(interval)
		case <-ctx.Done():
			return fmt.Errorf("no ZooKeeper server answers: %s (%w)", s.tried(), ctx.Err())
		}
	}
}

// tried lists the servers with what was wrong with each.
func (s *Session) tried() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, server := range s.opt.Servers {
		if err := s.troubles[server]; err != nil {
			all = append(all, fmt.Sprintf("%s: %v", server, err))
		} else {
			all = append(all, server+": no answer yet")
		}
	}
	return strings.Join(all, "; ")
}

// SessionID is what Stat.Owner shows on this session's ephemerals, 0 before it is established.
func (s *Session) SessionID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shake.session
}

// Timeout returns the smallest session timeout that was granted so far: any reconnect may grant another.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.smallest.Timeout
}

// Password is the session's secret: with the id it can be closed or stolen from elsewhere. It must not be logged.
func (s *Session) Password() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.shake.password)
}

// Connected tells whether a server is connected at this moment. It proves nothing about a lease.
func (s *Session) Connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connected
}

// Reconnects is how often the session went on with another connection.
func (s *Session) Reconnects() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reconnects
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err says why the session has ended, nil while it lives. It matches [cluster.ErrSessionEnded].
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Wake receives when there are hints to take.
func (s *Session) Wake() <-chan struct{} { return s.wake }

// TakeHints returns and clears what has been hinted.
func (s *Session) TakeHints() cluster.Hints {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hints
	s.hints = cluster.Hints{}
	return h
}

// event is called by the library for every event, and must not block.
func (s *Session) event(ev zk.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ev.Type == zk.EventSession && ev.State == zk.StateHasSession:
		// The library re-registers watches, but may fail to without a word: forget them, and read everything again.
		clear(s.armed)
		s.hints.All = true
		s.signal()
	case ev.Type == zk.EventSession && ev.State == zk.StateExpired:
		s.gone = true
		s.owned.Go(func() { s.end(errors.New("expired, or closed from elsewhere")) })
	case ev.Type == zk.EventSession && ev.State == zk.StateDisconnected:
		s.disconnected()
	case ev.Path != "":
		if ev.Type != zk.EventNodeChildrenChanged {
			delete(s.armed, watch{ev.Path, false})
		}
		if ev.Type != zk.EventNodeDataChanged && ev.Type != zk.EventNodeCreated {
			delete(s.armed, watch{ev.Path, true})
		}
		s.hints.Add(ev.Path)
		s.signal()
	}
}

func (s *Session) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// adopt makes w the connection, unless the session has ended.
func (s *Session) adopt(w *wireConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false
	}
	s.conn = w
	return true
}

// dropped notes that w is closed.
func (s *Session) dropped(w *wireConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == w {
		s.conn, s.lost = nil, time.Now()
		s.disconnected()
	}
}

// shook notes a handshake that is complete. Nothing is sent on the connection before it returns.
func (s *Session) shook(h handshake, addr string, asked time.Duration) {
	if h.session != 0 {
		s.granted(Shrunk{Server: addr, Timeout: h.timeout, Asked: asked})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures, s.hangUps, s.refused = 0, 0, 0
	clear(s.troubles)
	if h.session == 0 {
		return // expired: the library says so
	}
	if s.shake.session == 0 {
		defer close(s.up)
	}
	if s.shake.session != 0 {
		s.reconnects++
	}
	s.shake, s.connected = h, true
}

// trouble notes what is wrong with a server.
func (s *Session) trouble(addr string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures++
	s.troubles[addr] = err
	for old := range maps.Keys(s.troubles) {
		if !slices.Contains(s.opt.Servers, old) {
			delete(s.troubles, old)
		}
	}
}

// logger passes the library's messages on; they are for debugging, as the session reports what matters itself.
type logger struct{ log *slog.Logger }

func (l logger) Printf(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }
