package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/zk"
)

// CollectorOptions configure a [Collector].
type CollectorOptions struct {
	Source Source
	Paths  cluster.Paths
	Self   cluster.Incarnation
	// Session is the id of the session that Self is registered in.
	Session int64
	// Failsafe makes every member read the fence and current, and the holder the members and the policy.
	Failsafe bool
	// RollCalls makes every member read roll calls. An elector reads them also if the policy in force says so.
	RollCalls bool
	// Clock returns the daemon's monotonic time, for Snapshot.At.
	Clock func() time.Duration
	Log   *slog.Logger
}

// Collector keeps a snapshot up to date. After a hint it reads only the hinted znodes again, so that the cost of an
// event does not grow with the group: a follower watches its own registration, its predecessor and elected; the elected
// member and the holder of current also watch the fence and current; only the elector watches all members.
//
// It is deterministic: it has no goroutines and no timers, and [Source] is its only input. It is not safe for
// concurrent use.
type Collector struct {
	opt   CollectorOptions
	valid map[string]bool // paths whose last read is still valid

	snap            cluster.Snapshot
	predecessor     string
	next            bool            // the predecessor was the first in the list: when it goes, this daemon is the elector
	leaving         bool            // a hint has named the predecessor, which does not change: it is probably gone
	ahead           bool            // this pass has read what an elector needs in one round, in any order
	lastDenied      string          // the permission error that was logged last
	foreignLogged   int             // number of foreign znodes that was logged last
	forged          map[string]bool // incarnations that no session owns
	incarnationLost bool            // this daemon's incarnation is gone
	nodeLost        bool            // this daemon's znode below nodes is gone or damaged
	nodes           map[string]cluster.Stored[cluster.Node]
	incarnations    []cluster.Incarnation // as the list was read last
	act             bool                  // this daemon is to do the elector's work, though it is not the elector
	unwatched       bool                  // something was read without a watch
}

// NewCollector returns a collector that has not read anything yet.
func NewCollector(opt CollectorOptions) *Collector {
	return &Collector{
		opt:   opt,
		valid: make(map[string]bool), forged: make(map[string]bool),
		nodes: make(map[string]cluster.Stored[cluster.Node]),
		snap:  cluster.Snapshot{Self: opt.Self, Session: opt.Session, Slot: opt.Paths.Slot},
	}
}

// Collect reads everything that is not valid, until the whole snapshot is consistent: the decision, the fence and
// current are those of one moment. It returns false if a read failed; the next call repeats that read.
func (c *Collector) Collect(ctx context.Context) (cluster.Snapshot, bool) {
	for {
		// Take the time before the hints: every earlier change is then either read now, or hinted and read again.
		c.snap.At, c.ahead, c.unwatched = c.opt.Clock(), false, false
		c.invalidate(c.opt.Source.TakeHints())
		complete := c.read(ctx)
		hints := c.opt.Source.TakeHints()
		c.invalidate(hints)
		if !complete || !c.torn(hints) {
			snap := c.snap
			if complete {
				snap.CheckCurrent(c.opt.Paths)
			}
			return snap, complete
		}
	}
}

// InvalidateAll makes the next Collect read everything again.
func (c *Collector) InvalidateAll() { clear(c.valid) }

// InvalidateHolder makes the next Collect read this daemon's incarnation, elected, the fence and current again.
func (c *Collector) InvalidateHolder() {
	p := c.opt.Paths
	for _, path := range []string{p.Incarnation(c.opt.Self.Name), p.Elected(), p.Leader(), p.Current()} {
		delete(c.valid, path)
	}
}

// Act makes the next Collect read what the elector reads, although this daemon is not the elector, until Act(false).
func (c *Collector) Act(act bool) {
	c.act = act
	if !act && c.snap.Acting {
		c.snap.Acting, c.snap.Elector, c.snap.MembersRead, c.snap.Members = false, false, false, nil
		delete(c.valid, c.opt.Paths.Election())
	}
}

// readActing reads the election list for a daemon that does the elector's work.
func (c *Collector) readActing(ctx context.Context) error {
	if c.act && !c.snap.Elector && !c.snap.SelfLost {
		c.snap.Acting = true
		if err := c.becomeElector(ctx); err != nil {
			c.snap.Acting = false
			return err
		}
	}
	if !c.snap.Acting || c.valid[c.opt.Paths.Election()] {
		return nil
	}
	return c.listIncarnations(ctx, true)
}

// torn reports whether the reads before h may mix the states before and after a change of elected, the fence or
// current. A server delivers a watch event before it returns any newer data, so a snapshot without such a hint is
// consistent. Versions would not be enough: those of a znode that was deleted and created again start over. After reads
// in one round, it reports any change: the members may have been read before elected.
func (c *Collector) torn(h cluster.Hints) bool {
	p := c.opt.Paths
	changed := h.Has(p.Elected()) || h.Has(p.Leader()) || h.Has(p.Current())
	return changed || c.ahead && len(h.Paths) > 0 || c.tornPromisers(h)
}

func (c *Collector) invalidate(h cluster.Hints) {
	if h.All {
		clear(c.valid)
		return
	}
	for path := range h.Paths {
		delete(c.valid, path)
		c.leaving = c.leaving || c.predecessor != "" && path == c.opt.Paths.Incarnation(c.predecessor)
		if strings.HasPrefix(path, c.opt.Paths.Nodes()+"/") {
			// When a member leaves, its incarnation disappears too: never judge one without the other.
			delete(c.valid, c.opt.Paths.Election())
		}
	}
	if p := c.opt.Paths; h.Has(p.Leader()) || h.Has(p.Current()) {
		// They change together, and the other watch is about to fire: reading both now saves a takeover one round trip.
		delete(c.valid, p.Leader())
		delete(c.valid, p.Current())
	}
}

// read updates the snapshot. It returns false if a read failed.
func (c *Collector) read(ctx context.Context) bool {
	for _, step := range []func(context.Context) error{
		// of a deputy
		c.readDecision, c.readHolder, c.readQueue, c.readActing, c.readMembers, c.readPromisers, c.readHeir, c.readHolder,
	} {
		if err := step(ctx); err != nil {
			if !errors.Is(err, cluster.ErrSessionEnded) && ctx.Err() == nil {
				c.logError(err)
			}
			return false
		}
	}
	c.lastDenied = ""
	return true
}

// logError logs a failed read. Most failures are transient. A missing permission is not, so it is logged as an error,
// once.
func (c *Collector) logError(err error) {
	if !errors.Is(err, cluster.ErrNoAuth) || err.Error() == c.lastDenied {
		c.opt.Log.Debug("reading the group failed", "err", err)
		return
	}
	c.lastDenied = err.Error()
	c.opt.Log.Error("no permission to read the group: this daemon takes no part in elections until "+
		"it can read it", "err", err)
}

// readDecision reads slots, elected, this daemon's registration and, if they are needed, the fence and current. It runs
// before all other reads, so that a decision made from the snapshot checks versions that are at least as old as the
// data it is based on.
func (c *Collector) readDecision(ctx context.Context) error {
	p, self := c.opt.Paths, c.opt.Self
	targets := []target{
		c.electedTarget(),
		{p.Incarnation(self.Name), func(_ []byte, stat cluster.Stat, _ bool) {
			c.incarnationLost = stat.Owner != c.snap.Session // a znode that does not exist has no owner
		}, nil},
		{p.Node(self.ID), func(data []byte, stat cluster.Stat, exists bool) {
			s := cluster.ReadStored[cluster.Node](p.Node(self.ID), data, stat, exists)
			c.nodeLost = !s.Readable() || stat.Owner != c.snap.Session
			c.nodes[self.ID] = s
		}, nil},
	}
	if p.Slot != "" {
		targets = slices.Insert(targets, 0, c.slotsTarget())
	}
	// Judged by the previous reads. If there is a new decision, the heir is probably elected: it then acquires a round
	// trip earlier.
	if c.needsHolder() || !c.valid[p.Elected()] && c.snap.SelfIsHeir() {
		targets = append(targets, c.fenceTarget(), c.currentTarget())
	}
	err := c.fetch(ctx, targets...)
	c.snap.SelfLost = c.incarnationLost || c.nodeLost
	return err
}

// prioritize returns the context for reads: a group without a leader, and after a reconnect a group that this daemon
// leads, is read before others.
func (c *Collector) prioritize(ctx context.Context) context.Context {
	if c.needsHolder() && (!c.snap.HolderRead || c.snap.HoldsCurrent() || !c.snap.Ready()) {
		return zk.WithPriority(ctx, zk.PriorityRecovery)
	}
	return ctx
}

// needsHolder reports whether this daemon has to read the fence and current.
func (c *Collector) needsHolder() bool {
	return c.snap.Elector || (c.snap.Elected.Readable() && c.snap.Elected.Record.Incarnation == c.opt.Self.Name) ||
		c.snap.HoldsCurrent() || c.opt.Failsafe || c.snap.DeputyPlace() >= 0
}

func (c *Collector) slotsTarget() target {
	return recordTarget(c.opt.Paths.Slots(), cluster.ReadSlots, &c.snap.Slots)
}

func (c *Collector) electedTarget() target {
	return recordTarget(c.opt.Paths.Elected(), cluster.ReadStored[cluster.Elected], &c.snap.Elected)
}

func (c *Collector) fenceTarget() target {
	return recordTarget(c.opt.Paths.Leader(), cluster.ReadFence, &c.snap.Fence)
}

func (c *Collector) currentTarget() target {
	return recordTarget(c.opt.Paths.Current(), cluster.ReadStored[cluster.Current], &c.snap.Current)
}

func (c *Collector) readHolder(ctx context.Context) error {
	p := c.opt.Paths
	if !c.needsHolder() {
		c.snap.HolderRead = false
		c.snap.Fence, c.snap.Current = cluster.Stored[cluster.Fence]{}, cluster.Stored[cluster.Current]{}
		delete(c.valid, p.Leader())
		delete(c.valid, p.Current())
		return nil
	}
	if err := c.fetch(ctx, c.fenceTarget(), c.currentTarget()); err != nil {
		return err
	}
	c.snap.HolderRead = true
	return nil
}

// orderTargets returns what an elector reads beside the decision and the members. Only people miss a roster that may
// not be read.
func (c *Collector) orderTargets() []target {
	p := c.opt.Paths
	roster := recordTarget(p.Roster(), cluster.ReadRoster, &c.snap.Roster)
	roster.onDenied = func(err error) { c.snap.Roster = cluster.Stored[cluster.Roster]{Exists: true, Err: err} }
	return []target{
		recordTarget(p.Policy(), cluster.ReadStored[cluster.Policy], &c.snap.Policy),
		{p.Control(), func(data []byte, stat cluster.Stat, exists bool) {
			c.snap.Control = p.ReadControl(data, stat, exists)
		}, nil},
		roster,
	}
}

// readMembers reads the policy, the control record, the roster and all members that are new or have changed, if this
// daemon is the elector.
func (c *Collector) readMembers(ctx context.Context) error {
	if !c.snap.Elector {
		return nil
	}
	return c.readNodes(ctx, c.incarnations, c.orderTargets())
}

// readNodes reads the records of the members, and other targets. A member that may not be read must not prevent others
// from being seen or elected.
func (c *Collector) readNodes(ctx context.Context, incarnations []cluster.Incarnation, targets []target) error {
	present := make(map[string]bool, len(incarnations))
	for _, in := range incarnations {
		path := c.opt.Paths.Node(in.ID)
		if present[in.ID] {
			continue
		}
		present[in.ID] = true
		targets = append(targets, target{path, func(data []byte, stat cluster.Stat, exists bool) {
			c.nodes[in.ID] = storedNode(path, data, stat, exists)
		}, func(err error) { c.nodes[in.ID] = cluster.Stored[cluster.Node]{Exists: true, Err: err} }})
	}
	for id := range c.nodes {
		if !present[id] {
			delete(c.nodes, id)
			delete(c.valid, c.opt.Paths.Node(id))
		}
	}
	if err := c.fetch(ctx, targets...); err != nil {
		return err
	}
	c.snap.Members = joinMembers(incarnations, c.nodes)
	return nil
}

// readHeir reads the heir that elected does not name, and in groups that use roll calls the last one. Nothing is
// decided by the heir, and no election needs a roll call, so nothing waits for them.
func (c *Collector) readHeir(ctx context.Context) error {
	if c.opt.Paths.Slot == "" && (c.opt.RollCalls || c.snap.Elector && c.snap.Policy.Record.RollCall.Enabled) {
		return c.fetch(ctx, c.heirTarget(), c.rollCallTarget())
	}
	return c.fetch(ctx, c.heirTarget())
}

func (c *Collector) rollCallTarget() target {
	t := recordTarget(c.opt.Paths.RollCall(), cluster.ReadStored[cluster.RollCall], &c.snap.RollCall)
	t.onDenied = func(err error) { c.snap.RollCall = cluster.Stored[cluster.RollCall]{Err: err} }
	return t
}

func (c *Collector) heirTarget() target {
	t := recordTarget(c.opt.Paths.Heir(), cluster.ReadStored[cluster.HeirRecord], &c.snap.Heir)
	t.onDenied = func(err error) { c.snap.Heir = cluster.Stored[cluster.HeirRecord]{Err: err} }
	return t
}

// target is a znode to read with a watch, and where the result goes.
type target struct {
	path  string
	store func(data []byte, stat cluster.Stat, exists bool)
	// onDenied receives a permission error; if it is nil, that is a failure. No watch is set then, so the znode is read
	// again each time.
	onDenied func(err error)
}

// recordTarget returns a target whose record is stored at into.
func recordTarget[T any](path string, decode decoder[T], into *cluster.Stored[T]) target {
	return target{path: path, store: func(data []byte, stat cluster.Stat, exists bool) {
		*into = decode(path, data, stat, exists)
	}}
}

// fetch reads those targets that are not valid. It stores every answer, even if another read fails.
func (c *Collector) fetch(ctx context.Context, targets ...target) error {
	return c.fetchWith(c.prioritize(ctx), nil, targets...)
}

// fetchWith is fetch with other reads in the same round, whose results the caller stores.
func (c *Collector) fetchWith(ctx context.Context, others []*Read, targets ...target) error {
	targets = slices.DeleteFunc(targets, func(t target) bool { return c.valid[t.path] })
	if len(targets)+len(others) == 0 {
		return nil
	}
	p, reads := c.opt.Paths, make([]*Read, len(targets))
	for i, t := range targets {
		reads[i] = &Read{Path: t.path, Watch: true, Optional: t.path == p.Roster() || t.path == p.Heir() ||
			t.path == p.RollCall()}
	}
	c.opt.Source.Read(ctx, append(reads, others...))
	var failure error
	var held *zk.HeldBackError
	for i, read := range reads {
		t, err := targets[i], read.Err
		switch {
		case err == nil || errors.Is(err, cluster.ErrNoNode):
			t.store(read.Data, read.Stat, err == nil)
			c.valid[t.path] = true
		case errors.Is(err, cluster.ErrNoAuth) && t.onDenied != nil:
			t.onDenied(fmt.Errorf("cannot read znode %s: %w", t.path, err))
			c.unwatched = true
		case read.Optional && errors.As(err, &held):
			t.onDenied(err) // no election waits for it
			c.unwatched = true
		case failure == nil || errors.Is(failure, context.Canceled): // which only follows from another failure
			failure = fmt.Errorf("cannot read znode %s: %w", t.path, err)
		}
	}
	return failure
}

// joinMembers joins the incarnations, oldest first, with the records of their nodes.
func joinMembers(names []cluster.Incarnation, nodes map[string]cluster.Stored[cluster.Node]) []cluster.Member {
	list := make([]cluster.Member, 0, len(names))
	for _, in := range names {
		n := nodes[in.ID]
		list = append(list, cluster.Member{Incarnation: in, Node: n, Superseded: n.Readable() && !n.Record.Registered(in)})
	}
	return list
}
