package zkstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
)

// netInterval is how often everything is read again although no watch has fired: a net below the watches, no part of
// any election's normal way. Jitter keeps a fleet from doing it in step.
const netInterval = 30 * time.Second

// ReaderOptions are what a Reader needs.
type ReaderOptions struct {
	Conn  cluster.Conn
	Paths cluster.Paths
	Self  cluster.Incarnation
	// Clock is the daemon's monotonic time, for Snapshot.At.
	Clock func() time.Duration
	Log   *slog.Logger
}

// Reader keeps a snapshot of what this daemon must know, by watches. It reads again only what was hinted, so that the
// cost of an event does not grow with the group: a follower watches its own registration, its predecessor and elected;
// whoever is elected or holds current watches the fence and current too; only the elector watches all members.
type Reader struct {
	opt   ReaderOptions
	out   chan cluster.Snapshot
	force chan struct{}

	mu    sync.Mutex      // guards known and nodes while several reads are under way
	known map[string]bool // paths whose last reading still stands

	snap        cluster.Snapshot
	predecessor string
	refused     string          // what was logged of a refusal
	foreign     int             // how many foreign znodes were last logged
	forged      map[string]bool // incarnations without a session
	unlisted    bool            // the own incarnation is gone
	unnamed     bool            // the own znode below nodes is gone or damaged
	nodes       map[string]cluster.Slot[cluster.Node]
	names       []cluster.Incarnation
}

// NewReader returns a reader; Run makes it work.
func NewReader(opt ReaderOptions) *Reader {
	return &Reader{
		opt:   opt,
		out:   make(chan cluster.Snapshot, 1),
		force: make(chan struct{}, 1),
		known: make(map[string]bool), forged: make(map[string]bool),
		nodes: make(map[string]cluster.Slot[cluster.Node]),
		snap:  cluster.Snapshot{Self: opt.Self, Session: opt.Conn.SessionID()},
	}
}

// Snapshots delivers the newest snapshot; one that was not taken is replaced.
func (r *Reader) Snapshots() <-chan cluster.Snapshot { return r.out }

// Reread asks for elected, the fence and current to be read again, with a new snapshot as the answer.
func (r *Reader) Reread() {
	select {
	case r.force <- struct{}{}:
	default:
	}
}

// Run reads until ctx is over or the session has ended; it owns the reader meanwhile.
func (r *Reader) Run(ctx context.Context) {
	timer := time.NewTimer(jitter(netInterval))
	defer timer.Stop()
	for {
		// The time comes before the hints: whatever happened by then is in what is read now, or hinted and read anew.
		r.snap.At = r.opt.Clock()
		r.forget(r.opt.Conn.TakeHints())
		done := r.read(ctx)
		hints := r.opt.Conn.TakeHints()
		r.forget(hints)
		switch {
		case done && r.mixed(hints):
			continue
		case done:
			r.publish()
		default:
			// What could not be read stays unknown; a reconnect wakes, this is for a refusal without one.
			timer.Reset(jitter(time.Second))
		}
		select {
		case <-ctx.Done():
			return
		case <-r.opt.Conn.Done():
			return
		case <-r.opt.Conn.Wake():
		case <-r.force:
			p := r.opt.Paths
			for _, path := range []string{p.Incarnation(r.opt.Self.Name), p.Elected(), p.Leader(), p.Current()} {
				delete(r.known, path)
			}
		case <-timer.C:
			r.forget(cluster.Hints{All: true})
			timer.Reset(jitter(netInterval))
		}
	}
}

// mixed tells that what was read may be of before and after a change of the decision or of leadership. The server tells
// of a change before it shows anything newer, so a snapshot without such a hint is of one moment. Versions alone would not
// do: those of an elected that was deleted and made anew begin again.
func (r *Reader) mixed(h cluster.Hints) bool {
	p := r.opt.Paths
	return h.Has(p.Elected()) || h.Has(p.Leader()) || h.Has(p.Current())
}

func jitter(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2) }

func (r *Reader) forget(h cluster.Hints) {
	if h.All {
		clear(r.known)
		return
	}
	for path := range h.Paths {
		delete(r.known, path)
		if strings.HasPrefix(path, r.opt.Paths.Nodes()+"/") {
			// A member that leaves takes its incarnation along: never judge the one without the other.
			delete(r.known, r.opt.Paths.Election())
		}
	}
	if p := r.opt.Paths; h.Has(p.Leader()) || h.Has(p.Current()) {
		// They change together, and the watch of the other fires next: reading both now saves a round trip to a takeover.
		delete(r.known, p.Leader())
		delete(r.known, p.Current())
	}
}

func (r *Reader) publish() {
	snap := r.snap
	select {
	case <-r.out:
	default:
	}
	r.out <- snap
}

// read brings the snapshot up to date. False means that something could not be read; it stays unknown and is read
// again.
func (r *Reader) read(ctx context.Context) bool {
	for _, step := range []func(context.Context) error{r.readDecision, r.readLeadership, r.readOrder, r.readMembers} {
		if err := step(ctx); err != nil {
			if !errors.Is(err, cluster.ErrSessionEnded) && ctx.Err() == nil {
				r.complain(err)
			}
			return false
		}
	}
	r.refused = ""
	return true
}

// complain logs what could not be read. Most of it passes; a refusal does not, and is told to people, once.
func (r *Reader) complain(err error) {
	if !errors.Is(err, cluster.ErrNoAuth) || err.Error() == r.refused {
		r.opt.Log.Debug("reading the group failed", "err", err)
		return
	}
	r.refused = err.Error()
	r.opt.Log.Error("this daemon may not read the group, and takes no part until it may", "err", err)
}

// readDecision reads elected, the own registration and (once it is in scope) the fence: before anything else, so that a
// decision made from the snapshot is fenced by versions at least as old as what it is based on.
func (r *Reader) readDecision(ctx context.Context) error {
	p := r.opt.Paths
	inScope := r.inScope() // by what is known so far
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return r.fetch(ctx, p.Elected(), func(data []byte, stat cluster.Stat, exists bool) {
			r.snap.Elected = cluster.ReadSlot[cluster.Elected](p.Elected(), data, stat, exists)
		})
	})
	g.Go(func() error {
		return r.fetch(ctx, p.Incarnation(r.opt.Self.Name), func(_ []byte, stat cluster.Stat, exists bool) {
			r.unlisted = !exists || stat.Owner != r.snap.Session
		})
	})
	g.Go(func() error {
		path := p.Node(r.opt.Self.ID)
		return r.fetch(ctx, path, func(data []byte, stat cluster.Stat, exists bool) {
			s := cluster.ReadSlot[cluster.Node](path, data, stat, exists)
			r.unnamed = !s.Readable() || stat.Owner != r.snap.Session
			r.keep(r.opt.Self.ID, s)
		})
	})
	if inScope {
		g.Go(func() error { return r.readFence(ctx) })
	}
	err := g.Wait()
	r.snap.SelfLost = r.unlisted || r.unnamed
	return err
}

// keep notes the record of a node.
func (r *Reader) keep(id string, s cluster.Slot[cluster.Node]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes[id] = s
}

// inScope tells whether this daemon has to know the fence and current.
func (r *Reader) inScope() bool {
	return r.snap.Elector || (r.snap.Elected.Readable() && r.snap.Elected.Record.Incarnation == r.opt.Self.Name) ||
		r.snap.HoldsCurrent()
}

func (r *Reader) readFence(ctx context.Context) error {
	path := r.opt.Paths.Leader()
	return r.fetch(ctx, path, func(data []byte, stat cluster.Stat, exists bool) {
		r.snap.Fence = cluster.ReadFence(path, data, stat, exists)
	})
}

func (r *Reader) readCurrent(ctx context.Context) error {
	path := r.opt.Paths.Current()
	return r.fetch(ctx, path, func(data []byte, stat cluster.Stat, exists bool) {
		r.snap.Current = cluster.ReadSlot[cluster.Current](path, data, stat, exists)
	})
}

func (r *Reader) readLeadership(ctx context.Context) error {
	p := r.opt.Paths
	r.snap.FenceAlive = false
	if !r.inScope() {
		r.snap.Leadership = false
		r.snap.Fence, r.snap.Current = cluster.Slot[cluster.Fence]{}, cluster.Slot[cluster.Current]{}
		delete(r.known, p.Leader())
		delete(r.known, p.Current())
		return nil
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.readFence(gctx) })
	g.Go(func() error { return r.readCurrent(gctx) })
	if err := g.Wait(); err != nil {
		return err
	}
	r.snap.Leadership = true
	f := r.snap.Fence.Record
	if r.snap.Current.Exists || !r.snap.Fence.Readable() || (f.State != cluster.FenceHeld && f.State != cluster.FenceReady) {
		return nil
	}
	return r.readHolder(ctx)
}

// readHolder looks closer where the fence says held and current is not there: read at different moments, they may be of
// before and after an ACQUIRE or a RELEASE. So both are read again, the fence first. If it still is so, then either the
// holder's session has ended, and its incarnation is gone too, or current was deleted under it.
func (r *Reader) readHolder(ctx context.Context) error {
	p := r.opt.Paths
	delete(r.known, p.Leader())
	if err := r.readFence(ctx); err != nil || !r.snap.Fence.Readable() {
		return err
	}
	if s := r.snap.Fence.Record.State; s != cluster.FenceHeld && s != cluster.FenceReady {
		return nil
	}
	delete(r.known, p.Current())
	if err := r.readCurrent(ctx); err != nil || r.snap.Current.Exists {
		return err
	}
	_, _, err := r.opt.Conn.Get(ctx, p.Incarnation(r.snap.Fence.Record.Incarnation), false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return err
	}
	r.snap.FenceAlive = err == nil
	return nil
}

// readOrder finds out who stands before this daemon. Only the first watches the list.
func (r *Reader) readOrder(ctx context.Context) error {
	p := r.opt.Paths
	if !r.snap.Elector {
		if r.predecessor != "" {
			gone := false
			err := r.fetch(ctx, p.Incarnation(r.predecessor), func(_ []byte, stat cluster.Stat, exists bool) {
				gone = !exists || r.isForged(r.predecessor, stat)
			})
			if err != nil || !gone {
				return err
			}
			delete(r.known, p.Incarnation(r.predecessor))
			r.predecessor = ""
		}
		if err := r.list(ctx, false); err != nil {
			return err
		}
		if r.snap.SelfLost {
			return nil
		}
		i := slices.IndexFunc(r.names, func(in cluster.Incarnation) bool { return in.Name == r.opt.Self.Name })
		switch {
		case i < 0:
			r.snap.SelfLost = true
			return nil
		case i > 0:
			r.predecessor, r.names = r.names[i-1].Name, nil
			return r.readOrder(ctx)
		}
		r.snap.Elector = true
		// Its word counts from now on. What it knew of the decision as one of many is read again, lest a watch was lost: if
		// elected was made anew meanwhile, the version would not tell. The fence and current are in scope now as well, and
		// must be read before the members.
		delete(r.known, p.Elected())
		for _, step := range []func(context.Context) error{r.readDecision, r.readLeadership} {
			if err := step(ctx); err != nil {
				r.snap.Elector = false
				return err
			}
		}
	}
	if r.isKnown(p.Election()) {
		return nil
	}
	return r.list(ctx, true)
}

// isForged tells that an incarnation belongs to no session. No daemon makes such a one: it would never end, and whoever
// waited for that would never elect.
func (r *Reader) isForged(name string, stat cluster.Stat) bool {
	if stat.Owner != 0 {
		return false
	}
	r.forged[name] = true
	r.opt.Log.Warn("an incarnation without a session is passed over: delete it", "znode", r.opt.Paths.Incarnation(name))
	return true
}

func (r *Reader) list(ctx context.Context, watch bool) error {
	names, _, err := r.opt.Conn.Children(ctx, r.opt.Paths.Election(), watch)
	if err != nil {
		return fmt.Errorf("cannot list znode %s: %w", r.opt.Paths.Election(), err)
	}
	in, foreign := cluster.ParseIncarnations(names)
	if watch && (len(foreign) > 2*r.foreign || len(foreign) == 0) {
		r.foreign = len(foreign)
		if len(foreign) > 0 {
			r.opt.Log.Warn("foreign znodes among the incarnations are ignored: delete them", "znode", r.opt.Paths.Election(),
				"count", len(foreign), "first", foreign[0])
		}
	}
	r.names = slices.DeleteFunc(in, func(i cluster.Incarnation) bool { return r.forged[i.Name] })
	if watch {
		r.known[r.opt.Paths.Election()] = true
	}
	return nil
}

// readMembers reads, as the elector, the nodes that are new or have changed.
func (r *Reader) readMembers(ctx context.Context) error {
	if !r.snap.Elector {
		return nil
	}
	p := r.opt.Paths
	wanted := make(map[string]bool, len(r.names))
	for _, in := range r.names {
		wanted[in.ID] = true
	}
	for id := range r.nodes {
		if !wanted[id] {
			delete(r.nodes, id)
			delete(r.known, p.Node(id))
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(64)
	g.Go(func() error {
		return r.fetch(gctx, p.Policy(), func(data []byte, stat cluster.Stat, exists bool) {
			r.snap.Policy = cluster.ReadSlot[cluster.Policy](p.Policy(), data, stat, exists)
		})
	})
	g.Go(func() error {
		return r.fetch(gctx, p.Control(), func(data []byte, stat cluster.Stat, exists bool) {
			r.snap.Control = cluster.ReadSlot[cluster.Control](p.Control(), data, stat, exists)
		})
	})
	for id := range wanted {
		path := p.Node(id)
		if r.isKnown(path) {
			continue
		}
		g.Go(func() error {
			err := r.fetch(gctx, path, func(data []byte, stat cluster.Stat, exists bool) {
				r.keep(id, nodeSlot(path, data, stat, exists))
			})
			if errors.Is(err, cluster.ErrNoAuth) {
				r.keep(id, closed(err)) // without a watch: it is read again each time
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	r.snap.Members = members(r.names, r.nodes)
	return nil
}

// fetch reads a path, with a watch, unless what was read of it still stands.
func (r *Reader) fetch(ctx context.Context, path string, take func(data []byte, stat cluster.Stat, exists bool)) error {
	if r.isKnown(path) {
		return nil
	}
	data, stat, err := r.opt.Conn.Get(ctx, path, true)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return fmt.Errorf("cannot read znode %s: %w", path, err)
	}
	take(data, stat, err == nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[path] = true
	return nil
}

func (r *Reader) isKnown(path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[path]
}

// members joins the incarnations, oldest first, with the records of their nodes.
func members(names []cluster.Incarnation, nodes map[string]cluster.Slot[cluster.Node]) []cluster.Member {
	newest := make(map[string]string, len(names))
	for _, in := range names {
		newest[in.ID] = in.Name
	}
	list := make([]cluster.Member, 0, len(names))
	for _, in := range names {
		list = append(list, cluster.Member{Incarnation: in, Node: nodes[in.ID], Superseded: newest[in.ID] != in.Name})
	}
	return list
}
