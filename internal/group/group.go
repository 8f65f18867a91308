// Package group is this host's part in one group: it registers a member on a session, reads what the member has to know, elects
// while it is the elector, takes over and leads when it is elected, and publishes its record and a view of all that. The
// decisions are made by the pure packages elector, watchdog and transition; this package feeds them events and carries out
// their actions. It knows no configuration file: a reload hands it new [Settings].
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

// Session is what a group needs of a session with ZooKeeper.
type Session interface {
	cluster.ReadWriter
	cluster.Watcher
	cluster.Lifetime
	cluster.Owner
	Timeout() time.Duration
	Connected() bool
	// Reconnects returns how often the connection was made again.
	Reconnects() int
	// Tags returns the identities that the session creates znodes for.
	Tags() []string
	// CloseWith sets what is sent when the session is closed without a release.
	CloseWith(ops ...cluster.Op)
	AuditACLs(context.Context, cluster.Paths) (zkstore.ACLAudit, error)
}

// Guard is what a group needs of the guard, which ends the work with the lease.
type Guard interface {
	worker.Guard
	// SetLease allows work until deadline, of CLOCK_BOOTTIME; 0 allows none.
	SetLease(deadline time.Duration)
	// SetRelease sets what releases leadership if this daemon dies; nil for nothing.
	SetRelease(tx json.RawMessage)
	// Heartbeat promises another one before until; 0 promises none.
	Heartbeat(until time.Duration)
	// WatchdogInterval returns how often the service manager wants to hear of the daemon; 0 for never.
	WatchdogInterval() time.Duration
	Containment() guard.Containment
	Unkillable() string
	// Err returns an error when the guard is lost.
	Err() error
}

// Health is what the host knows of itself.
type Health interface {
	// UnhealthyReason returns why the host must not lead; empty if it may.
	UnhealthyReason() string
	// ObserveLatency counts a read of ZooKeeper that took so long.
	ObserveLatency(took time.Duration)
	// Fill writes what is known into a node's record.
	Fill(*cluster.Node)
}

// Settings are what a reload may change.
type Settings struct {
	// Node is the record of this node, except for what the group finds out itself.
	Node cluster.Node
	// Rules are the policy of this host's configuration, and PolicyRevision the number that the configuration gives it.
	Rules          cluster.Rules
	PolicyRevision int64
	// Program is the ranking program of an exec policy on this host.
	Program []string
}

// Options are what a group needs. All functions are called from the group's goroutine unless said otherwise, must be set, and
// must not block.
type Options struct {
	Paths cluster.Paths
	// Settings are those before the first Register.
	Settings Settings
	Identity Identity
	Elector  elector.Options
	// TakeoverTimeout and StrikeResetAfter are the watchdog's.
	TakeoverTimeout, StrikeResetAfter time.Duration
	TrustSessionEnd                   bool
	// Work is the leader-only work; its StopTimeout is that of the session's budget.
	Work     worker.Spec
	Restart  Restart
	Guard    Guard
	Health   Health
	Counters *Counters
	Log      *slog.Logger
	// Rank runs the ranking program. It is called from another goroutine, and may block.
	Rank func(ctx context.Context, program []string, in policy.Input, timeout time.Duration) policy.Answer
	// CloseOld closes a session if this process has left it open. It may block as long as closing takes.
	CloseOld func(ctx context.Context, session int64)
	// OnChange gets the input of hooks.on_change.
	OnChange func(input []byte)
	// OnView gets each view that is published, OnElector each snapshot of an elector.
	OnView    func(status.Daemon)
	OnElector func(*cluster.Snapshot)
}

// Restart bounds the restarts of work that ends by itself.
type Restart struct {
	Max             int
	Window, Backoff time.Duration
}

// Group lasts as long as the daemon. It is a member once per session, by Register.
type Group struct {
	opt      Options
	settings Settings // in force
	log      *slog.Logger
	memory   cluster.LastKnown // of the leaderships that were seen, in whatever session
	drift    string            // how the own policy differs from the one in force, as last seen
	newer    string            // which record has a newer format, as last seen
	openTree atomic.Bool       // unauthorized clients may change the tree, as last seen
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

// View returns what the group has published last. It is safe for concurrent use.
func (g *Group) View() status.Daemon { return g.view.Load().At(boottime.Now()) }

// Feed returns the changes of the view.
func (g *Group) Feed() *status.Feed { return g.feed }

// Stop makes the group's member give up leadership and end; a second time, without grace. It is safe for concurrent use.
func (g *Group) Stop(reason string) {
	select {
	case g.stops <- reason:
	default: // enough are queued
	}
}

// NodeChanged makes the member publish its record again: [Health.Fill] would fill in something else. It is safe for concurrent
// use.
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

// announce shows a change of phase to people and to the on_change hook.
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
