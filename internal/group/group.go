// Package group runs this host's member of a group: it registers the member, reads the group, elects while it is the elector, and
// takes over when it is elected. It publishes the node's record and a view of its state. The pure packages elector, watchdog and
// transition make the decisions; this package feeds them events and performs their actions. It does not read configuration files;
// a reload passes it new [Settings].
package group

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/elector"
	"zkelectd/internal/guard"
	"zkelectd/internal/policy"
	"zkelectd/internal/status"
	"zkelectd/internal/transition"
	"zkelectd/internal/worker"
)

// Session is the subset of a ZooKeeper session's methods that a group uses.
type Session interface {
	cluster.ReadWriter
	cluster.Watcher
	cluster.Lifetime
	cluster.Owner
	Timeout() time.Duration
	Connected() bool
	// Reconnects returns how often the session has reconnected.
	Reconnects() int
	// Tags returns the identities in the ACLs of the znodes that the session creates.
	Tags() []string
	// CloseWith sets the transaction that is sent when the session is closed without a release.
	CloseWith(ops ...cluster.Op)
	AuditACLs(context.Context, cluster.Paths) (zkstore.ACLAudit, error)
}

// Guard is the subset of the guard's methods that a group uses. The guard ends the work with the lease.
type Guard interface {
	worker.Guard
	// SetLease allows work until deadline on CLOCK_BOOTTIME; 0 allows none.
	SetLease(deadline time.Duration)
	// SetRelease sets the transaction that releases leadership if this daemon dies; nil for none.
	SetRelease(tx json.RawMessage)
	// Heartbeat promises another heartbeat before until; 0 promises none.
	Heartbeat(until time.Duration)
	// WatchdogInterval returns how often the daemon must call Heartbeat for the service manager's watchdog; 0 for no watchdog.
	WatchdogInterval() time.Duration
	Containment() guard.Containment
	Unkillable() string
	// Err returns an error if the guard is lost.
	Err() error
}

// Health measures the host's health.
type Health interface {
	// UnhealthyReason returns why the host must not lead; empty if it may.
	UnhealthyReason() string
	// ObserveLatency adds the time that a read from ZooKeeper took.
	ObserveLatency(took time.Duration)
	// Fill copies health, latency and score into a node's record.
	Fill(*cluster.Node)
}

// Settings holds the settings that a reload may change.
type Settings struct {
	// Node is the record of this node, without the fields that the group fills in.
	Node cluster.Node
	// Rules are the policy of this host's configuration, and PolicyRevision is its revision there.
	Rules          cluster.Rules
	PolicyRevision int64
	// Program is the ranking program of an exec policy on this host.
	Program []string
}

// Options configures a Group. All functions must be set, are called in the group's goroutine, and must not block, unless stated
// otherwise.
type Options struct {
	Paths cluster.Paths
	// Settings are used until Register replaces them.
	Settings Settings
	Identity Identity
	Elector  elector.Options
	// TakeoverTimeout and StrikeResetAfter are passed to the watchdog.
	TakeoverTimeout, StrikeResetAfter time.Duration
	TrustSessionEnd                   bool
	// Work is the leader-only work; its StopTimeout is replaced by that of the session's budget.
	Work     worker.Spec
	Restart  Restart
	Guard    Guard
	Health   Health
	Counters *Counters
	Log      *slog.Logger
	// Rank runs the ranking program. It is called in another goroutine, and may block.
	Rank func(ctx context.Context, program []string, in policy.Input, timeout time.Duration) policy.Answer
	// CloseOld closes a session that this process has left open. It may block while it closes the session.
	CloseOld func(ctx context.Context, session int64)
	// OnChange receives the input of hooks.on_change.
	OnChange func(input []byte)
	// OnView receives each published view, and OnElector each snapshot while this member is the elector.
	OnView    func(status.Daemon)
	OnElector func(*cluster.Snapshot)
}

// Restart limits the restarts of work that ends by itself.
type Restart struct {
	Max             int
	Window, Backoff time.Duration
}

// Group is one group that this host belongs to. It lasts as long as the daemon; Register makes it a member for one session.
type Group struct {
	opt      Options
	settings Settings // in force
	log      *slog.Logger
	memory   cluster.LastKnown // of the leaderships seen so far, in any session
	drift    string            // how this configuration's policy differs from the one in force, as last seen
	newer    string            // which record has a newer format, as last seen
	openTree atomic.Bool       // unauthorized clients can change the tree, as last seen
	view     atomic.Pointer[status.Daemon]
	feed     *status.Feed
	stops    chan string
	changed  chan struct{} // the host's part of the node's record has changed
}

// New returns a group.
func New(opt Options) *Group {
	g := &Group{
		opt: opt, settings: opt.Settings, log: opt.Log, feed: status.NewFeed(), stops: make(chan string, 4), changed: make(chan struct{}, 1),
	}
	node := opt.Settings.Node
	g.view.Store(&status.Daemon{
		Node: node.ID, Site: node.Site, Root: opt.Paths.Root, Phase: string(transition.Standby), PublishedAt: boottime.Now(),
	})
	return g
}

// View returns the last published view. It is safe for concurrent use.
func (g *Group) View() status.Daemon { return g.view.Load().At(boottime.Now()) }

// Feed returns the feed of changes to the view.
func (g *Group) Feed() *status.Feed { return g.feed }

// Stop makes the group's member release leadership and end. A second call kills the work at once. It is safe for concurrent use.
func (g *Group) Stop(reason string) {
	select {
	case g.stops <- reason:
	default: // enough are queued
	}
}

// NodeChanged makes the member publish its record again, because the values of [Health.Fill] have changed. It is safe for
// concurrent use.
func (g *Group) NodeChanged() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// record returns the node's record.
func (g *Group) record(s Session) cluster.Node {
	n := g.settings.Node
	n.Host, n.PID, n.Boot, n.Started = g.opt.Identity.Host, g.opt.Identity.PID, g.opt.Identity.Boot, g.opt.Identity.Started
	n.SessionTimeout, n.Identities = cluster.Duration(s.Timeout()), s.Tags()
	n.PolicyDigest, n.OpenTree, n.Since = g.settings.Rules.Digest(), g.openTree.Load(), time.Now()
	g.opt.Health.Fill(&n)
	return n
}

// policyRecord returns the policy of this host's configuration, with at least the given revision.
func (s *Settings) policyRecord(revision int64) cluster.Policy {
	return cluster.Policy{Revision: max(revision, s.PolicyRevision), Rules: s.Rules, By: s.Node.ID, Time: time.Now()}
}

// announce logs a change of phase and runs the on_change hook.
func (g *Group) announce(a transition.Announce) {
	g.log.Info("now "+string(a.Phase), "term", a.Term, "reason", a.Reason)
	change := g.change(a.Phase, a.Term, a.Reason)
	g.feed.Add(status.EventState, change)
	g.opt.OnChange(encodeChange(change))
}

func (g *Group) change(phase transition.Phase, term int64, reason string) status.Change {
	return status.Change{
		Node: g.settings.Node.ID, Site: g.settings.Node.Site, Root: g.opt.Paths.Root, Term: term, State: string(phase), Reason: reason, Time: time.Now(),
	}
}

// encodeChange returns the input of hooks.on_change.
func encodeChange(c status.Change) []byte {
	data, err := json.Marshal(c)
	if err != nil {
		return nil // not reached: plain values
	}
	return append(data, '\n')
}
