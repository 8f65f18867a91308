package zk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/zk/sasl"
)

// Session is one ZooKeeper session. It is used only once: when it has ended it stays ended, and nothing is sent any
// more (docs/protocol.md, Session). It implements [cluster.ReadWriter], [cluster.Watcher], [cluster.Lifetime] and
// [cluster.Owner] for programs without groups, and [Session.Group] returns the handles of groups that share it. It is
// safe for concurrent use.
type Session struct {
	opt   Options
	zk    *zk.Conn
	hosts *hostProvider

	ctx         context.Context // canceled when the session has ended
	cancel      context.CancelFunc
	done        chan struct{}
	established chan struct{} // closed after the first handshake
	// disconnected receives for supervise when the connection is lost.
	disconnected chan struct{}
	goroutines   sync.WaitGroup
	queue        queue
	suspects     *suspects
	ensemble     ensembleCheck
	renewer      *renewer
	own          *Group // for the requests without a handle

	presenting sync.Mutex // held while identities are presented
	presented  identities

	mu         sync.Mutex
	access     Access     // that of opt, and after a change of credentials the new one
	identities identities // those that the session has, and that count for ACLs
	given      []identity // those that the servers have given to its connections
	acl        []zk.ACL
	roots      map[string]bool // with ACLAuto: whether the roots that the session has read are open
	cannotAsk  bool            // a server cannot say which those are
	err        error
	handshake  handshake
	connected  bool
	conn       *wireConn
	attempts   int
	failures   int
	// reconnects counts the handshakes after the first.
	reconnects int
	// smallestGrant and longestTimeout cover all granted timeouts. onShrink is called for one below baseTimeout.
	smallestGrant  Grant
	longestTimeout time.Duration
	baseTimeout    time.Duration
	onShrink       func(Grant)
	onDisconnect   func()
	// hangUps counts the consecutive connect requests on which servers hung up, the last of them on hungUp. disconnectedAt
	// is when the connection was lost.
	hangUps        int
	hungUp         *wireConn
	disconnectedAt time.Time
	// reportAt is when an attempt to connect again that fails is logged next, and reportPause what came before it.
	reportAt     time.Time
	reportPause  time.Duration
	probing      bool
	refusals     int // consecutive probes that found that the servers know the session but refuse it
	lastDial     time.Time
	lostAt       time.Time
	serverErrors map[string]error
	gone         bool                // the server no longer has the session
	groups       map[string][]*Group // by root
	handles      int                 // created so far
	writes       map[*pendingWrite]struct{}
	armed        map[watch]*armedWatch
	deleted      map[string]struct{} // znodes whose deletion a watch has reported, until they are watched again
}

// watch identifies a watch on a znode: on its children, or on its data and existence.
type watch struct {
	path     string
	children bool
}

// Open establishes a session. It keeps trying until ctx is done, and logs warnings at growing intervals. The caller
// must close the session.
func Open(ctx context.Context, opt Options) (*Session, error) {
	if len(opt.Servers) == 0 || opt.Timeout <= 0 {
		return nil, errors.New("store: servers and a session timeout are required")
	}
	ids, err := opt.Access.identities()
	if err != nil {
		return nil, err
	}
	if opt.dialer == nil {
		opt.dialer = opt.Access.dialer()
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	timer, err := boottime.NewTimer()
	if err != nil {
		return nil, err
	}
	s := newSession(opt)
	s.access, s.identities, s.acl = opt.Access, ids, opt.Access.ACL.entries(opt.Access.named(ids))
	s.hosts = &hostProvider{s: s}
	s.SetServers(opt.Servers)
	if at, last := slices.Index(s.hosts.servers, opt.Avoid), len(s.hosts.servers)-1; at >= 0 {
		s.hosts.swap(at, last)
	}
	conn, events, err := zk.Connect(opt.Servers, opt.Timeout, zk.WithDialer(s.dial), zk.WithHostProvider(s.hosts),
		zk.WithEventCallback(s.event), zk.WithLogger(logger{opt.Log}), zk.WithLogInfo(false))
	if err != nil {
		s.cancel()
		timer.Close()
		return nil, err
	}
	s.zk = conn
	s.goroutines.Go(func() { s.supervise(events) })
	s.goroutines.Go(func() { s.renewer.run(s, timer) })
	s.goroutines.Go(s.runSafetyNet)
	if opt.Access.SASL.Kerberos != (sasl.Kerberos{}) {
		s.goroutines.Go(s.keepTickets)
	}
	if err := s.waitEstablished(ctx); err != nil {
		s.end(err)
		return nil, err
	}
	return s, nil
}

// newSession returns a session without the library.
func newSession(opt Options) *Session {
	s := &Session{
		opt: opt, done: make(chan struct{}), established: make(chan struct{}), disconnected: make(chan struct{}, 1),
		serverErrors: make(map[string]error), queue: newQueue(), suspects: newSuspects(opt.Log), renewer: newRenewer(),
		groups: make(map[string][]*Group), writes: make(map[*pendingWrite]struct{}), armed: make(map[watch]*armedWatch),
		deleted: make(map[string]struct{}),
		roots:   make(map[string]bool), reportAt: time.Now().Add(outageReport), reportPause: outageReport,
	}
	s.own = s.newGroup("")
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// waitEstablished waits for the first handshake and then presents the identities.
func (s *Session) waitEstablished(ctx context.Context) error {
	select {
	case <-s.established:
		return s.present(ctx, s.currentIdentities())
	case <-s.done:
		return s.Err()
	case <-ctx.Done():
		return fmt.Errorf("no ZooKeeper server answers: %s (%w)", s.describeServerErrors(), ctx.Err())
	}
}

// describeServerErrors lists the servers with the last error of each.
func (s *Session) describeServerErrors() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, server := range s.opt.Servers {
		if err := s.serverErrors[server]; err != nil {
			all = append(all, fmt.Sprintf("%s: %v", server, err))
		} else {
			all = append(all, server+": no answer yet")
		}
	}
	return strings.Join(all, "; ")
}

// SessionID returns the session's id, which Stat.Owner has on its ephemerals. It is 0 before the session is
// established.
func (s *Session) SessionID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handshake.session
}

// Timeout returns the smallest session timeout that was granted so far: a server may grant another at any reconnect.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.smallestGrant.Timeout
}

// Password returns the session's secret. Together with the id it lets anyone close or take over the session, so it must
// not be logged.
func (s *Session) Password() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.handshake.password)
}

// Server returns the server that the session is connected to; empty if there is none.
func (s *Session) Server() string {
	if conn := s.liveConn(); conn != nil {
		return conn.addr
	}
	return ""
}

// Connected reports whether the session is connected to a server at this moment. That proves nothing about a lease.
func (s *Session) Connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connected
}

// Reconnects returns how often the session has continued on another connection.
func (s *Session) Reconnects() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reconnects
}

// Done returns a channel that is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns why the session has ended, or nil while it lives. The error matches [cluster.ErrSessionEnded].
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Wake returns a channel that receives when there are hints to take.
func (s *Session) Wake() <-chan struct{} { return s.own.Wake() }

// TakeHints returns the hints since the last call and clears them. Those below the root of a [Group] are not among
// them.
func (s *Session) TakeHints() cluster.Hints { return s.own.TakeHints() }

// event handles the library's events. It must not block. The library calls it before it delivers any later reply, and
// the consistency of a snapshot depends on that: a reader that gets newer data finds the hint.
func (s *Session) event(ev zk.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ev.Type == zk.EventSession && ev.State == zk.StateHasSession:
		// The watches ended with the connection before: hint at everything.
		clear(s.armed)
		clear(s.deleted)
		s.allGroups(func(g *Group) { g.hint("") })
	case ev.Type == zk.EventSession && ev.State == zk.StateExpired:
		s.gone = true
		s.goroutines.Go(func() { s.end(errors.New("expired, or closed from elsewhere")) })
	case ev.Type == zk.EventSession && ev.State == zk.StateDisconnected:
		s.markDisconnected()
	case ev.Path != "" && ev.State == zk.StateUnknown: // from unwatchAll
	case ev.Path != "":
		if ev.Type == zk.EventNodeDeleted {
			s.deleted[ev.Path] = struct{}{}
		}
		if ev.Type != zk.EventNodeChildrenChanged {
			delete(s.armed, watch{ev.Path, false})
		}
		if ev.Type != zk.EventNodeDataChanged && ev.Type != zk.EventNodeCreated {
			delete(s.armed, watch{ev.Path, true})
		}
		for _, g := range s.groupsOf(ev.Path) {
			g.hint(ev.Path)
		}
	}
}

// takeDeleted reports whether a watch has reported the deletion of a znode that was not read since.
func (s *Session) takeDeleted(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, deleted := s.deleted[path]
	delete(s.deleted, path)
	return deleted
}

// unwatchAll returns the events that make the library forget all watches.
func (s *Session) unwatchAll() (events []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.armed {
		events = append(events, encodeUnwatch(w.path)...)
	}
	return events
}

// setConn makes w the current connection. It returns false if the session has ended.
func (s *Session) setConn(w *wireConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false
	}
	s.conn = w
	return true
}

// connClosed records that w was closed.
func (s *Session) connClosed(w *wireConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == w {
		s.conn, s.lostAt = nil, time.Now()
		s.suspects.connectionLost()
		s.markDisconnected()
	}
}

// noteGranted records what a server has granted. Nothing is sent on the connection before it returns. An error is the
// end of the session: its ephemerals do not belong to the one that the server has opened.
func (s *Session) noteGranted(h handshake, addr string, requestedAt time.Duration) error {
	if id := s.SessionID(); h.session != 0 && id != 0 {
		if err := checkSameSession(id, h); err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
	}
	if h.session != 0 {
		s.noteGrant(Grant{Server: addr, Timeout: h.timeout, RequestedAt: requestedAt})
	}
	return nil
}

// handshakeDone records a complete handshake, after which the library sends requests.
func (s *Session) handshakeDone(h handshake) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures, s.hangUps, s.refusals = 0, 0, 0
	clear(s.serverErrors)
	if h.session == 0 {
		return // expired: the library reports that in an event
	}
	if s.handshake.session == 0 {
		defer close(s.established)
	}
	if s.handshake.session != 0 {
		s.reconnects++
	}
	s.handshake, s.connected = h, true
}

// noteServerError records the last error of a server.
func (s *Session) noteServerError(addr string, err error) {
	s.mu.Lock()
	s.failures++
	s.serverErrors[addr] = err
	due, since := s.outageDue(time.Now()), s.disconnectedAt
	s.mu.Unlock()
	if !due {
		return
	}
	log := s.opt.Log
	if !since.IsZero() {
		log = log.With("since", since.Format(time.RFC3339))
	}
	log.Warn("no ZooKeeper server answers: still trying", "tried", s.describeServerErrors())
}

// outageDue reports whether it is to be logged that there is no connection: some seconds after the session was opened
// or has lost it, then at growing intervals. The caller holds s.mu.
func (s *Session) outageDue(now time.Time) bool {
	if s.connected || now.Before(s.reportAt) {
		return false
	}
	s.reportPause = min(2*s.reportPause, time.Minute)
	s.reportAt = now.Add(s.reportPause)
	return true
}

// outageReport is how long nothing is logged while there is no connection: most outages are over by then.
const outageReport = 2 * time.Second

// logger logs the library's messages at debug level: the session itself logs what matters.
type logger struct{ log *slog.Logger }

func (l logger) Printf(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }
