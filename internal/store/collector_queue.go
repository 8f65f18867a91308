package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"zkelectd/internal/cluster"
	"zkelectd/internal/zk"
)

// This file reads the election list: who is before this daemon, and whether it is the elector.

// readQueue finds this daemon's predecessor in the election list. Only the first in the list watches the whole list.
func (c *Collector) readQueue(ctx context.Context) error {
	p := c.opt.Paths
	if !c.snap.Elector || c.snap.Acting {
		if c.predecessor != "" {
			gone, err := c.readPredecessor(ctx)
			if gone {
				c.predecessor = ""
			}
			if !gone || err != nil {
				return err
			}
		}
		if !c.valid[p.Election()] || c.snap.Acting {
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
		c.snap.Acting = false
		if err := c.becomeElector(ctx); err != nil {
			return err
		}
	}
	if c.valid[p.Election()] {
		return nil
	}
	if err := c.listIncarnations(ctx, true); err != nil || !c.overtaken() {
		return err
	}
	c.snap.Elector, c.snap.MembersRead, c.snap.Members = false, false, nil
	return c.readQueue(ctx)
}

// overtaken reports whether this daemon, the elector, is no longer the first in the list: at the end of the counter, a
// newcomer may come before it. Two electors that go on would replace each other's decisions without end, since each
// remembers something else (L1).
func (c *Collector) overtaken() bool {
	return c.opt.Self.AtSequenceEnd() && len(c.incarnations) > 0 && c.incarnations[0].Name != c.opt.Self.Name
}

// readPredecessor reports whether the predecessor is gone. If this daemon is the elector then, it reads in the same
// round what an elector needs: nobody elects meanwhile.
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
	if err = c.fetchWith(zk.WithPriority(ctx, zk.PriorityRecovery), []*Read{list}, targets...); err != nil || !gone {
		return gone, err
	}
	return gone, c.storeIncarnations(list)
}

// becomeElector reads what an elector must know before it reads the members. From here on this daemon decides, so it
// reads elected again in case a watch was lost: if elected was deleted and created again, its version would not show
// that.
func (c *Collector) becomeElector(ctx context.Context) error {
	c.snap.Elector = true
	if !c.ahead {
		delete(c.valid, c.opt.Paths.Elected())
	}
	for _, step := range []func(context.Context) error{c.readDecision, c.readHolder} {
		if err := step(ctx); err != nil {
			c.snap.Elector = false
			return err
		}
	}
	return nil
}

// predecessorOf returns the nearest incarnation before the i-th that a session owns, or "" if there is none, and
// whether it is the first of all. The others are forged: they never end, and a daemon that waited for them would never
// elect (L1). Normally the first read finds one; but there may be thousands of forged ones, so the number of concurrent
// reads doubles each time.
func (c *Collector) predecessorOf(ctx context.Context, i int) (name string, first bool, err error) {
	var forged []string
	defer func() {
		if len(forged) > 0 {
			c.opt.Log.Warn("ignoring incarnations that no session owns: delete them", "count", len(forged), "first",
				c.opt.Paths.Incarnation(forged[0]))
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
