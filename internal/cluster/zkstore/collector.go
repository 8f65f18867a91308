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

// CollectorOptions are what a Collector needs.
type CollectorOptions struct {
	Source Source
	Paths  cluster.Paths
	Self   cluster.Incarnation
	// Session is the id of the session that Self is registered in.
	Session int64
	// Clock is the daemon's monotonic time, for Snapshot.At.
	Clock func() time.Duration
	Log   *slog.Logger
}

// Collector brings a snapshot up to date. It reads again only what was hinted, so that the cost of an event does not grow
// with the group: a follower watches its own registration, its predecessor and elected; whoever is elected or holds
// current watches the fence and current too; only the elector watches all members.
//
// It is deterministic: it has no goroutine and no timer, and all that it learns comes from its [Source]. It is not safe for
// concurrent use.
type Collector struct {
	opt   CollectorOptions
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

// NewCollector returns a collector that knows nothing yet.
func NewCollector(opt CollectorOptions) *Collector {
	return &Collector{
		opt:   opt,
		known: make(map[string]bool), forged: make(map[string]bool),
		nodes: make(map[string]cluster.Slot[cluster.Node]),
		snap:  cluster.Snapshot{Self: opt.Self, Session: opt.Session},
	}
}

// Collect reads what is not known or no longer stands, until all of the snapshot is of one moment. It returns false if
// something could not be read: that stays unknown, and the next call reads it again.
func (r *Collector) Collect(ctx context.Context) (cluster.Snapshot, bool) {
	for {
		// The time comes before the hints: whatever happened by then is in what is read now, or hinted and read anew.
		r.snap.At = r.opt.Clock()
		r.forget(r.opt.Source.TakeHints())
		complete := r.read(ctx)
		hints := r.opt.Source.TakeHints()
		r.forget(hints)
		if !complete || !r.mixed(hints) {
			return r.snap, complete
		}
	}
}

// ForgetAll has everything read again.
func (r *Collector) ForgetAll() { clear(r.known) }

// ForgetLeadership has the own incarnation, elected, the fence and current read again.
func (r *Collector) ForgetLeadership() {
	p := r.opt.Paths
	for _, path := range []string{p.Incarnation(r.opt.Self.Name), p.Elected(), p.Leader(), p.Current()} {
		delete(r.known, path)
	}
}

// mixed reports that what was read may be of before and after a change of the decision or of leadership. The server tells
// of a change before it shows anything newer, so a snapshot without such a hint is of one moment. Versions alone would not
// do: those of an elected that was deleted and made anew begin again.
func (r *Collector) mixed(h cluster.Hints) bool {
	p := r.opt.Paths
	return h.Has(p.Elected()) || h.Has(p.Leader()) || h.Has(p.Current())
}

func (r *Collector) forget(h cluster.Hints) {
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

// read brings the snapshot up to date. False means that something could not be read; it stays unknown and is read
// again.
func (r *Collector) read(ctx context.Context) bool {
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
func (r *Collector) complain(err error) {
	if !errors.Is(err, cluster.ErrNoAuth) || err.Error() == r.refused {
		r.opt.Log.Debug("reading the group failed", "err", err)
		return
	}
	r.refused = err.Error()
	r.opt.Log.Error("this daemon may not read the group, and takes no part until it may", "err", err)
}

// readDecision reads elected, the own registration and (once it is in scope) the fence: before anything else, so that a
// decision made from the snapshot is fenced by versions at least as old as what it is based on.
func (r *Collector) readDecision(ctx context.Context) error {
	p, self := r.opt.Paths, r.opt.Self
	wanted := []want{
		{p.Elected(), func(data []byte, stat cluster.Stat, exists bool) {
			r.snap.Elected = cluster.ReadSlot[cluster.Elected](p.Elected(), data, stat, exists)
		}, nil},
		{p.Incarnation(self.Name), func(_ []byte, stat cluster.Stat, _ bool) {
			r.unlisted = stat.Owner != r.snap.Session // what does not exist has no owner
		}, nil},
		{p.Node(self.ID), func(data []byte, stat cluster.Stat, exists bool) {
			s := cluster.ReadSlot[cluster.Node](p.Node(self.ID), data, stat, exists)
			r.unnamed = !s.Readable() || stat.Owner != r.snap.Session
			r.nodes[self.ID] = s
		}, nil},
	}
	if r.inScope() { // by what is known so far
		wanted = append(wanted, r.fence())
	}
	err := r.fetch(ctx, wanted...)
	r.snap.SelfLost = r.unlisted || r.unnamed
	return err
}

// inScope reports whether this daemon has to know the fence and current.
func (r *Collector) inScope() bool {
	return r.snap.Elector || (r.snap.Elected.Readable() && r.snap.Elected.Record.Incarnation == r.opt.Self.Name) ||
		r.snap.HoldsCurrent()
}

func (r *Collector) fence() want {
	path := r.opt.Paths.Leader()
	return want{path, func(data []byte, stat cluster.Stat, exists bool) {
		r.snap.Fence = cluster.ReadFence(path, data, stat, exists)
	}, nil}
}

func (r *Collector) current() want {
	path := r.opt.Paths.Current()
	return want{path, func(data []byte, stat cluster.Stat, exists bool) {
		r.snap.Current = cluster.ReadSlot[cluster.Current](path, data, stat, exists)
	}, nil}
}

func (r *Collector) readLeadership(ctx context.Context) error {
	p := r.opt.Paths
	r.snap.FenceAlive = false
	if !r.inScope() {
		r.snap.Leadership = false
		r.snap.Fence, r.snap.Current = cluster.Slot[cluster.Fence]{}, cluster.Slot[cluster.Current]{}
		delete(r.known, p.Leader())
		delete(r.known, p.Current())
		return nil
	}
	if err := r.fetch(ctx, r.fence(), r.current()); err != nil {
		return err
	}
	r.snap.Leadership = true
	if r.snap.Current.Exists || !r.held() {
		return nil
	}
	return r.readHolder(ctx)
}

// held reports whether the fence names a holder. The record of one that can't be read is empty.
func (r *Collector) held() bool {
	s := r.snap.Fence.Record.State
	return s == cluster.FenceHeld || s == cluster.FenceReady
}

// readHolder looks closer where the fence says held and current is not there: read at different moments, they may be of
// before and after an ACQUIRE or a RELEASE. So both are read again, the fence first. If it still is so, then either the
// holder's session has ended, and its incarnation is gone too, or current was deleted under it.
func (r *Collector) readHolder(ctx context.Context) error {
	p := r.opt.Paths
	delete(r.known, p.Leader())
	if err := r.fetch(ctx, r.fence()); err != nil || !r.held() {
		return err
	}
	delete(r.known, p.Current())
	if err := r.fetch(ctx, r.current()); err != nil || r.snap.Current.Exists {
		return err
	}
	holder := &Read{Path: p.Incarnation(r.snap.Fence.Record.Incarnation)}
	r.opt.Source.Read(ctx, []*Read{holder})
	if holder.Err != nil && !errors.Is(holder.Err, cluster.ErrNoNode) {
		return fmt.Errorf("cannot read znode %s: %w", holder.Path, holder.Err)
	}
	r.snap.FenceAlive = holder.Err == nil
	return nil
}

// readOrder finds out who stands before this daemon. Only the first watches the list.
func (r *Collector) readOrder(ctx context.Context) error {
	p := r.opt.Paths
	if !r.snap.Elector {
		if r.predecessor != "" {
			gone := false
			err := r.fetch(ctx, want{p.Incarnation(r.predecessor), func(_ []byte, stat cluster.Stat, _ bool) {
				gone = stat.Owner == 0 // what does not exist has no owner either
			}, nil})
			if !gone { // it is there, or that is not known
				return err
			}
			r.predecessor = ""
		}
		err := r.list(ctx, false)
		if err != nil || r.snap.SelfLost {
			return err
		}
		i := slices.IndexFunc(r.names, func(in cluster.Incarnation) bool { return in.Name == r.opt.Self.Name })
		switch {
		case i < 0:
			r.snap.SelfLost = true
			return nil
		}
		if r.predecessor, err = r.before(ctx, i); err != nil {
			return err
		}
		if r.predecessor != "" {
			r.names = nil
			return r.readOrder(ctx)
		}
		if err := r.becomeElector(ctx); err != nil {
			return err
		}
	}
	if r.known[p.Election()] {
		return nil
	}
	return r.list(ctx, true)
}

// becomeElector reads what an elector has to know before the members. From here on this daemon decides, so the decision is
// read again lest a watch was lost: if elected was made anew meanwhile, the version would not show it.
func (r *Collector) becomeElector(ctx context.Context) error {
	r.snap.Elector = true
	delete(r.known, r.opt.Paths.Elected())
	for _, step := range []func(context.Context) error{r.readDecision, r.readLeadership} {
		if err := step(ctx); err != nil {
			r.snap.Elector = false
			return err
		}
	}
	return nil
}

// before returns the nearest incarnation before the i-th that belongs to a session, "" if there is none. The others are forged:
// they never end, and a daemon that waited for their end would never elect. Normally the first one that is read belongs to a
// session; but there may be thousands of forged ones, so the number that is read at once doubles.
func (r *Collector) before(ctx context.Context, i int) (string, error) {
	var forged []string
	defer func() {
		if len(forged) > 0 {
			r.opt.Log.Warn("incarnations without a session are passed over: delete them", "count", len(forged), "first", r.opt.Paths.Incarnation(forged[0]))
		}
	}()
	for size := 1; i > 0; size = min(2*size, maxReads) {
		from := max(0, i-size)
		reads := make([]*Read, 0, i-from)
		for _, in := range slices.Backward(r.names[from:i]) {
			reads = append(reads, &Read{Path: r.opt.Paths.Incarnation(in.Name)})
		}
		r.opt.Source.Read(ctx, reads)
		for j, read := range reads {
			name := r.names[i-1-j].Name
			switch {
			case errors.Is(read.Err, cluster.ErrNoNode):
			case read.Err != nil:
				return "", fmt.Errorf("cannot read znode %s: %w", read.Path, read.Err)
			case read.Stat.Owner != 0:
				return name, nil
			default:
				r.forged[name] = true
				forged = append(forged, name)
			}
		}
		i = from
	}
	return "", nil
}

func (r *Collector) list(ctx context.Context, watch bool) error {
	list := &Read{Path: r.opt.Paths.Election(), List: true, Watch: watch}
	r.opt.Source.Read(ctx, []*Read{list})
	if errors.Is(list.Err, cluster.ErrNoNode) { // and with it the own incarnation
		r.names, r.snap.SelfLost = nil, true
		return nil
	}
	if list.Err != nil {
		return fmt.Errorf("cannot list znode %s: %w", list.Path, list.Err)
	}
	in, foreign := cluster.ParseIncarnations(list.Names)
	if watch && (len(foreign) > 2*r.foreign || len(foreign) == 0) {
		r.foreign = len(foreign)
		if len(foreign) > 0 {
			r.opt.Log.Warn("foreign znodes among the incarnations are ignored: delete them", "znode", r.opt.Paths.Election(),
				"count", len(foreign), "first", foreign[0])
		}
	}
	forged := make(map[string]bool) // those that are still there
	r.names = slices.DeleteFunc(in, func(i cluster.Incarnation) bool {
		if r.forged[i.Name] {
			forged[i.Name] = true
		}
		return r.forged[i.Name]
	})
	r.forged = forged
	if watch {
		r.known[r.opt.Paths.Election()] = true
	}
	return nil
}

// readMembers reads, as the elector, the nodes that are new or have changed.
func (r *Collector) readMembers(ctx context.Context) error {
	if !r.snap.Elector {
		return nil
	}
	p := r.opt.Paths
	present := make(map[string]bool, len(r.names))
	wanted := []want{
		{p.Policy(), func(data []byte, stat cluster.Stat, exists bool) {
			r.snap.Policy = cluster.ReadSlot[cluster.Policy](p.Policy(), data, stat, exists)
		}, nil},
		{p.Control(), func(data []byte, stat cluster.Stat, exists bool) {
			r.snap.Control = cluster.ReadSlot[cluster.Control](p.Control(), data, stat, exists)
		}, nil},
	}
	for _, in := range r.names {
		path := p.Node(in.ID)
		if present[in.ID] {
			continue
		}
		present[in.ID] = true
		wanted = append(wanted, want{path, func(data []byte, stat cluster.Stat, exists bool) {
			r.nodes[in.ID] = nodeSlot(path, data, stat, exists)
		}, func(err error) { r.nodes[in.ID] = closed(err) }})
	}
	for id := range r.nodes {
		if !present[id] {
			delete(r.nodes, id)
			delete(r.known, p.Node(id))
		}
	}
	if err := r.fetch(ctx, wanted...); err != nil {
		return err
	}
	r.snap.Members = members(r.names, r.nodes)
	return nil
}

// want is a znode to be read, with a watch, and what becomes of it.
type want struct {
	path string
	take func(data []byte, stat cluster.Stat, exists bool)
	// denied, if any, takes a refusal, which is no failure then. There is no watch: the znode is read again each time.
	denied func(err error)
}

// fetch reads what is wanted, but for what was read before and still stands. All that was answered is taken, also if
// something else fails.
func (r *Collector) fetch(ctx context.Context, wanted ...want) error {
	wanted = slices.DeleteFunc(wanted, func(w want) bool { return r.known[w.path] })
	if len(wanted) == 0 {
		return nil
	}
	reads := make([]*Read, len(wanted))
	for i, w := range wanted {
		reads[i] = &Read{Path: w.path, Watch: true}
	}
	r.opt.Source.Read(ctx, reads)
	var failure error
	for i, read := range reads {
		w, err := wanted[i], read.Err
		switch {
		case err == nil || errors.Is(err, cluster.ErrNoNode):
			w.take(read.Data, read.Stat, err == nil)
			r.known[w.path] = true
		case errors.Is(err, cluster.ErrNoAuth) && w.denied != nil:
			w.denied(fmt.Errorf("cannot read znode %s: %w", w.path, err))
		case failure == nil || errors.Is(failure, context.Canceled): // which only follows another
			failure = fmt.Errorf("cannot read znode %s: %w", w.path, err)
		}
	}
	return failure
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
