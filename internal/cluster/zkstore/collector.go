package zkstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// CollectorOptions configure a [Collector].
type CollectorOptions struct {
	Source Source
	Paths  cluster.Paths
	Self   cluster.Incarnation
	// Session is the id of the session that Self is registered in.
	Session int64
	// Clock returns the daemon's monotonic time, for Snapshot.At.
	Clock func() time.Duration
	Log   *slog.Logger
}

// Collector keeps a snapshot up to date. After a hint it reads only the hinted znodes again, so that the cost of an event
// does not grow with the group: a follower watches its own registration, its predecessor and elected; the elected member and
// the holder of current also watch the fence and current; only the elector watches all members.
//
// It is deterministic: it has no goroutines and no timers, and [Source] is its only input. It is not safe for concurrent use.
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
	incarnations    []cluster.Incarnation
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

// Collect reads everything that is not valid, until the whole snapshot is consistent. It returns false if a read failed;
// the next call repeats that read.
func (c *Collector) Collect(ctx context.Context) (cluster.Snapshot, bool) {
	for {
		// Take the time before the hints: every earlier change is then either read now, or hinted and read again.
		c.snap.At, c.ahead = c.opt.Clock(), false
		c.invalidate(c.opt.Source.TakeHints())
		complete := c.read(ctx)
		hints := c.opt.Source.TakeHints()
		c.invalidate(hints)
		if !complete || !c.torn(hints) {
			return c.snap, complete
		}
	}
}

// InvalidateAll makes the next Collect read everything again.
func (c *Collector) InvalidateAll() { clear(c.valid) }

// InvalidateLeadership makes the next Collect read this daemon's incarnation, elected, the fence and current again.
func (c *Collector) InvalidateLeadership() {
	p := c.opt.Paths
	for _, path := range []string{p.Incarnation(c.opt.Self.Name), p.Elected(), p.Leader(), p.Current()} {
		delete(c.valid, path)
	}
}

// torn reports whether the reads before h may mix the states before and after a change of elected, the fence or current.
// A server delivers a watch event before it returns any newer data, so a snapshot without such a hint is consistent.
// Versions would not be enough: those of a znode that was deleted and created again start over. After reads in one round, it reports
// any change: the members may have been read before elected.
func (c *Collector) torn(h cluster.Hints) bool {
	p := c.opt.Paths
	return h.Has(p.Elected()) || h.Has(p.Leader()) || h.Has(p.Current()) || c.ahead && len(h.Paths) > 0
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
	for _, step := range []func(context.Context) error{c.readDecision, c.readLeadership, c.readQueue, c.readMembers, c.readHeir} {
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

// logError logs a failed read. Most failures are transient. A missing permission is not, so it is logged as an error, once.
func (c *Collector) logError(err error) {
	if !errors.Is(err, cluster.ErrNoAuth) || err.Error() == c.lastDenied {
		c.opt.Log.Debug("reading the group failed", "err", err)
		return
	}
	c.lastDenied = err.Error()
	c.opt.Log.Error("no permission to read the group: this daemon takes no part in elections until it can read it", "err", err)
}

// readDecision reads slots, elected, this daemon's registration and, if they are needed, the fence and current. It runs before all
// other reads, so that a decision made from the snapshot is fenced by versions that are at least as old as the data it is based on.
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
		targets = slices.Insert(targets, 0, target{p.Slots(), func(data []byte, stat cluster.Stat, exists bool) {
			c.snap.Slots = cluster.ReadSlots(p.Slots(), data, stat, exists)
		}, nil})
	}
	if c.needsLeadership() { // judged by the previous reads
		targets = append(targets, c.fenceTarget(), c.currentTarget())
	}
	err := c.fetch(ctx, targets...)
	c.snap.SelfLost = c.incarnationLost || c.nodeLost
	return err
}

// prioritize returns the context for reads: a group without a leader, and after a reconnect a group that this daemon leads, is read
// before others.
func (c *Collector) prioritize(ctx context.Context) context.Context {
	if c.needsLeadership() && (!c.snap.Leadership || c.snap.HoldsCurrent() || !c.snap.Ready()) {
		return WithPriority(ctx, PriorityRecovery)
	}
	return ctx
}

// needsLeadership reports whether this daemon has to read the fence and current.
func (c *Collector) needsLeadership() bool {
	return c.snap.Elector || (c.snap.Elected.Readable() && c.snap.Elected.Record.Incarnation == c.opt.Self.Name) ||
		c.snap.HoldsCurrent()
}

func (c *Collector) electedTarget() target {
	path := c.opt.Paths.Elected()
	return target{path, func(data []byte, stat cluster.Stat, exists bool) {
		c.snap.Elected = cluster.ReadStored[cluster.Elected](path, data, stat, exists)
	}, nil}
}

func (c *Collector) fenceTarget() target {
	path := c.opt.Paths.Leader()
	return target{path, func(data []byte, stat cluster.Stat, exists bool) {
		c.snap.Fence = cluster.ReadFence(path, data, stat, exists)
	}, nil}
}

func (c *Collector) currentTarget() target {
	path := c.opt.Paths.Current()
	return target{path, func(data []byte, stat cluster.Stat, exists bool) {
		c.snap.Current = cluster.ReadStored[cluster.Current](path, data, stat, exists)
	}, nil}
}

func (c *Collector) readLeadership(ctx context.Context) error {
	p := c.opt.Paths
	c.snap.FenceAlive = false
	if !c.needsLeadership() {
		c.snap.Leadership = false
		c.snap.Fence, c.snap.Current = cluster.Stored[cluster.Fence]{}, cluster.Stored[cluster.Current]{}
		delete(c.valid, p.Leader())
		delete(c.valid, p.Current())
		return nil
	}
	if err := c.fetch(ctx, c.fenceTarget(), c.currentTarget()); err != nil {
		return err
	}
	c.snap.Leadership = true
	if c.snap.Current.Exists || !c.fenceHeld() {
		return nil
	}
	return c.readHolder(ctx)
}

// fenceHeld reports whether the fence names a holder. The record of an unreadable fence is empty.
func (c *Collector) fenceHeld() bool {
	s := c.snap.Fence.Record.State
	return s == cluster.FenceHeld || s == cluster.FenceReady
}

// readHolder handles a held fence without current. Both may have been read at different moments, before and after an
// ACQUIRE or RELEASE, so it reads both again, the fence first. If current is still missing, either the holder's session
// has ended and its incarnation is gone too, or an operator deleted current.
func (c *Collector) readHolder(ctx context.Context) error {
	p := c.opt.Paths
	delete(c.valid, p.Leader())
	if err := c.fetch(ctx, c.fenceTarget()); err != nil || !c.fenceHeld() {
		return err
	}
	delete(c.valid, p.Current())
	if err := c.fetch(ctx, c.currentTarget()); err != nil || c.snap.Current.Exists {
		return err
	}
	holder := &Read{Path: p.Incarnation(c.snap.Fence.Record.Incarnation)}
	c.opt.Source.Read(c.prioritize(ctx), []*Read{holder})
	if holder.Err != nil && !errors.Is(holder.Err, cluster.ErrNoNode) {
		return fmt.Errorf("cannot read znode %s: %w", holder.Path, holder.Err)
	}
	c.snap.FenceAlive = holder.Err == nil
	return nil
}

// readQueue finds this daemon's predecessor in the election list. Only the first in the list watches the whole list.
func (c *Collector) readQueue(ctx context.Context) error {
	p := c.opt.Paths
	if !c.snap.Elector {
		if c.predecessor != "" {
			gone, err := c.readPredecessor(ctx)
			if gone {
				c.predecessor = ""
			}
			if !gone || err != nil {
				return err
			}
		}
		if !c.valid[p.Election()] {
			if err := c.listIncarnations(ctx, false); err != nil {
				return err
			}
		}
		if c.snap.SelfLost {
			return nil
		}
		i := slices.IndexFunc(c.incarnations, func(in cluster.Incarnation) bool { return in.Name == c.opt.Self.Name })
		if i < 0 {
			c.snap.SelfLost = true
			return nil
		}
		if i > 0 {
			delete(c.valid, p.Election()) // if those before it are forged, the list is read again without them
		}
		var err error
		if c.predecessor, c.next, err = c.predecessorOf(ctx, i); err != nil {
			return err
		}
		c.leaving = false
		if c.predecessor != "" {
			c.incarnations = nil
			return c.readQueue(ctx)
		}
		if err := c.becomeElector(ctx); err != nil {
			return err
		}
	}
	if c.valid[p.Election()] {
		return nil
	}
	return c.listIncarnations(ctx, true)
}

// readPredecessor reports whether the predecessor is gone. If this daemon is the elector then, it reads in the same round what an
// elector needs: nobody elects meanwhile.
func (c *Collector) readPredecessor(ctx context.Context) (gone bool, err error) {
	p := c.opt.Paths
	predecessor := target{p.Incarnation(c.predecessor), func(_ []byte, stat cluster.Stat, _ bool) {
		gone = stat.Owner == 0 // a znode that does not exist has no owner either
	}, nil}
	if !c.next || !c.leaving {
		err = c.fetch(ctx, predecessor)
		return gone, err
	}
	c.ahead, c.leaving = true, false
	for _, path := range []string{p.Elected(), p.Leader(), p.Current()} {
		delete(c.valid, path)
	}
	list := &Read{Path: p.Election(), List: true, Watch: true}
	targets := append(c.orderTargets(), predecessor, c.electedTarget(), c.fenceTarget(), c.currentTarget())
	if err = c.fetchWith(WithPriority(ctx, PriorityRecovery), []*Read{list}, targets...); err != nil || !gone {
		return gone, err
	}
	return gone, c.storeIncarnations(list)
}

// becomeElector reads what an elector must know before it reads the members. From here on this daemon decides, so it reads
// elected again in case a watch was lost: if elected was deleted and created again, its version would not show that.
func (c *Collector) becomeElector(ctx context.Context) error {
	c.snap.Elector = true
	if !c.ahead {
		delete(c.valid, c.opt.Paths.Elected())
	}
	for _, step := range []func(context.Context) error{c.readDecision, c.readLeadership} {
		if err := step(ctx); err != nil {
			c.snap.Elector = false
			return err
		}
	}
	return nil
}

// predecessorOf returns the nearest incarnation before the i-th that a session owns, or "" if there is none, and whether it is the
// first of all. The others are
// forged: they never end, and a daemon that waited for them would never elect (L1). Normally the first read finds one; but
// there may be thousands of forged ones, so the number of concurrent reads doubles each time.
func (c *Collector) predecessorOf(ctx context.Context, i int) (name string, first bool, err error) {
	var forged []string
	defer func() {
		if len(forged) > 0 {
			c.opt.Log.Warn("ignoring incarnations that no session owns: delete them", "count", len(forged), "first", c.opt.Paths.Incarnation(forged[0]))
		}
	}()
	for size := 1; i > 0; size = min(2*size, maxReads) {
		from := max(0, i-size)
		reads := make([]*Read, 0, i-from)
		for _, in := range slices.Backward(c.incarnations[from:i]) {
			reads = append(reads, &Read{Path: c.opt.Paths.Incarnation(in.Name)})
		}
		c.opt.Source.Read(c.prioritize(ctx), reads)
		for j, read := range reads {
			name := c.incarnations[i-1-j].Name
			switch {
			case errors.Is(read.Err, cluster.ErrNoNode):
			case read.Err != nil:
				return "", false, fmt.Errorf("cannot read znode %s: %w", read.Path, read.Err)
			case read.Stat.Owner != 0:
				return name, i-1-j == 0, nil
			default:
				c.forged[name] = true
				forged = append(forged, name)
			}
		}
		i = from
	}
	return "", false, nil
}

func (c *Collector) listIncarnations(ctx context.Context, watch bool) error {
	list := &Read{Path: c.opt.Paths.Election(), List: true, Watch: watch}
	c.opt.Source.Read(c.prioritize(ctx), []*Read{list})
	return c.storeIncarnations(list)
}

// storeIncarnations stores the list of incarnations that was read.
func (c *Collector) storeIncarnations(list *Read) error {
	if errors.Is(list.Err, cluster.ErrNoNode) { // this daemon's incarnation is gone too
		c.incarnations, c.snap.SelfLost = nil, true
		return nil
	}
	if list.Err != nil {
		return fmt.Errorf("cannot list znode %s: %w", list.Path, list.Err)
	}
	in, foreign := cluster.ParseIncarnations(list.Names)
	if list.Watch && (len(foreign) > 2*c.foreignLogged || len(foreign) == 0) {
		c.foreignLogged = len(foreign)
		if len(foreign) > 0 {
			c.opt.Log.Warn("ignoring foreign znodes in the election list: delete them", "znode", c.opt.Paths.Election(),
				"count", len(foreign), "first", foreign[0])
		}
	}
	forged := make(map[string]bool) // those that still exist
	c.incarnations = slices.DeleteFunc(in, func(i cluster.Incarnation) bool {
		if c.forged[i.Name] {
			forged[i.Name] = true
		}
		return c.forged[i.Name]
	})
	c.forged = forged
	if list.Watch {
		c.valid[c.opt.Paths.Election()] = true
	}
	return nil
}

// orderTargets returns what an elector reads beside the decision and the members.
func (c *Collector) orderTargets() []target {
	p := c.opt.Paths
	return []target{
		{p.Policy(), func(data []byte, stat cluster.Stat, exists bool) {
			c.snap.Policy = cluster.ReadStored[cluster.Policy](p.Policy(), data, stat, exists)
		}, nil},
		{p.Control(), func(data []byte, stat cluster.Stat, exists bool) {
			c.snap.Control = p.ReadControl(data, stat, exists)
		}, nil},
		{p.Roster(), func(data []byte, stat cluster.Stat, exists bool) {
			c.snap.Roster = cluster.ReadRoster(p.Roster(), data, stat, exists)
		}, func(err error) { c.snap.Roster = unreadRoster(err) }},
	}
}

// readMembers reads the policy, the control record, the roster and all members that are new or have changed, if this daemon is the
// elector.
func (c *Collector) readMembers(ctx context.Context) error {
	if !c.snap.Elector {
		return nil
	}
	present := make(map[string]bool, len(c.incarnations))
	targets := c.orderTargets()
	for _, in := range c.incarnations {
		path := c.opt.Paths.Node(in.ID)
		if present[in.ID] {
			continue
		}
		present[in.ID] = true
		targets = append(targets, target{path, func(data []byte, stat cluster.Stat, exists bool) {
			c.nodes[in.ID] = storedNode(path, data, stat, exists)
		}, func(err error) { c.nodes[in.ID] = deniedNode(err) }})
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
	c.snap.Members = joinMembers(c.incarnations, c.nodes)
	return nil
}

// readHeir reads the heir that elected does not name. Nothing is decided by it, so nothing waits for it.
func (c *Collector) readHeir(ctx context.Context) error {
	path := c.opt.Paths.Heir()
	return c.fetch(ctx, target{path, func(data []byte, stat cluster.Stat, exists bool) {
		c.snap.Heir = cluster.ReadStored[cluster.HeirRecord](path, data, stat, exists)
	}, func(err error) { c.snap.Heir = cluster.Stored[cluster.HeirRecord]{Err: err} }})
}

// target is a znode to read with a watch, and where the result goes.
type target struct {
	path  string
	store func(data []byte, stat cluster.Stat, exists bool)
	// onDenied receives a permission error; if it is nil, that is a failure. No watch is set then, so the znode is read again
	// each time.
	onDenied func(err error)
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
	reads := make([]*Read, len(targets))
	for i, t := range targets {
		reads[i] = &Read{Path: t.path, Watch: true, Optional: t.path == c.opt.Paths.Roster() || t.path == c.opt.Paths.Heir()}
	}
	c.opt.Source.Read(ctx, append(reads, others...))
	var failure error
	var held *HeldBackError
	for i, read := range reads {
		t, err := targets[i], read.Err
		switch {
		case err == nil || errors.Is(err, cluster.ErrNoNode):
			t.store(read.Data, read.Stat, err == nil)
			c.valid[t.path] = true
		case errors.Is(err, cluster.ErrNoAuth) && t.onDenied != nil:
			t.onDenied(fmt.Errorf("cannot read znode %s: %w", t.path, err))
		case read.Optional && errors.As(err, &held):
			t.onDenied(err) // no election waits for it
		case failure == nil || errors.Is(failure, context.Canceled): // which only follows from another failure
			failure = fmt.Errorf("cannot read znode %s: %w", t.path, err)
		}
	}
	return failure
}

// joinMembers joins the incarnations, oldest first, with the records of their nodes.
func joinMembers(names []cluster.Incarnation, nodes map[string]cluster.Stored[cluster.Node]) []cluster.Member {
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
