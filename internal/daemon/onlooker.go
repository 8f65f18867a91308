package daemon

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

// lookLimit is how long a look at ZooKeeper may take, lookAge how long what was seen is good for whoever asks next.
const (
	lookLimit = 2 * time.Second
	lookAge   = time.Second
)

// onlooker reads what people ask for and the loop does not know: the whole group, where this daemon is not the elector, and
// the history. It reads on the loop's session, one thing at a time and each at most once a second whoever asks, so that it
// is never in the way of the election; it sets no watch and writes nothing.
type onlooker struct {
	source  atomic.Pointer[source]
	seen    atomic.Pointer[cluster.Snapshot] // by the elector, whose own it is
	busy    chan struct{}                    // holds one value while somebody reads; guards the two below
	group   glance[cluster.Snapshot]
	history glance[cluster.History]
}

// source is what is read from.
type source struct {
	session *zkstore.Session
	paths   cluster.Paths
	cfg     config.Config
}

// glance is what was last read, or why it could not be.
type glance[T any] struct {
	from *zkstore.Session
	at   time.Time
	what T
	err  error
}

func newOnlooker() *onlooker { return &onlooker{busy: make(chan struct{}, 1)} }

var (
	errNoSession    = errors.New("there is no session with ZooKeeper")
	errNotConnected = errors.New("no ZooKeeper server is connected")
)

// look returns what g has, or has it read.
func look[T any](ctx context.Context, o *onlooker, g *glance[T], read func(context.Context, *source) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	var none T
	select {
	case o.busy <- struct{}{}:
		defer func() { <-o.busy }()
	case <-ctx.Done():
		return none, fmt.Errorf("too many ask at once: %w", ctx.Err())
	}
	src := o.source.Load()
	if src == nil {
		return none, errNoSession
	}
	if g.from == src.session && time.Since(g.at) < lookAge {
		return g.what, g.err
	}
	if !src.session.Connected() {
		return none, errNotConnected // a read would wait for one
	}
	what, err := read(ctx, src)
	if errors.Is(err, context.Canceled) {
		return none, err // the one who asked has gone; that is no answer for the next one
	}
	*g = glance[T]{src.session, time.Now(), what, err}
	return what, err
}

func (o *onlooker) snapshot(ctx context.Context) (cluster.Snapshot, error) {
	if seen, src := o.seen.Load(), o.source.Load(); seen != nil && src != nil && src.session.Connected() {
		return *seen, nil
	}
	return look(ctx, o, &o.group, func(ctx context.Context, src *source) (cluster.Snapshot, error) {
		return zkstore.ReadAll(ctx, src.session, src.paths, false)
	})
}

// Group is the whole group.
func (d *Daemon) Group(ctx context.Context) (status.Group, error) {
	snap, err := d.onlooker.snapshot(ctx)
	if err != nil {
		return status.Group{}, err
	}
	return status.Of(d.paths.Root, snap), nil
}

// History are the last terms, oldest first.
func (d *Daemon) History(ctx context.Context) ([]cluster.PastTerm, error) {
	h, err := look(ctx, d.onlooker, &d.onlooker.history, func(ctx context.Context, src *source) (cluster.History, error) {
		path := src.paths.History()
		data, _, err := src.session.Get(ctx, path, false)
		switch {
		case errors.Is(err, cluster.ErrNoNode):
			return cluster.History{}, nil
		case err != nil:
			return cluster.History{}, fmt.Errorf("cannot read znode %s: %w", path, err)
		}
		return cluster.DecodeHistory(path, data)
	})
	return h.Terms, err
}

// Explain says why the leader is the leader. The program of an exec policy is not asked: whoever asks here must not be able
// to have it run.
func (d *Daemon) Explain(ctx context.Context) (status.Explanation, error) {
	snap, err := d.onlooker.snapshot(ctx)
	if err != nil {
		return status.Explanation{}, err
	}
	src := d.onlooker.source.Load()
	if src == nil {
		return status.Explanation{}, errNoSession
	}
	q, err := Question(src.cfg, snap)
	if err != nil {
		return status.Explanation{}, err
	}
	q.Ask = func(policy.Input) *policy.Answer {
		return &policy.Answer{Err: "it is not asked for this; 'zkelectd explain' does"}
	}
	return whatif.Explain(q), nil
}
