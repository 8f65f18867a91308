package zk

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
)

// ErrAbandoned is the error of every request of a [Group] that was abandoned or closed. It matches
// [cluster.ErrNotSent].
var ErrAbandoned = fmt.Errorf("%w: this instance of the group was given up", cluster.ErrNotSent)

// Group is a handle: one group's access to a session that several groups share, or that of a slot of a group. Its
// hints are those below the group's root, except for those of other slots; its requests and its final transaction are
// its own, and giving it up does not affect the other groups. It implements [cluster.ReadWriter], [cluster.Watcher],
// [cluster.Lifetime] and [cluster.Owner], and is safe for concurrent use.
type Group struct {
	*Session
	id     int // no two handles of a session have the same
	root   string
	slot   string // its fence; empty in a group without slots
	slots  string // the parent of all fences
	wake   chan struct{}
	ctx    context.Context // canceled when the handle is given up
	giveUp context.CancelCauseFunc

	// The session's mutex guards the following.
	hints    cluster.Hints
	finalOps []cluster.Op
	// unsettled is set after a write of unknown outcome, until it has been settled.
	unsettled bool
}

func (s *Session) newGroup(root string) *Group {
	g := &Group{Session: s, root: root, wake: make(chan struct{}, 1)}
	g.ctx, g.giveUp = context.WithCancelCause(context.Background())
	return g
}

// Group returns a handle for the group with that root. The caller must close it.
func (s *Session) Group(p cluster.Paths) *Group {
	g := s.newGroup(p.Root)
	if p.Slot != "" {
		g.slot, g.slots = p.Leader(), p.Slots()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handles++
	g.id = s.handles
	s.groups[g.root] = append(s.groups[g.root], g)
	return g
}

// groupsOf returns the handles whose root is path or above it; the session's own handle if there are none. The caller
// holds s.mu.
func (s *Session) groupsOf(path string) []*Group {
	for at := path; at != ""; at = at[:strings.LastIndexByte(at, '/')] {
		if groups := s.groups[at]; len(groups) > 0 {
			return groups
		}
	}
	return []*Group{s.own}
}

// allGroups calls f with every handle, including the session's own. The caller holds s.mu.
func (s *Session) allGroups(f func(*Group)) {
	f(s.own)
	for _, groups := range s.groups {
		for _, g := range groups {
			f(g)
		}
	}
}

// hint adds a hint for path, or for everything if path is empty. The caller holds s.mu.
func (g *Group) hint(path string) {
	switch {
	case path == "":
		g.hints.All = true
	case g.ofOtherSlot(path):
		return
	default:
		g.hints.Add(path)
	}
	select {
	case g.wake <- struct{}{}:
	default: // it is awake
	}
}

// ofOtherSlot reports whether path is that of another slot's fence, or below it.
func (g *Group) ofOtherSlot(path string) bool {
	return g.slot != "" && strings.HasPrefix(path, g.slots+"/") && path != g.slot && !strings.HasPrefix(path, g.slot+"/")
}

// Wake returns a channel that receives when there are hints to take.
func (g *Group) Wake() <-chan struct{} { return g.wake }

// TakeHints returns the hints since the last call and clears them.
func (g *Group) TakeHints() cluster.Hints {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.hints
	g.hints = cluster.Hints{}
	return h
}

// CloseWith makes [Session.Close] send ops as this group's final transaction. Calling it without ops cancels that.
func (g *Group) CloseWith(ops ...cluster.Op) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() == nil {
		g.finalOps = ops
	}
}

// Abandon makes every later request of this handle fail with [ErrAbandoned], also those that are still queued. The
// final transaction and the hints stay until Close.
func (g *Group) Abandon() {
	g.renewer.mu.Lock()
	defer g.renewer.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.giveUp(ErrAbandoned)
	g.renewer.withdraw(g)
}

// Close abandons the handle, and drops its hints and its final transaction.
func (g *Group) Close() {
	g.Abandon()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.finalOps, g.hints = nil, cluster.Hints{}
	if rest := slices.DeleteFunc(slices.Clone(g.groups[g.root]), func(o *Group) bool { return o == g }); len(rest) > 0 {
		g.groups[g.root] = rest
	} else {
		delete(g.groups, g.root)
	}
}

// Fail ends the session for all of its groups, without anything else being sent; the servers end it after its timeout.
func (g *Group) Fail(reason error) { g.end(reason) }
