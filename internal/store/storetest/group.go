package storetest

import (
	"context"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
)

// Handle is one group's access to a session, as [store.Group] is.
type Handle interface {
	cluster.ReadWriter
	cluster.Watcher
	// Sync lets later reads show the outcome of all earlier writes of the session to the group.
	Sync(context.Context) error
	// Abandon makes all later requests fail with [cluster.ErrNotSent].
	Abandon()
	// Close abandons the handle and drops its hints.
	Close()
}

// Group is a [Handle] of a session with a [Server].
type Group struct {
	*Session
	root      string
	wake      chan struct{}
	hints     cluster.Hints
	abandoned bool
}

var _ Handle = (*Group)(nil)

// Group returns a handle for the group with that root.
func (c *Session) Group(p cluster.Paths) *Group {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	g := &Group{Session: c, root: p.Root, wake: make(chan struct{}, 1)}
	c.groups = append(c.groups, g)
	return g
}

// hint files a hint with the handles whose root is path or above it, or else with the session. The caller holds the
// server's mutex.
func (c *Session) hint(path string) {
	found := false
	for _, g := range c.groups {
		if path == g.root || strings.HasPrefix(path, g.root+"/") {
			found = true
			g.hints.Add(path)
			wake(g.wake)
		}
	}
	if !found {
		c.hints.Add(path)
		wake(c.wake)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// failure returns the error of every request after Abandon.
func (g *Group) failure() error {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	if g.abandoned {
		return cluster.ErrNotSent
	}
	return nil
}

// Get implements [cluster.Reader].
func (g *Group) Get(ctx context.Context, path string, watch bool) ([]byte, cluster.Stat, error) {
	if err := g.failure(); err != nil {
		return nil, cluster.Stat{}, err
	}
	return g.Session.Get(ctx, path, watch)
}

// Children implements [cluster.Reader].
func (g *Group) Children(ctx context.Context, path string, watch bool) ([]string, cluster.Stat, error) {
	if err := g.failure(); err != nil {
		return nil, cluster.Stat{}, err
	}
	return g.Session.Children(ctx, path, watch)
}

// Do implements [cluster.Writer].
func (g *Group) Do(ctx context.Context, ops ...cluster.Op) ([]cluster.Result, error) {
	if err := g.failure(); err != nil {
		return nil, err
	}
	return g.Session.Do(ctx, ops...)
}

// Wake implements [cluster.Watcher].
func (g *Group) Wake() <-chan struct{} { return g.wake }

// TakeHints implements [cluster.Watcher].
func (g *Group) TakeHints() cluster.Hints {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	h := g.hints
	g.hints = cluster.Hints{}
	return h
}

// Abandon implements [Handle].
func (g *Group) Abandon() {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	g.abandoned = true
}

// Close implements [Handle].
func (g *Group) Close() {
	g.Abandon()
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	g.hints = cluster.Hints{}
	g.groups = slices.DeleteFunc(g.groups, func(o *Group) bool { return o == g })
}
