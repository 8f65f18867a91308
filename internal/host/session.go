package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/group"
	"zkelectd/internal/guard"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/zk"
)

// closeTimeout bounds the closing of a session.
const closeTimeout = 5 * time.Second

// session is the host's part of one ZooKeeper session: the memberships of its groups. Nothing that concerns one group
// ends it (docs/protocol.md, Session).
type session struct {
	host    *Host
	zk      *zk.Session
	granted time.Duration      // the session timeout
	base    time.Duration      // the session timeout that leases are based on
	ctx     context.Context    // ends when no membership may begin any more
	cancel  context.CancelFunc // with the reason for the end

	running     sync.WaitGroup // memberships
	leaseZnodes *store.LeaseZnodeWatch
	leasing     sync.Mutex // held while the lease znode is created

	began   time.Time
	mu      sync.Mutex
	members map[*resource]*membership
	unleft  []*membership // that have ended, and whose members are registered until the session ends
	waits   chan struct{} // one slot: there is one more of them, and the session waits for others
	ending  error         // why the session ends; nil while it does not
	ready   chan struct{} // closed once the start is complete
}

// runSession opens a session, runs the memberships of its groups on it, and closes it.
func (h *Host) runSession(ctx context.Context) error {
	s, err := h.open()
	if err != nil {
		return err
	}
	defer h.closeSession(ctx, s.zk)
	c := h.config()
	if err := s.zk.FollowRoot(h.quit, c.ZooKeeper.Root, slices.ContainsFunc(h.resources(), (*resource).wasOpen)); err !=
		nil {
		return err
	}
	for _, path := range []string{cluster.LeaseZnodes(c.ZooKeeper.Root), cluster.Loads(c.ZooKeeper.Root)} {
		// closed with one of many groups
		if !s.zk.RootOpen(c.ZooKeeper.Root) {
			break
		}
		if err := s.zk.FollowClosed(h.quit, path); err != nil {
			return err
		}
	}
	h.opt.Guard.SetSession(guard.Credentials{
		Servers: h.servers(), ID: s.zk.SessionID(), Password: s.zk.Password(), Timeout: s.granted,
		Access: operator.EncodeAccess(operator.Access(c, os.Getenv)),
	})
	h.counters.Update(func(t *status.Totals) { t.Sessions++ })
	err = s.run(ctx)
	if h.quit.Err() == nil {
		h.counters.Update(func(t *status.Totals) { t.SessionsLost++ })
	}
	return err
}

// open opens a session.
func (h *Host) open() (*session, error) {
	c := h.config()
	opening, cancel := h.quit, context.CancelFunc(func() {})
	if limit := c.ZooKeeper.ConnectTimeout; limit > 0 {
		opening, cancel = context.WithTimeout(h.quit, limit)
	}
	defer cancel()
	defer h.keepAlive("waiting for ZooKeeper at " + strings.Join(h.servers(), ", "))()
	var avoid string
	if server := h.avoid.Load(); server != nil {
		avoid = *server
	}
	opened, err := zk.Open(opening, zk.Options{
		Servers: h.servers(), Timeout: c.ZooKeeper.SessionTimeout, Access: operator.Access(c, os.Getenv), Log: h.log,
		Avoid: avoid,
	})
	if err != nil {
		if h.quit.Err() == nil && opening.Err() != nil {
			return nil, &group.PermanentError{Err: err}
		}
		return nil, err
	}
	s := &session{
		host: h, zk: opened, began: time.Now(), granted: opened.Timeout(), ready: make(chan struct{}),
		waits: make(chan struct{}, 1), members: make(map[*resource]*membership),
	}
	s.leaseZnodes = store.NewLeaseZnodeWatch(func(znode string) store.LeaseZnodeSession {
		return opened.Group(cluster.Paths{Root: znode})
	}, boottime.Now)
	s.base = h.leaseBase(s.granted)
	h.device.fit(s.base)
	s.ctx, s.cancel = context.WithCancel(h.quit)
	return s, nil
}

// run runs the memberships until the session ends. It returns when all work is dead.
func (s *session) run(ctx context.Context) error {
	h := s.host
	defer s.cancel()
	h.setSession(s)
	defer h.setSession(nil)
	s.zk.OnShrink(s.base, s.cutLeases)
	h.failsafe.setSession(s.zk)
	defer h.failsafe.setSession(nil)
	beside, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var reloads sync.WaitGroup
	reloads.Go(func() { h.serveReloads(beside, s) })
	reloads.Go(func() { s.checkGroups(beside) })
	reloads.Go(func() { h.follow(beside, s) })
	reloads.Go(func() { h.runLoads(beside, s) })
	for _, r := range h.resources() {
		s.begin(r)
	}
	stopBeat := s.beat()
	select {
	case <-s.zk.Done():
		s.end(s.zk.Err())
	case <-s.ctx.Done():
	}
	s.awaitMemberships()
	cancel()
	stopBeat()
	// If a reload hangs on a disk, the guard ends the daemon, so that the next session does not have to wait.
	h.opt.Guard.Heartbeat(boottime.Now() + s.base)
	reloads.Wait()
	h.opt.Guard.Heartbeat(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// ensureLease creates the lease znode of the session, unless it has one. Without it, a lost leader on this host is
// replaced only when its session has ended.
func (s *session) ensureLease(ctx context.Context) error {
	s.leasing.Lock()
	defer s.leasing.Unlock()
	conn := s.zk.Group(cluster.Paths{Root: cluster.LeaseZnodes(s.host.config().ZooKeeper.Root)})
	defer conn.Close()
	if conn.LeaseZnode() != "" {
		return nil
	}
	znode, err := store.CreateLeaseZnode(ctx, conn, s.host.config().ZooKeeper.Root, s.host.Node())
	if err == nil {
		s.zk.SetLeaseZnode(znode)
	}
	return err
}

// awaitMemberships waits until all memberships have ended. While the work of one group takes its time to end, the
// members of the others leave: they are still eligible, and may be the oldest ones, which must elect, and they no
// longer do (L1).
func (s *session) awaitMemberships() {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with the memberships
		s.running.Wait()
		cancel()
	}()
	t := time.NewTicker(s.granted)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-s.waits:
		case <-ctx.Done():
			return
		}
		s.leaveUnleft(ctx)
	}
}

// maxLeaves bounds how many members leave at once.
const maxLeaves = 16

// leaveUnleft sends LEAVE for those memberships that have ended without one.
func (s *session) leaveUnleft(ctx context.Context) {
	s.mu.Lock()
	unleft := s.unleft
	s.unleft = nil
	s.mu.Unlock()
	var leaves errgroup.Group
	leaves.SetLimit(maxLeaves)
	for _, m := range unleft {
		leaves.Go(func() error {
			if err := m.leave(ctx, m.unleft, errSessionEnds); err != nil {
				s.mu.Lock()
				s.unleft = append(s.unleft, m)
				s.mu.Unlock()
				return nil
			}
			m.unleft.closeConns()
			return nil
		})
	}
	_ = leaves.Wait()
}

// errSessionEnds is why a member leaves although its session ends.
var errSessionEnds = errors.New("the session ends, but waits for the work of another group")

// end ends the session for a reason: all memberships end in order. Only the first reason counts.
func (s *session) end(reason error) {
	s.mu.Lock()
	if s.ending == nil {
		s.ending = reason
	}
	s.mu.Unlock()
	s.cancel()
	for _, m := range s.all() {
		m.end(reason.Error())
	}
}

// stop makes all members release leadership and end, as a person asks for. A second call kills their work at once.
func (s *session) stop(reason string) {
	s.cancel()
	for _, m := range s.all() {
		m.stop(reason)
	}
}

// all returns the memberships.
func (s *session) all() []*membership {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.members))
}

// begin starts the membership of a group, unless the session ends.
func (s *session) begin(r *resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil || s.members[r] != nil {
		return
	}
	m := newMembership(s, r)
	s.members[r] = m
	s.running.Go(func() {
		defer s.host.finishRemoval(r)
		defer s.forget(m)
		m.run()
	})
}

// startTimeout is how long a start with several groups waits for all of them to register before it counts as complete.
const startTimeout = 10 * time.Second

// reportReady reports to the service manager that the start is complete, once every group has registered or was
// refused.
func (s *session) reportReady() {
	waiting := !s.host.single() && time.Since(s.began) > startTimeout
	all := s.all()
	s.mu.Lock()
	if s.isReady() || !waiting && slices.ContainsFunc(all, func(m *membership) bool { return !m.settled.Load() }) {
		s.mu.Unlock()
		return
	}
	close(s.ready)
	s.mu.Unlock()
	s.host.service.ready(s.host.line())
}

func (s *session) isReady() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

func (s *session) forget(m *membership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members, m.resource)
	if m.unleft == nil {
		return
	}
	s.unleft = append(s.unleft, m)
	for other := range s.members {
		if other.leads() {
			signal(s.waits)
			return
		}
	}
}

// member returns the membership of a group; nil if there is none.
func (s *session) member(r *resource) *membership {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[r]
}

// cutLeases shortens all leases and ends leaderships and session when a server has granted a shorter session timeout
// than the one that the leases are based on (A2 in docs/protocol.md). The session calls it before it sends anything on
// the new connection, in a separate goroutine.
func (s *session) cutLeases(g zk.Grant) {
	s.host.noteGrant(g.Timeout)
	reason := fmt.Sprintf("%s granted a session timeout of %s instead of %s", g.Server, g.Timeout, g.Base)
	deadline := g.RequestedAt + cluster.SafeLease(g.Timeout, s.host.config().Election.Lease)
	s.mu.Lock()
	if s.ending == nil {
		s.ending = errors.New(reason)
	}
	s.mu.Unlock()
	s.cancel()
	for _, m := range s.all() {
		m.cutLease(deadline, reason)
	}
	s.host.log.Error("a ZooKeeper server granted a shorter session timeout than the lease is based on: leadership "+
		"ends, and a new session begins",
		"server", g.Server, "granted", g.Timeout, "lease_base", g.Base,
		"advice", fmt.Sprintf("let all servers have a maxSessionTimeout of at least %s, or set "+
			"zookeeper.min_session_timeout: %s on all hosts", g.Base, g.Timeout))
}

func (h *Host) closeSession(ctx context.Context, s *zk.Session) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := s.Close(closing); err != nil {
		h.log.Warn("the session did not close cleanly", "err", err)
	}
	h.opt.Guard.ClearSession()
}

// maxStuck is how many loops may be stuck at once. A loop that never returns keeps its memory and its goroutines, so
// with more of them the daemon is started again.
const maxStuck = 3

// ErrStuckLoops is the error of a host that must be started again, because too many of its groups' event loops are
// stuck.
var ErrStuckLoops = errors.New("too many event loops are stuck: the daemon must be started again")

// beat starts what shows the guard that this daemon is alive, and abandons the members whose loops are stuck. Call
// stop to end that.
func (s *session) beat() (stop func()) {
	h := s.host
	interval := status.ViewInterval(s.granted)
	if watchdog := h.opt.Guard.WatchdogInterval(); watchdog > 0 {
		interval = min(interval, watchdog)
	}
	reconnects := 0
	beat := func() {
		now := boottime.Now()
		// the guard then closes the session before it expires, and releases with that
		h.opt.Guard.Heartbeat(now + s.granted*3/4)
		for _, m := range s.all() {
			m.check(now)
		}
		if n := s.zk.Reconnects(); n != reconnects {
			h.counters.Update(func(t *status.Totals) { t.Reconnects += uint64(n - reconnects) })
			reconnects = n
			for _, m := range s.all() {
				signal(m.reconnected)
			}
		}
		h.publishLoad()
		s.reportReady()
		h.service.status(h.line())
	}
	beat()
	return inBackground(context.Background(), func(ctx context.Context) {
		for sleep(ctx, interval) {
			beat()
		}
	})
}

// loopStuck counts a loop that was abandoned; the function that it returns is called when that loop has returned.
func (h *Host) loopStuck() (returned func(), tooMany bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stuck++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.stuck--
	}, h.stuck >= maxStuck
}

// noteGrant returns the smallest session timeout that any server has granted to this daemon: one that granted it once
// may grant it again at any reconnect.
func (h *Host) noteGrant(timeout time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.smallestGrant = cluster.Earliest(h.smallestGrant, timeout)
	return h.smallestGrant
}

// leaseBase returns the session timeout that leases are based on. It logs that if servers have granted less than
// expected.
func (h *Host) leaseBase(granted time.Duration) time.Duration {
	z := h.config().ZooKeeper
	floor, base := z.MinSessionTimeout, z.LeaseBase(h.noteGrant(granted))
	switch {
	case base < floor:
		h.log.Error("a ZooKeeper server granted less than zookeeper.min_session_timeout: the lease is based on the "+
			"granted timeout",
			"granted", base, "zookeeper.min_session_timeout", floor)
	case base < granted && base != floor:
		h.log.Warn("until the daemon restarts, the lease is based on the shortest session timeout that any "+
			"server has granted",
			"granted", granted, "lease_base", base)
	}
	return base
}

// logBudget logs the timing of the leaderships.
func (r *resource) logBudget(b cluster.Budget) {
	level := slog.LevelDebug
	if r.host.single() {
		level = slog.LevelInfo
	}
	r.log.Log(context.Background(), level, b.Text())
}

// budget returns the timing of the resource's leaderships in this session.
func (s *session) budget(r *resource) (cluster.Budget, error) {
	budget, err := r.config().Budget(s.base)
	if err != nil && s.base < s.granted {
		err = fmt.Errorf("%w; the lease is computed from %s, not from the granted %s: the smallest of "+
			"zookeeper.min_session_timeout (%s) and all timeouts granted since the start",
			err, s.base, s.granted, s.host.config().ZooKeeper.MinSessionTimeout)
	}
	return budget.Granted(s.granted), err
}
