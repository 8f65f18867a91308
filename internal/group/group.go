// Package group runs this host's member of a group: it registers the member, reads the group, elects while it is the
// elector, and takes over when it is elected. It publishes the node's record, and keeps a view of its state. The pure
// packages elector, watchdog and transition make the decisions; this package feeds them events and performs their
// actions. It does not read configuration files; a reload passes it new [Settings].
package group

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/group/electing"
	"zkelectd/internal/guard"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/transition"
	"zkelectd/internal/work/applease"
	"zkelectd/internal/work/hook"
	"zkelectd/internal/work/worker"
	"zkelectd/internal/zk"
)

// Session is the subset of a ZooKeeper session's methods that a group uses.
type Session interface {
	cluster.ReadWriter
	cluster.Watcher
	cluster.Lifetime
	cluster.Owner
	// Renew posts a RENEW, which replaces the last one; done gets the result in another goroutine, and must not block.
	// WithdrawRenewal discards it.
	Renew(r transition.Renew, done func(transition.RenewDone))
	WithdrawRenewal()
	// Settle makes later reads show the outcome of earlier writes without a reply.
	Settle(context.Context) error
	// Sync waits for the earlier writes of this handle, and lets the server catch up.
	Sync(context.Context) error
	// Reconnects returns how often the session has reconnected.
	Reconnects() int
	// Fail ends the session at once, for a reason, without anything else being sent.
	Fail(reason error)
	// LeaseZnode returns the path of the session's lease znode; empty if it has none.
	LeaseZnode() string
	Timeout() time.Duration
	Connected() bool
	// Tags returns the identities in the ACLs of the znodes that the session creates.
	Tags() []string
	// CloseWith sets the transaction that is sent when the session is closed without a release.
	CloseWith(ops ...cluster.Op)
	AuditACLs(context.Context, cluster.Paths) (zk.ACLAudit, error)
	// Exposure reports whether clients without credentials may read a znode, and whether they may change it.
	Exposure(ctx context.Context, path string) (read, change bool, err error)
}

// Guard is the guard's side of one member's leadership; *guard.Leadership implements it. The guard ends the work with
// the lease.
type Guard interface {
	worker.Guard
	// SetLease allows work until deadline on CLOCK_BOOTTIME; 0 allows none.
	SetLease(deadline time.Duration)
	// SetRelease sets the transaction that releases leadership if this daemon dies; nil for none.
	SetRelease(tx json.RawMessage)
	// Confirm waits until the guard has read what was set before. It returns an error if this leadership is not the
	// guard's any more.
	Confirm(ctx context.Context) error
	// Unkillable returns which process of the work cannot be killed, and why; empty if there is none.
	Unkillable() string
}

// Health measures the host's health.
type Health interface {
	// UnhealthyReason returns why the host must not lead; empty if it may.
	UnhealthyReason() string
	// ObserveRead adds the time that a read from ZooKeeper took, which began at a time on CLOCK_BOOTTIME.
	ObserveRead(at, took time.Duration)
	// NoteResponse records that ZooKeeper has answered a read that began at a time; RespondedAt returns the last such
	// time.
	NoteResponse(at time.Duration)
	RespondedAt() time.Duration
	// Fill copies health, latency and score into a node's record.
	Fill(*cluster.Node)
}

// Settings holds the settings that a reload may change.
type Settings struct {
	// Node is the record of this node, without the fields that the group fills in.
	Node cluster.Node
	// Rules are the policy of this host's configuration. With PolicyInGroup it has none: they are published for a group
	// without a policy, and for nothing else.
	Rules         cluster.Rules
	PolicyInGroup bool
	// Program is the ranking program of an exec policy on this host.
	Program []string
	// Slots is how many slots this host's configuration proposes; zero for a group without slots.
	Slots cluster.SlotSize
}

// Options configures a Group. All functions must be set, are called in the group's goroutine, and must not block,
// unless stated otherwise.
type Options struct {
	// Name is the group's name, as in ingest, or in ingest/3 for a slot. Resource is the name without the slot.
	Name, Resource string
	Paths          cluster.Paths
	// LastTerm is what [Group.LastTerm] of an abandoned group has returned, 0 for none: no token is given twice, even
	// if ZooKeeper's data is restored from an older copy.
	LastTerm int64
	// Settings are used until [Register] replaces them.
	Settings Settings
	Identity Identity
	// Containment returns what keeps the processes of the work together.
	Containment func() guard.Containment
	// GuardErr returns an error if the guard is lost.
	GuardErr func() error
	Health   Health
	// Device returns what is shown of the watchdog device; nil if none is configured.
	Device func() *status.WatchdogDevice
	// Standby returns the state of promotable work, and which process of it cannot be killed; nil without.
	Standby  func() (state *cluster.Standby, unkillable string)
	Counters *Counters
	Log      *slog.Logger
	// Feed receives the changes of the view.
	Feed *status.Feed
	// Rank runs the ranking program. It is called in another goroutine, and may block.
	Rank      func(ctx context.Context, program []string, in policy.Input) policy.Answer
	Placement electing.Placement
	// OnChange receives the input of hooks.on_change.
	OnChange func(input []byte)
	// Loads returns the loads of the hosts, as far as they are known, by the ids of their nodes.
	Loads func() map[string]cluster.Load
	// OnView receives each new view of a member, and OnElector what it elects by: each new snapshot, nil while it does
	// not elect.
	OnView    func(status.Daemon)
	OnElector func(*cluster.Snapshot)
}

// InstanceOptions are those that each instance of a group takes from the configuration in force when it registers.
type InstanceOptions struct {
	Elector elector.Options
	// TakeoverTimeout and StrikeResetAfter are passed to the watchdog.
	TakeoverTimeout, StrikeResetAfter time.Duration
	// Work is the leader-only work; its StopTimeout is replaced by that of the session's budget.
	Work worker.Spec
	// Standby is the promotable work; nil if the work runs on the leader only.
	Standby *worker.Standby
	// MaxRestarts is how often work that ends by itself is started again within restartWindow.
	MaxRestarts int
	Limits      Limits
	Fencing     Fencing
	// Failsafe is nil if the instance takes no part in failsafe mode.
	Failsafe *Failsafe
	// RollCall is nil if the instance takes no part in roll calls.
	RollCall *RollCall
	// LeaseZnodes reads the lease znodes of leaders; nil if this host is no deputy. LostAfter is how long a leader must
	// have been silent before this member takes over from it; 0 for as early as is safe.
	LeaseZnodes *store.LeaseZnodeWatch
	LostAfter   time.Duration
}

// Work that ends by itself is started again after restartBackoff.
const (
	restartWindow  = time.Minute
	restartBackoff = 500 * time.Millisecond
)

// Group is one group that this host belongs to, or a slot of one. It lasts as long as the group is configured; each
// [Register] makes this host a member until that instance ends.
type Group struct {
	opt      Options
	settings Settings // in force
	log      *slog.Logger
	memory   cluster.LastKnown     // of the leaderships seen so far, in any session
	lastWork transition.LastWork   // of this host, by the last member that has ended
	known    atomic.Int64          // the term of memory, for LastTerm
	lastTerm int64                 // the highest term of all slots, as it was registered last
	drift    atomic.Pointer[drift] // how this configuration differs from what is in force, as last seen
	// lastRules are those that were in force when that was last checked, in any session; nil if there were none.
	lastRules *cluster.Rules
	newer     string      // which record has a newer format, as last seen
	openTree  atomic.Bool // unauthorized clients can change the tree, as last seen
	view      atomic.Pointer[status.Daemon]
	feed      *status.Feed
	notices   notices
	// usesLoads is set while this host's member is the elector and its policy needs the loads.
	usesLoads         atomic.Bool
	failsafe          atomic.Pointer[failsafeActivity]
	applicationLeases applease.Book
	values            valueBox
}

// New returns a group.
func New(opt Options) *Group {
	g := &Group{opt: opt, settings: opt.Settings, log: opt.Log, feed: opt.Feed,
		notices: notices{c: make(chan struct{}, 1)}}
	g.memory.Term = opt.LastTerm
	g.drift.Store(new(drift))
	g.failsafe.Store(new(failsafeActivity))
	g.known.Store(opt.LastTerm)
	node := opt.Settings.Node
	g.view.Store(&status.Daemon{
		Group: opt.Name, Node: node.ID, Site: node.Site, Root: opt.Paths.Root, Phase: string(transition.Standby),
		UpdatedAt: boottime.Now(),
	})
	return g
}

// LastTerm returns the highest term seen so far. It is safe for concurrent use.
func (g *Group) LastTerm() int64 { return g.known.Load() }

// View returns the view as the loop has last updated it. It is safe for concurrent use.
func (g *Group) View() status.Daemon {
	v := *g.view.Load()
	if v.Loop {
		v.RespondedAt = max(v.RespondedAt, g.opt.Health.RespondedAt()) // the host reads for all of its groups
	}
	v.ApplicationLeases = g.applicationLeases.Out()
	return v.At(boottime.Now())
}

// SetMembership sets the view to what this host does about the group while no member runs, one of the constants of
// package status, and why.
func (g *Group) SetMembership(membership, reason string) {
	v := *g.view.Load()
	v.Membership, v.MembershipReason, v.Loop, v.UpdatedAt = membership, reason, false, boottime.Now()
	g.swapView(v)
}

// swapView replaces the view, and reports what has changed.
func (g *Group) swapView(v status.Daemon) {
	before := g.view.Swap(&v)
	g.feed.AddChanges(*before, v)
}

// ApplicationLease asks for an application lease. It is safe for concurrent use.
func (g *Group) ApplicationLease(ctx context.Context, r applease.Request) (applease.Answer, error) {
	return g.applicationLeases.Ask(ctx, r)
}

// ReturnApplicationLease takes an application lease back. It reports false if it is not known.
func (g *Group) ReturnApplicationLease(id string, p applease.Process) bool {
	return g.applicationLeases.Return(id, p)
}

// PublishValue makes value what the work publishes with its leadership, until it publishes another one or the term
// ends. It is for the work of a term; 0 for that of any. It returns an [ErrNoWork] if this host has none. It is safe
// for concurrent use.
func (g *Group) PublishValue(term int64, value string) error {
	err := g.values.give(term, value)
	if err == nil {
		g.notices.add(valueGiven)
	}
	return err
}

// Idle reports whether this host neither leads the group nor is about to.
func (g *Group) Idle() bool {
	v := g.view.Load()
	return v.Phase == string(transition.Standby) && v.Term == 0
}

// NodeChanged makes the member publish its record again, because the values of [Health.Fill] have changed. It is safe
// for concurrent use.
func (g *Group) NodeChanged() { g.notices.add(nodeChanged) }

// Reconsider makes the elector decide again, because other groups have changed. It is safe for concurrent use.
func (g *Group) Reconsider() { g.notices.add(othersChanged) }

// record returns the node's record.
func (g *Group) record(s Session, instance string) cluster.Node {
	n := g.settings.Node
	n.Host, n.PID, n.Boot, n.Started = g.opt.Identity.Host, g.opt.Identity.PID, g.opt.Identity.Boot, g.opt.Identity.Started
	n.Instance, n.LastTerm = instance, g.lastTerm
	n.SessionTimeout, n.Identities = cluster.Duration(s.Timeout()), s.Tags()
	n.PolicyDigest, n.OpenTree, n.Since = g.settings.policyDigest(), g.openTree.Load(), time.Now()
	g.opt.Health.Fill(&n)
	n.Standby, _ = g.opt.Standby()
	return n
}

// policyDigest returns the digest of the policy of this host's configuration; empty if that has none.
func (s *Settings) policyDigest() string {
	if s.PolicyInGroup {
		return ""
	}
	return s.Rules.Digest()
}

// ownRules returns the policy for a group in which none can be read: that of this host's configuration, or if that
// has none, the one that was in force when this host last looked.
func (g *Group) ownRules() cluster.Rules {
	if g.settings.PolicyInGroup && g.lastRules != nil {
		return *g.lastRules
	}
	return g.settings.Rules
}

// policyRecord returns the policy of ownRules, with a revision.
func (g *Group) policyRecord(revision int64) cluster.Policy {
	return cluster.Policy{Revision: revision, Rules: g.ownRules(), By: g.settings.Node.ID, Time: time.Now()}
}

// announce logs a change of phase and runs the on_change hook.
func (g *Group) announce(a transition.Announce) {
	level := slog.LevelInfo
	if a.GaveUp {
		level = slog.LevelWarn
	}
	g.log.Log(context.Background(), level, "now "+string(a.Phase), "term", a.Term, "reason", a.Reason)
	change := g.change(a.Phase, a.Term, a.Reason)
	change.Fencing = a.Fencing
	g.feed.Add(status.EventState, change)
	g.opt.OnChange(hook.JSON(change))
}

func (g *Group) change(phase transition.Phase, term int64, reason string) status.Change {
	return status.Change{
		Node: g.settings.Node.ID, Site: g.settings.Node.Site, Group: g.opt.Name, Root: g.opt.Paths.Root, Term: term,
		State:  string(phase),
		Reason: reason, Time: time.Now(),
	}
}
