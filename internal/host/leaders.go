package host

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/work/hook"
	"zkelectd/internal/work/workenv"
	"zkelectd/internal/zk"
)

// leaderWatch watches who leads a group, for hooks.on_leader_change and for the events of the HTTP API. A member that
// neither elects nor leads needs nothing of that, so the znode is watched only if somebody wants to know. It is
// separate from the member's loop: nothing waits for it, and nothing is decided by it.
type leaderWatch struct {
	group *Group
	hooks *hook.Queue
	poke  chan struct{} // the hook may have been set or changed
	seen  atomic.Pointer[status.HolderChange]

	// Only one run at a time uses the following.
	shown  status.Holder // as in the last event; it outlives sessions, so that a reconnect is no change
	hooked hookedChange
}

// hookedChange identifies what the hook was run for.
type hookedChange struct {
	known bool
	ready bool
	term  int64
}

func newLeaderWatch(g *Group) *leaderWatch {
	return &leaderWatch{group: g, poke: make(chan struct{}, 1)}
}

func (w *leaderWatch) hook() hook.Hook {
	return w.group.hook("hooks.on_leader_change", w.group.workConfig().Hooks.OnLeaderChange)
}

// reconsider makes the watch begin if the configuration in force has the hook now.
func (w *leaderWatch) reconsider() { signal(w.poke) }

// holder returns the holder of leadership as last seen; nil if it is not watched.
func (w *leaderWatch) holder() *status.Holder {
	if l := w.seen.Load(); l != nil {
		return &l.Holder
	}
	return nil
}

// start watches over a session until stop is called.
func (w *leaderWatch) start(ctx context.Context, s *zk.Session) (stop func()) {
	return inBackground(ctx, func(ctx context.Context) {
		if !w.awaitInterest(ctx) {
			return
		}
		conn := s.Group(w.group.paths)
		defer conn.Close()
		w.run(ctx, conn)
	})
}

// awaitInterest waits until somebody wants to know who leads. It returns false if ctx ends before.
func (w *leaderWatch) awaitInterest(ctx context.Context) bool {
	for len(w.hook().Argv) == 0 {
		select {
		case <-w.poke:
		case <-w.group.feed.Followed():
			return true
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// leaderSession is what a watch needs of a session.
type leaderSession interface {
	cluster.Reader
	cluster.Watcher
	cluster.Lifetime
}

// leaderRetry is the pause after a read that has failed.
const leaderRetry = time.Second

func (w *leaderWatch) run(ctx context.Context, conn leaderSession) {
	defer w.seen.Store(nil)
	for changed := true; ; {
		if changed {
			l, ok := w.read(ctx, conn)
			if changed = !ok; ok {
				w.observe(l)
			}
		}
		var retry <-chan time.Time
		if changed {
			retry = time.After(leaderRetry)
		}
		select {
		case <-w.poke:
			changed = true
		case <-conn.Wake():
			hints := conn.TakeHints()
			changed = changed || hints.All || hints.Has(w.group.paths.Current())
		case <-retry:
		case <-conn.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// read reads who leads, with a watch; ok is false if that cannot be read now. Nobody leads by a current that is not the
// holder's.
func (w *leaderWatch) read(ctx context.Context, conn leaderSession) (l status.HolderChange, ok bool) {
	p := w.group.paths
	for {
		var s cluster.Snapshot
		data, stat, err := conn.Get(ctx, p.Current(), true)
		if err != nil && !errors.Is(err, cluster.ErrNoNode) {
			return l, false
		}
		s.Current = cluster.ReadStored[cluster.Current](p.Current(), data, stat, err == nil)
		data, stat, err = conn.Get(ctx, p.Leader(), false)
		if err != nil && !errors.Is(err, cluster.ErrNoNode) {
			return l, false
		}
		s.Fence = cluster.ReadFence(p.Leader(), data, stat, err == nil)
		if hints := conn.TakeHints(); hints.All || hints.Has(p.Current()) {
			continue // another leadership may have begun between the reads, and the fence may be its
		}
		s.CheckCurrent(p)
		switch {
		case s.Current.Readable():
			return begun(s.Current.Record), true
		case !s.Current.Exists || s.ForeignCurrent():
			return ended(s.Fence), true
		default:
			return l, false
		}
	}
}

func begun(c cluster.Current) status.HolderChange {
	return status.HolderChange{
		Holder: status.HolderOf(c),
		Cause:  string(c.Cause), Reason: c.Reason, PreviousLeader: c.PreviousLeader, PreviousClean: c.PreviousClean,
	}
}

// ended returns what is known while there is no holder. An unreadable fence has an empty record.
func ended(fence cluster.Stored[cluster.Fence]) status.HolderChange {
	f := fence.Record
	return status.HolderChange{
		Holder:         status.Holder{Term: f.Term, State: status.StateNone},
		PreviousLeader: f.Node, PreviousClean: f.State == cluster.FenceReleased,
	}
}

// observe reports what was read, if it is news.
func (w *leaderWatch) observe(l status.HolderChange) {
	w.seen.Store(&l)
	if l.Holder != w.shown {
		w.shown = l.Holder
		w.group.feed.Add(status.EventLeadership, l)
	}
	if len(w.hook().Argv) == 0 {
		w.hooked = hookedChange{}
		return
	}
	ready := l.State == string(cluster.CurrentReady)
	next := hookedChange{known: true, ready: ready, term: l.Term}
	if before := w.hooked; !ready && before.known && !before.ready || next == before {
		return // still nobody leads, or still the same one
	}
	if !ready && w.hooked.known {
		next.term = w.hooked.term // a takeover has begun already
	} else if !ready && l.State != status.StateNone {
		next.term = 0
	}
	w.hooked = next
	w.hooks.Push(w.input(l, next))
}

// input returns the input of hooks.on_leader_change.
func (w *leaderWatch) input(l status.HolderChange, at hookedChange) hook.Input {
	g := w.group
	c := g.config()
	change := status.LeaderChange{
		Node: c.Node.ID, Site: c.Node.Site, Group: g.name, Root: g.paths.Root, Term: at.term, State: status.StateNone,
		PreviousLeader: l.PreviousLeader, PreviousClean: l.PreviousClean, Time: time.Now(),
	}
	if at.ready {
		change.Leader, change.LeaderSite, change.State, change.Cause, change.Reason = l.Node, l.Site, l.State,
			l.Cause, l.Reason
		change.Value = l.Value
	}
	return hook.Input{Data: hook.JSON(change), Env: g.leaderVariables(change)}
}

// leaderVariables returns the environment variables of hooks.on_leader_change.
func (g *Group) leaderVariables(c status.LeaderChange) []string {
	f := workenv.Fencing{
		Node: c.Node, Site: c.Site, Group: g.resource.name, Root: c.Root, Slot: g.paths.Slot,
		Slots: strconv.FormatInt(g.size.Load(), 10),
		Cause: c.Cause, PreviousLeader: c.PreviousLeader, PreviousClean: c.PreviousClean,
	}
	if c.Term != 0 {
		f.Term = strconv.FormatInt(c.Term, 10)
	}
	return f.LeaderVariables(c.Leader, c.LeaderSite)
}
