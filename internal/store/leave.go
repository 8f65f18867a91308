package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/zk"
)

// LeaveOptions describe the membership that ends.
type LeaveOptions struct {
	Paths cluster.Paths
	ID    string
	// Self is the name of the member's incarnation; empty if it never learned it.
	Self string
	// Leaderships are those of all slots that the member may lead, or the only one of a group without slots.
	Leaderships []Leaving
	// Reason and Requested are those of [cluster.Departure].
	Reason    string
	Requested bool
}

// Leaving is one leadership of a membership that ends.
type Leaving struct {
	// Slot is its slot; empty in a group without slots.
	Slot string
	// Owed and Unproven are those of [cluster.Leadership].
	Owed     time.Duration
	Unproven bool
}

// leaver is the part of a handle that [Leave] uses.
type leaver interface {
	SyncReader
	cluster.Writer
	cluster.Owner
	cluster.Lifetime
}

// Leave ends the membership of this session in a group while the session goes on. The member's work must be dead, its post_stop
// must have run, its lease must be over, and nothing may write for it any more; where a leadership is [Leaving.Unproven], it must only
// acquire nothing any more. Leave repeats LEAVE until a read after a sync
// confirms that nothing of the member is left, or until ctx is done or the session has ended. It must then be called again, or the
// session be closed: a forgotten incarnation could become an elector that never elects (L1).
func Leave(ctx context.Context, conn leaver, o LeaveOptions) error {
	ctx = zk.WithPriority(ctx, zk.PriorityLease)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		gone, err := leaveOnce(ctx, conn, o)
		if gone {
			return nil
		}
		if conn.Err() != nil {
			return fmt.Errorf("leaving %s: %w", o.Paths.Root, conn.Err())
		}
		if ctx.Err() == nil && (err == nil || errors.Is(err, cluster.ErrBadVersion)) {
			continue // read back what it has done, or what came first
		}
		t := time.NewTimer(zk.Jitter(pause))
		select {
		case <-t.C:
		case <-conn.Done():
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("this member has not left %s yet: %w (%w)", o.Paths.Root, err, ctx.Err())
		}
	}
}

// leaveOnce reports whether nothing of the member is left. If something is, it sends LEAVE.
func leaveOnce(ctx context.Context, conn leaver, o LeaveOptions) (gone bool, err error) {
	if err := conn.Sync(ctx); err != nil {
		return false, err
	}
	d, err := readDeparture(ctx, conn, o)
	if err != nil {
		return false, err
	}
	ops, err := o.Paths.LeaveTx(d)
	if err != nil || len(ops) == 0 {
		return err == nil, err
	}
	if _, err := conn.Do(ctx, ops...); err != nil {
		return false, fmt.Errorf("LEAVE: %w", err)
	}
	return false, nil
}

// readDeparture reads what LEAVE depends on.
func readDeparture(ctx context.Context, conn leaver, o LeaveOptions) (cluster.Departure, error) {
	p := o.Paths
	d := cluster.Departure{
		ID: o.ID, Session: conn.SessionID(), Self: o.Self, Reason: o.Reason, Requested: o.Requested, Wall: time.Now(),
	}
	if err := readLeaderships(ctx, conn, o, &d); err != nil {
		return d, err
	}
	var err error
	if d.Node, err = readRecord(ctx, conn, p.Node(o.ID), false, cluster.ReadStored[cluster.Node]); err != nil {
		return d, err
	}
	names, err := listOwn(ctx, conn, o)
	for _, name := range names {
		_, stat, readErr := conn.Get(ctx, p.Incarnation(name), false)
		switch {
		case errors.Is(readErr, cluster.ErrNoNode), errors.Is(readErr, cluster.ErrNoAuth): // not this session's: that one can be read
		case readErr != nil:
			err = errors.Join(err, fmt.Errorf("cannot read znode %s: %w", p.Incarnation(name), readErr))
		case stat.Owner == d.Session:
			d.Incarnations = append(d.Incarnations, name)
		}
	}
	return d, err
}

// readLeaderships reads all leaderships at once: there may be many, and LEAVE fails if one of them changes meanwhile.
func readLeaderships(ctx context.Context, conn leaver, o LeaveOptions, d *cluster.Departure) error {
	d.Leaderships = make([]cluster.Leadership, len(o.Leaderships))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxReads)
	for i, leaving := range o.Leaderships {
		g.Go(func() error {
			s, err := ReadSlot(ctx, conn, cluster.Paths{Root: o.Paths.Root, Slot: leaving.Slot})
			d.Leaderships[i] = cluster.Leadership{
				Slot: leaving.Slot, Elected: s.Elected, Fence: s.Fence, Current: s.Current, Owed: leaving.Owed, Unproven: leaving.Unproven,
			}
			return err
		})
	}
	return g.Wait()
}

// listOwn returns the names of the incarnations with this member's id.
func listOwn(ctx context.Context, conn leaver, o LeaveOptions) ([]string, error) {
	all, _, err := conn.Children(ctx, o.Paths.Election(), false)
	var held *zk.HeldBackError
	switch {
	case errors.Is(err, cluster.ErrNoNode):
		return nil, nil
	case errors.As(err, &held) && o.Self != "":
		return []string{o.Self}, nil // whoever fills the list with garbage must not cost the other groups the session
	case err != nil:
		return nil, fmt.Errorf("cannot list znode %s: %w", o.Paths.Election(), err)
	}
	var names []string
	in, _ := cluster.ParseIncarnations(all)
	for _, i := range in {
		if i.ID == o.ID {
			names = append(names, i.Name)
		}
	}
	return names, nil
}
