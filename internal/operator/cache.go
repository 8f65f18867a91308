package operator

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/config"
	"zkelectd/internal/policy"
	"zkelectd/internal/status"
	"zkelectd/internal/whatif"
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
// elector, and the history. It reads on the loop's session, one thing at a time and each at most once a second however many
// clients ask, so that it never delays the election; it sets no watch and writes nothing.
type GroupCache struct {
	viewer   *status.Viewer
	policies policy.Cache // for explanations
	source   atomic.Pointer[Source]
	elector  atomic.Pointer[cluster.Snapshot] // the elector's own
	busy     chan struct{}                    // holds one value during a read; guards the two below
	group    cached[cluster.Snapshot]
	history  cached[cluster.History]
}

// Source is what a [GroupCache] reads from.
type Source struct {
	Session Session
	Paths   cluster.Paths
	Config  config.Config
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

// NewGroupCache returns a cache for the group below root, without a source.
func NewGroupCache(root string) *GroupCache {
	return &GroupCache{viewer: status.NewViewer(root), busy: make(chan struct{}, 1)}
}

// SetSource changes what is read from; nil for nothing, while there is no session.
func (c *GroupCache) SetSource(s *Source) { c.source.Store(s) }

// Source returns what is read from, or nil.
func (c *GroupCache) Source() *Source { return c.source.Load() }

// SetSnapshot provides the elector's own snapshot, which makes reading unnecessary; nil for none.
func (c *GroupCache) SetSnapshot(s *cluster.Snapshot) { c.elector.Store(s) }

// load returns what is cached in entry, or reads it.
func load[T any](ctx context.Context, c *GroupCache, entry *cached[T], read func(context.Context, *Source) (T, error)) (T, error) {
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
		return zkstore.ReadAll(ctx, src.Session, src.Paths, false)
	})
}

// Group returns the whole group.
func (c *GroupCache) Group(ctx context.Context) (status.Group, error) {
	snap, err := c.snapshot(ctx)
	if err != nil {
		return status.Group{}, err
	}
	return c.viewer.Group(snap), nil
}

// History returns the last terms, oldest first.
func (c *GroupCache) History(ctx context.Context) ([]cluster.PastTerm, error) {
	h, err := load(ctx, c, &c.history, func(ctx context.Context, src *Source) (cluster.History, error) {
		return ReadHistory(ctx, src.Session, src.Paths, false)
	})
	return h.Terms, err
}

// Explain returns why the leader is the leader. The ranking program of an exec policy is not run: HTTP clients must not be
// able to start it.
func (c *GroupCache) Explain(ctx context.Context) (whatif.Explanation, error) {
	snap, err := c.snapshot(ctx)
	if err != nil {
		return whatif.Explanation{}, err
	}
	src := c.source.Load()
	if src == nil {
		return whatif.Explanation{}, ErrNoSession
	}
	q, err := question(src.Config, snap, &c.policies)
	if err != nil {
		return whatif.Explanation{}, err
	}
	q.Ask = func(policy.Input) *policy.Answer {
		return &policy.Answer{Err: "the HTTP API does not run it; 'zkelectd explain' does"}
	}
	return whatif.Explain(q), nil
}
