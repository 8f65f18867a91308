package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/group"
	"zkelectd/internal/group/electing"
	"zkelectd/internal/guard"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/zk"
)

// instancePacing is how a group registers again whose instance has ended, or that was refused.
var instancePacing = pacing{first: time.Second, limit: time.Minute, stable: time.Minute}

// Limits of a group's faults.
const (
	parkAfter    = 3 // abandoned instances within parkWindow
	parkWindow   = 10 * time.Minute
	leaveTimeout = 10 // session timeouts within which a LEAVE must be confirmed

)

// membership is the membership of one resource in one session: one instance after another. An instance ends with LEAVE,
// so that the next one can register in the same session (docs/protocol.md, Leaving a group). Whatever happens to the
// group, the session and the other groups go on.
type membership struct {
	session  *session
	resource *resource
	ctx      context.Context // ends when no instance may begin any more
	cancel   context.CancelFunc
	retry    chan struct{} // the configuration has changed: try again now
	// reconnected receives after a reconnect: what has failed without a connection need not wait any longer.
	reconnected chan struct{}
	settled     atomic.Bool // it has registered once, or was refused
	missing     string      // what is shown of a group that does not exist; empty if it exists
	// outdated is set while the running instance does not have the configuration in force.
	outdated atomic.Bool

	// unleft is the last instance, if it relies on the end of the session instead of LEAVE. It is set before the
	// membership ends.
	unleft *instance

	mu        sync.Mutex
	current   *instance // nil while none runs
	abandoned []time.Time
}

// instance is one registration of the resource, see [group.Instance], with what each of its leaderships has to itself.
type instance struct {
	*group.Instance // nil until it is registered
	conns           []*zk.Group
	leaderships     []*guard.Leadership
	starts, moves   *electing.Share // nil without limits
	stuck           chan struct{}   // closed when a loop of the instance is stuck
	promoted        atomic.Bool     // it was abandoned, and what it may have promoted is not proven to be dead
	once            sync.Once
}

// open gives each group of the resource its access to the session and to the guard.
func (m *membership) open() *instance {
	i := &instance{stuck: make(chan struct{})}
	for _, g := range m.resource.all() {
		i.leaderships = append(i.leaderships, m.session.host.opt.Guard.NewLeadership(g.name))
	}
	m.connect(i)
	return i
}

// connect gives each group a new handle of the session.
func (m *membership) connect(i *instance) {
	i.closeConns()
	i.conns = nil
	for _, g := range m.resource.all() {
		conn := m.session.zk.Group(g.paths)
		i.conns = append(i.conns, conn)
		g.setConn(conn)
	}
}

func (i *instance) closeConns() {
	for _, conn := range i.conns {
		conn.Close()
	}
}

func (i *instance) closeLeaderships() {
	for _, l := range i.leaderships {
		l.Close()
	}
}

// errSurvivor reports that this host must not take part in a group, because its own work might run twice (S1).
var errSurvivor = errors.New("work that an earlier daemon on this host has started for the group may still run: the " +
	"guard is killing it; see its log")

// abandonedError reports that an instance was abandoned because its loop is stuck or has panicked.
type abandonedError struct{ reason string }

func (e *abandonedError) Error() string { return e.reason }

func newMembership(s *session, r *resource) *membership {
	m := &membership{session: s, resource: r, retry: make(chan struct{}, 1), reconnected: make(chan struct{}, 1)}
	m.ctx, m.cancel = context.WithCancel(s.ctx)
	return m
}

// run runs one instance after another until the session or the membership ends.
func (m *membership) run() {
	defer m.cancel()
	r := m.resource
	defer r.setMembership("", "")
	defer r.clearConns()
	supervise(instancePacing, m.runOnce, m.await)
}

// runOnce runs one instance, and shows why it has ended.
func (m *membership) runOnce() next {
	if m.ctx.Err() != nil {
		return over
	}
	select {
	case <-m.reconnected: // before this run
	default:
	}
	r := m.resource
	err := m.runInstance()
	var permanent *group.PermanentError
	var unknown *promisesUnknownError
	var missing *store.MissingError
	if !errors.As(err, &missing) {
		m.missing = ""
	}
	switch {
	case m.ctx.Err() != nil || err == nil:
		return over
	case missing != nil:
		m.awaitGroup(missing)
		return atOnce
	case errors.As(err, &permanent) && m.session.host.single():
		m.session.end(permanent)
		return over
	case m.park():
		r.setMembership(status.MembershipParked, fmt.Sprintf("%d instances were abandoned within %s, the last because %v; "+
			"'zkelectd reload' tries again", parkAfter, parkWindow, err))
		m.settle()
		m.await(0)
		return atOnce
	case errors.As(err, &permanent), errors.Is(err, errSurvivor), errors.As(err, &unknown):
		r.setMembership(status.MembershipRefused, err.Error())
	default:
		r.log.Warn("the membership ended; registering again", "reason", err)
		r.setMembership(status.MembershipJoining, err.Error())
	}
	m.settle()
	return again
}

// settle records that the group's start is complete.
func (m *membership) settle() {
	if h := m.session.host; h.opt.Joined != nil {
		h.joined.Do(h.opt.Joined)
	}
	if !m.settled.Swap(true) {
		m.session.reportReady()
	}
}

// await waits for a time or a reconnect, for neither if it is 0, or until the configuration changes or the membership
// ends.
func (m *membership) await(limit time.Duration) {
	var expired <-chan time.Time
	var reconnected <-chan struct{}
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		expired, reconnected = t.C, m.reconnected
	}
	select {
	case <-expired:
	case <-reconnected:
	case <-m.retry:
	case <-m.ctx.Done():
	}
}

// park reports whether too many instances have been abandoned lately.
func (m *membership) park() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.abandoned)
	if n < parkAfter || time.Since(m.abandoned[n-parkAfter]) > parkWindow {
		return false
	}
	m.abandoned = nil
	return true
}

// runInstance registers an instance, runs it until it ends, and sends LEAVE for it. It returns nil if the session or
// the membership ends, else why the instance has ended. When it returns, all of its work is dead.
func (m *membership) runInstance() error {
	s, r := m.session, m.resource
	budget, err := s.budget(r)
	if err != nil {
		return &group.PermanentError{Err: err}
	}
	if r.survives(s.host.opt.Guard.Survivors()) {
		return errSurvivor
	}
	m.outdated.Store(false)
	before := r.published()
	slots, err := m.prepare()
	switch {
	case s.zk.Err() != nil || s.ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	if err := m.ensureLease(); err != nil {
		return err
	}
	part, err := m.join(m.ctx, budget)
	if err != nil {
		return err
	}
	defer part.close()
	if err := r.standby.begin(m.ctx, budget.Stop); err != nil {
		return err
	}
	i := m.open()
	defer i.closeLeaderships()
	registration := r.registration(i, budget, slots, s.leaseZnodes)
	registration.Members[0].Options.Failsafe = part.options(r.config())
	i.limits(s.host, &registration)
	defer i.closeLimits()
	i.Instance, err = group.Register(m.ctx, registration)
	if err == nil {
		r.logBudget(budget)
		r.log.Info("registered", "incarnation", i.Incarnation(), "root", r.root)
		end := part.begin(m.ctx, i.Incarnation())
		err = m.serve(i, before)
		end()
	}
	m.recordLeaving(i)
	if s.zk.Err() != nil || s.ctx.Err() != nil {
		m.unleft = i
		// the end of the session deletes what this instance has registered; its handles still have the final transactions
		return nil
	}
	var permanent *group.PermanentError
	if !errors.As(err, &permanent) && !m.left(i, err) { // else nothing is registered
		return nil
	}
	i.closeConns()
	if m.ctx.Err() != nil {
		return nil // removed
	}
	return err
}

// ensureLease creates the lease znode of the session. A member may do without.
func (m *membership) ensureLease() error {
	err := m.session.ensureLease(m.ctx)
	if err == nil || group.IsTransient(err) {
		return err
	}
	m.resource.log.Warn("this host has no lease znode: if it is lost as the leader, it is replaced only after its "+
		"session timeout", "err", err)
	return nil
}

// prepare prepares the registration, and gives the resource one group for each slot that it has.
func (m *membership) prepare() (cluster.Stored[cluster.Slots], error) {
	if err := m.session.zk.FollowRoot(m.ctx, m.resource.root, m.resource.wasOpen()); err != nil {
		return cluster.Stored[cluster.Slots]{}, err
	}
	conn := m.session.zk.Group(m.resource.paths())
	defer conn.Close()
	server := m.session.zk.Server()
	slots, err := m.resource.ensure(m.ctx, m.session.zk, conn, m.resource.newGroupID(server))
	if err != nil && !errors.Is(err, cluster.ErrNoAuth) {
		return slots, err
	}
	foreign := m.session.zk.CheckOwner(m.ctx, m.resource.root)
	if group.IsTransient(foreign) {
		return slots, foreign
	}
	if err != nil {
		return slots, cmp.Or(permanent(foreign), err)
	}
	root, err := store.ReadIdentity(m.ctx, conn, m.resource.paths())
	if err == nil {
		err = m.resource.checkGroupID(m.ctx, root.Record.ID, server, m.session.zk.CheckEnsemble)
		if err != nil && m.session.host.forgetFollowed(server) { // its address leads elsewhere now
			m.session.end(err)
			return slots, nil
		}
	}
	switch {
	case err != nil:
		return slots, err
	case foreign != nil && root.Stat.Created != m.resource.accepted:
		return slots, permanent(foreign)
	case foreign != nil: // the tree is being closed: this host would only leave the group without a member
		m.resource.log.Warn("the root is still open, as it was when this daemon took part in the group before",
			"err", foreign)
	}
	if own := slotSize(m.resource.config()); m.session.host.opt.ExactSlots && slots.Record.SlotSize != own {
		return slots, permanent(&SlotsError{InForce: slots.Record.SlotSize, Own: own})
	}
	m.resource.accepted = root.Stat.Created
	m.resource.recordJoined(root.Record.ID)
	m.resource.setSize(slots.Record.Count)
	return slots, nil
}

// SlotsError says that the slots of a group are others than the configuration's, see [Options].ExactSlots.
type SlotsError struct{ InForce, Own cluster.SlotSize }

func (e *SlotsError) Error() string {
	return fmt.Sprintf("the group has %s, and not %s", e.InForce, e.Own)
}

// permanent wraps an error in a [group.PermanentError]; nil stays nil.
func permanent(err error) error {
	if err == nil {
		return nil
	}
	return &group.PermanentError{Err: err}
}

// serve runs the members. If a loop is stuck or panics, serve abandons the instance and returns an [abandonedError]
// when its work is dead.
func (m *membership) serve(i *instance, before published) error {
	r := m.resource
	if !m.setCurrent(i) {
		return errors.New("the membership ends")
	}
	defer m.setCurrent(nil)
	m.settle()
	defer inBackground(m.ctx, func(ctx context.Context) { m.checkTree(ctx) })()
	if r.published() != before { // a reload or a check came during the registration
		m.session.running.Go(func() { r.applyTo(i, false) })
	}
	defer m.leaveIfOverdue(i)()
	for _, g := range r.all() {
		defer g.leaders.start(m.ctx, m.session.zk)()
	}
	ended := make(chan error, 1)
	go func() { ended <- i.Run() }() // ends with the members, or when a stuck loop returns
	select {
	case err := <-ended:
		var panicked *group.PanicError
		if !errors.As(err, &panicked) {
			return err
		}
		r.log.Error("an event loop has panicked", "stack", string(panicked.Stack))
		return m.abandon(i, err.Error())
	case <-i.stuck:
		returned, tooMany := r.host.loopStuck()
		go func() { // ends with the stuck loop
			<-ended
			returned()
		}()
		if tooMany {
			m.session.end(ErrStuckLoops)
		}
		return m.abandon(i, fmt.Sprintf("its event loop did not answer for %s", m.session.granted))
	}
}

// errOverdue is why an instance leaves whose work has not ended in time.
var errOverdue = errors.New("the membership ended, but not all of its work has ended in time")

// setCurrent sets the running instance. It returns false if the membership ends, so that none may run.
func (m *membership) setCurrent(i *instance) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i != nil && m.ctx.Err() != nil {
		return false
	}
	m.current = i
	return true
}

// instance returns the running instance; nil if there is none.
func (m *membership) instance() *instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

// stop makes the member release leadership and end, as a person asks for; a second call kills the work at once.
func (m *membership) stop(reason string) {
	m.cancel()
	if i := m.instance(); i != nil {
		i.Stop(reason)
	}
}

// end is stop if no person has asked for it: it kills nothing at once, however often it is called.
func (m *membership) end(reason string) {
	m.cancel()
	if i := m.instance(); i != nil {
		i.End(reason)
	}
}

// cutLease shortens the lease, see [group.Instance.CutLease].
func (m *membership) cutLease(deadline time.Duration, reason string) {
	if i := m.instance(); i != nil {
		i.CutLease(deadline, reason)
	}
}

// check abandons the instance if its loop has not shown in time that it is alive. It ends an instance without the
// configuration in force, once that does not lead.
func (m *membership) check(now time.Duration) {
	i := m.instance()
	if i == nil {
		return
	}
	if alive := i.AliveUntil(); alive != 0 && now > alive {
		i.once.Do(func() { close(i.stuck) })
		return
	}
	i.Beat()
	if m.outdated.Load() && m.resource.idle() {
		m.outdated.Store(false)
		i.End("the group's configuration has changed")
	}
}
