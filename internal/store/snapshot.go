package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/zk"
)

// onceSource is the [Source] of [ReadAll]. Elections come before displays.
type onceSource struct {
	conn  cluster.Reader
	watch bool
	loads string // is not watched: each host writes there all the time, for all groups
}

func (o onceSource) Read(ctx context.Context, reads []*Read) {
	for _, r := range reads {
		r.Watch = o.watch && !strings.HasPrefix(r.Path, o.loads)
	}
	readAtOnce(zk.WithPriority(ctx, zk.PriorityNormal), o.conn, reads)
}

func (onceSource) TakeHints() cluster.Hints { return cluster.Hints{} }

// ReadAll returns a snapshot of the whole group, for displays. If watch is true, it sets watches, except on the loads.
// As in a daemon, it reads the decision before the fence, that before current, and all of them before the members. A
// missing permission for what nothing is decided by is no error.
func ReadAll(ctx context.Context, conn cluster.Reader, p cluster.Paths, watch bool) (cluster.Snapshot, error) {
	c := newOnceCollector(conn, p, watch)
	var first []target
	if p.Slot != "" {
		first = append(first, c.slotsTarget())
	}
	if err := c.readTerm(ctx, first, c.orderTargets()); err != nil {
		return c.snap, err
	}
	election, loads := &Read{Path: p.Election(), List: true}, &Read{Path: p.Loads(), List: true, Optional: true}
	c.opt.Source.Read(ctx, []*Read{election, loads})
	if errors.Is(election.Err, cluster.ErrNoNode) {
		return c.snap, fmt.Errorf("znode %s does not exist: %w with this root; check zookeeper.root (--root), or "+
			"create the group with 'zkelectd init'", election.Path, ErrNoGroup)
	}
	for _, list := range []*Read{election, loads} {
		if list.Err != nil && (list == election || !list.answered()) {
			return c.snap, fmt.Errorf("cannot list znode %s: %w", list.Path, list.Err)
		}
	}
	in, _ := cluster.ParseIncarnations(election.Names)
	if err := c.readNodes(ctx, in, nil); err != nil {
		return c.snap, err
	}
	err := c.readLoads(ctx, loads.Names)
	return c.snap, err
}

// ReadTerm returns the decision, the fence, current and the heir, for displays. If watch is true, it sets watches.
func ReadTerm(ctx context.Context, conn cluster.Reader, p cluster.Paths, watch bool) (cluster.Snapshot, error) {
	c := newOnceCollector(conn, p, watch)
	err := c.readTerm(ctx, nil, nil)
	return c.snap, err
}

func newOnceCollector(conn cluster.Reader, p cluster.Paths, watch bool) *Collector {
	c := NewCollector(CollectorOptions{Source: onceSource{conn, watch, p.Loads()}, Paths: p})
	c.snap.HolderRead, c.snap.Elector = true, true
	return c
}

// readTerm reads what [ReadTerm] returns, with others in the first and the last round.
func (c *Collector) readTerm(ctx context.Context, first, last []target) error {
	rounds := [][]target{append(first, c.electedTarget()), {c.fenceTarget()}, append(last, c.currentTarget(),
		c.heirTarget())}
	for _, targets := range rounds {
		if err := c.fetch(ctx, targets...); err != nil {
			return err
		}
	}
	return c.checkCurrent(ctx)
}

// checkCurrent calls [cluster.Snapshot.CheckCurrent]. No hint says whether the fence has changed between its read and
// that of current. So while current seems not to be the holder's, both are read again, until the fence is unchanged.
func (c *Collector) checkCurrent(ctx context.Context) error {
	p := c.opt.Paths
	for {
		if c.snap.CheckCurrent(p); !c.snap.ForeignCurrent() {
			return nil
		}
		before := c.snap.Fence.Stat.Modified
		delete(c.valid, p.Leader())
		if err := c.fetch(ctx, c.fenceTarget()); err != nil || c.snap.Fence.Stat.Modified == before {
			return err
		}
		delete(c.valid, p.Current())
		if err := c.fetch(ctx, c.currentTarget()); err != nil {
			return err
		}
	}
}

// readLoads adds to the members the latencies and scores that their hosts publish for all groups.
func (c *Collector) readLoads(ctx context.Context, published []string) error {
	root, loads := c.opt.Paths.Loads(), make(map[string]cluster.Load)
	var targets []target
	for _, m := range c.snap.Members {
		if n := m.Node; !slices.Contains(published, m.ID) || !n.Readable() || n.Record.Latency != nil ||
			n.Record.Score != nil {
			continue
		}
		path := root + "/" + m.ID
		targets = append(targets, target{path, func(data []byte, stat cluster.Stat, exists bool) {
			if l := cluster.ReadStored[cluster.Load](path, data, stat, exists); l.Readable() {
				loads[m.ID] = l.Record
			}
		}, func(error) {}})
	}
	err := c.fetch(ctx, targets...)
	c.snap.Members = cluster.WithLoads(c.snap.Members, loads)
	return err
}

// storedNode returns the record of a member. A znode that no session owns belongs to no daemon: that member would never
// take over and never go away, so its record is reported as an error.
func storedNode(path string, data []byte, stat cluster.Stat, exists bool) cluster.Stored[cluster.Node] {
	s := cluster.ReadStored[cluster.Node](path, data, stat, exists)
	if exists && s.Err == nil && stat.Owner == 0 {
		s.Record, s.Err = cluster.Node{}, fmt.Errorf("no session owns znode %s: it was not created by "+
			"zkelectd, delete it", path)
	}
	return s
}
