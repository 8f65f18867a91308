package operator

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
)

// ReadTimeout bounds a read for an HTTP request.
const ReadTimeout = 2 * time.Second

// cacheAge is how long a result is served again.
const cacheAge = time.Second

// The errors of a [GroupCache] that cannot read.
var (
	ErrNoSession    = errors.New("there is no session with ZooKeeper")
	ErrNotConnected = errors.New("no ZooKeeper server is connected")
)

// GroupCache reads what HTTP clients ask for and the loop does not know: the whole group, where this daemon is not the
// elector, and the history. It reads on the loop's session, one thing at a time and each at most once a second however
// many clients ask, so that it never delays the election; it sets no watch and writes nothing.
type GroupCache struct {
	viewer     *status.Viewer
	policies   policy.Cache // for explanations
	source     atomic.Pointer[Source]
	elector    atomic.Pointer[cluster.Snapshot] // the elector's own
	busy       chan struct{}                    // holds one value during a read; guards the two below
	group      cached[cluster.Snapshot]
	history    cached[cluster.History]
	slots      cached[Leaders]
	leaseZnode cached[leaseZnodeRead]
}

// leaseZnodeRead is what was read of a leader's lease znode: at is when it was read last, since when it was first read
// as it is.
type leaseZnodeRead struct {
	znode     string
	exists    bool
	modified  int64
	since, at time.Time
}

// Source is what a [GroupCache] reads from.
type Source struct {
	Session Session
	Paths   cluster.Paths
	Config  config.Config
	Neighbors
}

// Session is what a [GroupCache] needs of a session.
type Session interface {
	cluster.Reader
	Connected() bool
}

// cached is the result of the last read.
type cached[T any] struct {
	from  Session
	at    time.Time
	value T
	err   error
}

// NewGroupCache returns a cache for the group below root, without a source. name is the name of the group or of one of
// its slots.
func NewGroupCache(name, root string) *GroupCache {
	return &GroupCache{viewer: status.NewViewer(name, root), busy: make(chan struct{}, 1)}
}

// SetSource changes what is read from; nil for nothing, while there is no session.
func (c *GroupCache) SetSource(s *Source) { c.source.Store(s) }

// Source returns what is read from, or nil.
func (c *GroupCache) Source() *Source { return c.source.Load() }

// SetSnapshot provides the elector's own snapshot, which makes reading unnecessary; nil for none.
func (c *GroupCache) SetSnapshot(s *cluster.Snapshot) { c.elector.Store(s) }

// load returns what is cached in entry, or reads it.
func load[T any](ctx context.Context, c *GroupCache, entry *cached[T], read func(context.Context, *Source) (T,
	error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, ReadTimeout)
	defer cancel()
	var none T
	select {
	case c.busy <- struct{}{}:
		defer func() { <-c.busy }()
	case <-ctx.Done():
		return none, fmt.Errorf("too many requests at once: %w", ctx.Err())
	}
	src := c.source.Load()
	if src == nil {
		return none, ErrNoSession
	}
	if entry.from == src.Session && time.Since(entry.at) < cacheAge {
		return entry.value, entry.err
	}
	if !src.Session.Connected() {
		return none, ErrNotConnected // a read would wait for one
	}
	value, err := read(ctx, src)
	if errors.Is(err, context.Canceled) {
		return none, err // this client has gone; that is no answer for the next one
	}
	*entry = cached[T]{src.Session, time.Now(), value, err}
	return value, err
}

func (c *GroupCache) snapshot(ctx context.Context) (cluster.Snapshot, error) {
	if s, src := c.elector.Load(), c.source.Load(); s != nil && src != nil && src.Session.Connected() {
		return *s, nil
	}
	return load(ctx, c, &c.group, func(ctx context.Context, src *Source) (cluster.Snapshot, error) {
		return store.ReadAll(ctx, src.Session, src.Paths, false)
	})
}

// Group returns the whole group.
func (c *GroupCache) Group(ctx context.Context) (status.Group, error) {
	snap, err := c.snapshot(ctx)
	if err != nil {
		return status.Group{}, err
	}
	view := c.viewer.Group(snap)
	if snap.Slot == "" { // else a forecast needs the other slots, too
		if q, err := c.question(ctx); err == nil {
			q.Snapshot = snap
			view = WithForecast(view, q)
		}
	}
	if src := c.source.Load(); src != nil && snap.Slot != "" {
		if drift := SlotsDrift(cluster.GroupOf(src.Group), src.Config.Slots, snap.Slots); drift != "" {
			view.Problems = append(view.Problems, drift)
		}
	}
	return view.Unconfirmed(c.unconfirmed(ctx, snap)), nil
}

// unconfirmed says for how long the READY leader has not renewed its lease; empty if it has, or if that is not known.
// Every renewal advances the lease znode, about five times in the lease wait, so half of that without one is no
// accident.
func (c *GroupCache) unconfirmed(ctx context.Context, s cluster.Snapshot) string {
	f := &s.Fence.Record
	if !s.Ready() || f.LeaseZnode == "" {
		return ""
	}
	seen, err := load(ctx, c, &c.leaseZnode, func(ctx context.Context, src *Source) (leaseZnodeRead, error) {
		before := c.leaseZnode.value
		_, stat, err := src.Session.Get(ctx, f.LeaseZnode, false)
		now := leaseZnodeRead{znode: f.LeaseZnode, exists: err == nil, modified: stat.Modified, at: time.Now()}
		if now.since = now.at; before.znode == now.znode && before.modified == now.modified {
			now.since = before.since
		}
		if errors.Is(err, cluster.ErrNoNode) {
			err = nil
		}
		return now, err
	})
	switch silent := seen.at.Sub(seen.since); {
	case err != nil || seen.znode != f.LeaseZnode:
		return ""
	case !seen.exists:
		return "its session has ended"
	case silent > time.Duration(f.LeaseWait)/2:
		return fmt.Sprintf("not renewed for %s", silent.Round(100*time.Millisecond))
	}
	return ""
}

// History returns the last terms, oldest first.
func (c *GroupCache) History(ctx context.Context) ([]cluster.PastTerm, error) {
	h, err := load(ctx, c, &c.history, func(ctx context.Context, src *Source) (cluster.History, error) {
		return ReadHistory(ctx, src.Session, src.Paths, false)
	})
	return h.Terms, err
}

// unasked answers instead of the ranking program of an exec policy, which HTTP clients must not be able to start.
func unasked(name string) func(policy.Input) *policy.Answer {
	return func(policy.Input) *policy.Answer {
		return &policy.Answer{Err: "the HTTP API does not run it; " + cluster.InGroup("'zkelectd explain'", name) + " does"}
	}
}

// Explain returns why the leader is the leader. It does not run the ranking program of an exec policy.
func (c *GroupCache) Explain(ctx context.Context) (whatif.Explanation, error) {
	q, err := c.question(ctx)
	if err != nil {
		return whatif.Explanation{}, err
	}
	c.place(ctx, &q)
	q.Ask = unasked(q.Options.Group)
	return whatif.Explain(q), nil
}

// DryRun is [DryRun] for the group as last read. It does not run the ranking program of an exec policy.
func (c *GroupCache) DryRun(ctx context.Context, r request.Request) ([]string, error) {
	q, err := c.question(ctx)
	if src := c.source.Load(); err == nil && src != nil && src.Paths.Slot != "" && !r.Kind.OfSlot() {
		q, err = c.slotQuestion(ctx, src, "")
	}
	if err != nil {
		return nil, err
	}
	c.place(ctx, &q)
	q.Ask = unasked(q.Options.Group)
	return DryRun(q, r)
}

// place completes a question with what is known of other groups.
func (c *GroupCache) place(ctx context.Context, q *whatif.Question) {
	if src := c.source.Load(); src != nil {
		src.place(ctx, q)
	}
}

// question returns the question for a forecast of the group, or of the slot.
func (c *GroupCache) question(ctx context.Context) (whatif.Question, error) {
	src := c.source.Load()
	if src != nil && src.Paths.Slot != "" {
		return c.slotQuestion(ctx, src, src.Paths.Slot)
	}
	snap, err := c.snapshot(ctx)
	if err != nil {
		return whatif.Question{}, err
	}
	if src = c.source.Load(); src == nil {
		return whatif.Question{}, ErrNoSession
	}
	return question(src.Group, src.Config, snap, &c.policies)
}

// slotQuestion returns the question for a forecast of a slot, or without one of the whole group with slots.
func (c *GroupCache) slotQuestion(ctx context.Context, of *Source, slot string) (whatif.Question, error) {
	g, err := load(ctx, c, &c.slots, func(ctx context.Context, src *Source) (Leaders, error) {
		return ReadLeaders(ctx, src.Session, src.Group, src.Paths, true, false)
	})
	if err != nil {
		return whatif.Question{}, err
	}
	return g.Question(of.Config, slot, unasked(g.Name), &c.policies)
}
