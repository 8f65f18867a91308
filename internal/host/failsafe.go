package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/failsafe/agent"
	"zkelectd/internal/failsafe/peer"
	"zkelectd/internal/group"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/transition/failsafe"
	"zkelectd/internal/zk"
)

// failsafeMode is the host's part of failsafe mode, for all groups that take part. Its agent is opened for the first of
// them, and outlives sessions.
type failsafeMode struct {
	host  *Host
	agent atomic.Pointer[agent.Agent] // nil until a group needs it
	zk    atomic.Pointer[zk.Session]  // nil while there is no session

	// auditPace is how often each group's keys are checked for an ACL that lets others read them.
	auditPace time.Duration

	opening sync.Mutex
	closed  bool
	handler http.Handler // of the agent
}

const keysAuditPace = time.Minute

func newFailsafeMode(h *Host) *failsafeMode { return &failsafeMode{host: h, auditPace: keysAuditPace} }

// open returns the agent, and opens it unless it is. It returns nil if the host ends.
func (f *failsafeMode) open() (*agent.Agent, error) {
	f.opening.Lock()
	defer f.opening.Unlock()
	if a := f.agent.Load(); a != nil || f.closed {
		return a, nil
	}
	a, err := agent.Open(agent.Options{Node: f.host.config().Node.ID, StateDir: f.host.opt.StateDir,
		Clock: boottime.Now, Log: f.host.log})
	if err != nil {
		return nil, err
	}
	a.SetProbe(f.probe)
	f.handler = a.Handler()
	f.agent.Store(a)
	return a, nil
}

// check opens the agent if the daemon's only group needs it: what its host may have promised must be known.
func (f *failsafeMode) check() error {
	if !f.host.single() || !f.host.config().Failsafe.Enabled {
		return nil
	}
	_, err := f.open()
	return needsStateDir(err)
}

func needsStateDir(err error) error {
	if err != nil {
		err = fmt.Errorf("failsafe.enabled needs a state directory: %w", err)
	}
	return err
}

// close closes the agent.
func (f *failsafeMode) close() {
	f.opening.Lock()
	defer f.opening.Unlock()
	f.closed, f.handler = true, nil
	if a := f.agent.Swap(nil); a != nil {
		a.Close()
	}
}

// setSession sets the session by which the agent finds out whether ZooKeeper answers; nil for none.
func (f *failsafeMode) setSession(s *zk.Session) {
	if f.zk.Store(s); s != nil {
		s.OnDisconnect(f.suspect)
	}
}

func (f *failsafeMode) suspect() {
	if a := f.agent.Load(); a != nil {
		a.Suspect()
	}
}

// probe sends a write that changes nothing, but goes through the quorum.
func (f *failsafeMode) probe(ctx context.Context) error {
	session := f.zk.Load()
	if session == nil {
		return cluster.ErrNotSent
	}
	_, err := session.Do(zk.WithPriority(ctx, zk.PriorityUrgent), cluster.Op{Kind: cluster.OpCheck,
		Path: f.host.config().ZooKeeper.Root, Version: cluster.AnyVersion})
	return err
}

// HandleFailsafe returns a handler that answers the other daemons in failsafe mode, once a group of this host takes
// part, and passes other requests on to next.
func (h *Host) HandleFailsafe(next http.Handler) http.Handler {
	f := h.failsafe
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.opening.Lock()
		handler := f.handler
		f.opening.Unlock()
		if r.URL.Path != peer.Path || handler == nil {
			next.ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// participation is the part of a resource in failsafe mode, for one instance.
type participation struct {
	agent    *agent.Agent
	resource *resource
	conn     *zk.Group     // nil if the instance asks nobody, and promises nothing: it only agrees to successors
	known    agent.Group   // as last set
	audit    time.Duration // when to look next whether others can read the keys
}

// join prepares an instance of a resource for failsafe mode; nil if its configuration does not enable that, or the
// group cannot use it.
func (m *membership) join(ctx context.Context, b cluster.Budget) (*participation, error) {
	f, r, c := m.session.host.failsafe, m.resource, m.resource.config()
	switch {
	case c.Slots.Enabled():
		return nil, nil
	case !c.Failsafe.Enabled:
		f.forget(r.root)
		return m.agree(ctx)
	}
	a, err := f.open()
	if err = needsStateDir(err); err == nil && a == nil {
		err = errors.New("the host ends")
	}
	if err == nil {
		if err = c.CheckFailsafeStop(m.session.base); err != nil {
			err = fmt.Errorf("child.stop_timeout: %w", err)
		}
	}
	if err != nil {
		return nil, &group.PermanentError{Err: err}
	}
	if err := errors.Join(a.SetBudget(b), a.TakePart(failsafe.Group(r.paths()))); err != nil {
		return nil, err
	}
	p := &participation{agent: a, resource: r, conn: m.session.zk.Group(r.paths()), known: agent.Group{Paths: r.paths(),
		Enabled: true}}
	keys, err := store.EnsureFailsafeKeys(ctx, p.conn, r.paths(), c.Node.ID)
	if group.IsTransient(err) {
		p.conn.Close()
		return nil, err
	}
	p.known.Secrets, p.known.SecretsErr = keys.Secrets(), err
	a.SetGroup(p.known)
	if err != nil {
		r.log.Error("this host takes no part in failsafe mode: without ZooKeeper it does not lead, and other leaders "+
			"do not count on it", "err", err)
		p.conn.Close()
		return m.agree(ctx)
	}
	return p, nil
}

// promisesUnknownError reports that this host must not take part in a group, because it cannot know what it has
// promised there.
type promisesUnknownError struct{ err error }

func (e *promisesUnknownError) Error() string {
	return fmt.Sprintf("the last leader may still rest on promises, and it is not known what this host has promised: "+
		"%v. Until it is, or that leader has ended, this host "+
		"neither leads nor agrees to another leader. Repair the state directory, and the host takes part again by "+
		"itself, or after 'zkelectd reload' at once; if the "+
		"directory is not that of this daemon, set StateDirectory= in its unit, or the variable STATE_DIRECTORY", e.err)
}

func (e *promisesUnknownError) Unwrap() error { return e.err }

// agree prepares an instance that takes no part in failsafe mode. If an earlier one may have, the last leader may have
// counted on its promises: then nobody leads before this host, or another one, has agreed to a successor. It returns
// nil if there was none, and a [promisesUnknownError] if that cannot be found out: no answer does not mean that nothing
// was promised.
func (m *membership) agree(ctx context.Context) (*participation, error) {
	f, r := m.session.host.failsafe, m.resource
	a := f.agent.Load() // what it has in memory needs no file
	if a == nil {
		took, err := agent.TookPart(f.host.opt.StateDir, failsafe.Group(r.paths()))
		if took && err == nil {
			a, err = f.open()
		}
		if err != nil {
			return nil, m.checkUnbound(ctx, err)
		}
	}
	if a == nil || !a.TookPart(failsafe.Group(r.paths())) {
		return nil, nil
	}
	return &participation{agent: a, resource: r}, nil
}

// checkUnbound returns an error if promises still bind in the group; unknown is why this host does not know its own.
// Where none bind, an instance without a state directory harms nobody: later leaders do not count on it.
func (m *membership) checkUnbound(ctx context.Context, unknown error) error {
	conn := m.session.zk.Group(m.resource.paths())
	defer conn.Close()
	bind, err := store.PromisesBind(ctx, conn, m.resource.paths())
	if bind {
		return &promisesUnknownError{unknown}
	}
	if err == nil && !errors.Is(unknown, fs.ErrPermission) { // the default directory may be that of another user's daemon
		m.resource.log.Warn("the state of failsafe mode cannot be read; no promises of this group bind any more",
			"err", unknown)
	}
	return err
}

// forget ends what the agent does for a group that no longer takes part.
func (f *failsafeMode) forget(root string) {
	if a := f.agent.Load(); a != nil {
		a.RemoveGroup(root)
	}
}

// options returns what an instance needs for its part; nil for none.
func (p *participation) options(c config.Config) *group.Failsafe {
	if p == nil {
		return nil
	}
	node := cluster.FailsafeNode{Key: p.agent.Key()}
	if p.conn != nil {
		node.Address = c.FailsafeAddress()
	}
	return &group.Failsafe{Agent: p.agent, Start: rand.Uint64(), Node: node}
}

// begin makes this host answer leaders under an incarnation, and follows what it needs to know about the group. Call
// end when the incarnation is over.
func (p *participation) begin(ctx context.Context, incarnation string) (end func()) {
	if p == nil || p.conn == nil {
		return func() {}
	}
	name := failsafe.Group(p.known.Paths)
	p.agent.Promises().Register(name, incarnation)
	p.known.Self = incarnation
	p.agent.SetGroup(p.known)
	stop := inBackground(ctx, func(ctx context.Context) {
		store.FollowFailsafe(ctx, p.conn, p.known.Paths, failsafePace, func(now store.FailsafeGroup) { p.update(ctx, now) })
	})
	return func() {
		stop()
		p.agent.Promises().Register(name, "")
		p.known.Self = ""
		p.agent.SetGroup(p.known)
	}
}

// failsafePace is the least time between two readings of what has changed in a group.
const failsafePace = time.Second

// update passes on what is known about the group.
func (p *participation) update(ctx context.Context, now store.FailsafeGroup) {
	next := p.known
	if now.Policy.Readable() {
		next.Enabled = now.Policy.Record.Failsafe.Enabled
	}
	switch {
	case now.Keys.Readable():
		next.Secrets, next.SecretsErr = now.Keys.Record.Secrets(), nil
	case !now.Keys.Exists: // somebody has deleted them
		keys, err := store.EnsureFailsafeKeys(ctx, p.conn, next.Paths, p.resource.config().Node.ID)
		next.Secrets, next.SecretsErr = keys.Secrets(), err
	default:
		next.SecretsErr = now.Keys.Err
	}
	next.Peers = nil
	for i := range now.Members {
		x := &now.Members[i]
		if x.Superseded || x.Name == next.Self || !x.Node.Readable() || x.Node.Record.Leaving != "" {
			continue
		}
		next.Peers = append(next.Peers, agent.Peer{ID: x.ID, Incarnation: x.Name, Failsafe: x.Node.Record.Failsafe})
	}
	p.auditKeys(ctx, &next)
	if !reflect.DeepEqual(next, p.known) {
		p.known = next
		p.agent.SetGroup(next)
	}
}

// auditKeys checks from time to time whether the ACL of the keys has changed since they were read, because an ACL has
// no watch. A client that reads the keys could send promises as a member.
func (p *participation) auditKeys(ctx context.Context, g *agent.Group) {
	now := boottime.Now()
	if now < p.audit {
		return
	}
	path := g.Paths.FailsafeKeys()
	read, _, err := p.conn.Exposure(ctx, path)
	if err != nil {
		return // the next call asks again
	}
	p.audit = now + p.resource.host.failsafe.auditPace
	before := g.Exposed
	if g.Exposed = ""; read {
		g.Exposed = fmt.Sprintf("all clients can read znode %s, and any client that has read the key can send "+
			"promises as a member: run %s, and then %s "+
			"twice, more than a minute apart", path, cluster.InGroup("'zkelectd acl --apply'", p.resource.name),
			cluster.InGroup("'zkelectd acl --rotate-keys'", p.resource.name))
	}
	if read && before == "" {
		p.resource.log.Error("the key of failsafe mode is no secret any more", "err", g.Exposed)
	}
}

// close ends the access to ZooKeeper.
func (p *participation) close() {
	if p != nil && p.conn != nil {
		p.conn.Close()
	}
}

// Failsafe returns what is shown of failsafe mode in the group.
func (g *Group) Failsafe() status.Failsafe {
	a := g.host.failsafe.agent.Load()
	if a == nil || g.paths.Slot != "" {
		return status.Failsafe{}
	}
	v := a.Readiness(g.root)
	v.ActiveSince, v.Asks = g.core.Load().FailsafeActivity()
	v.Outage, v.BoundUntil = a.Promises().Outage(boottime.Now()), a.Promises().Bound(failsafe.Group(g.paths))
	return v
}
