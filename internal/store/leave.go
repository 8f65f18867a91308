package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/zk"
)

// leaver is the part of a handle that [Leave] uses.
type leaver interface {
	SyncReader
	cluster.Writer
	cluster.Owner
	cluster.Lifetime
}

// Leave ends the membership of this session in a group while the session goes on. The member's work must be dead, its
// post_stop must have run, its lease must be over, and nothing may write for it any more; where a leadership is
// Unproven, it must only acquire nothing any more. Leave repeats LEAVE until a read after a sync confirms that
// nothing of the member is left, or until ctx is done or the session has ended. It must then be called again, or the
// session be closed: a forgotten incarnation could become an elector that never elects (L1). What is to be read of d
// need not be set.
func Leave(ctx context.Context, conn leaver, p cluster.Paths, d cluster.Departure) error {
	ctx = zk.WithPriority(ctx, zk.PriorityUrgent)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		gone, err := leaveOnce(ctx, conn, p, d)
		if gone {
			return nil
		}
		if conn.Err() != nil {
			return fmt.Errorf("leaving %s: %w", p.Root, conn.Err())
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
			return fmt.Errorf("this member has not left %s yet: %w (%w)", p.Root, err, ctx.Err())
		}
	}
}

// leaveOnce reports whether nothing of the member is left. If something is, it sends LEAVE.
func leaveOnce(ctx context.Context, conn leaver, p cluster.Paths, d cluster.Departure) (gone bool, err error) {
	if err := conn.Sync(ctx); err != nil {
		return false, err
	}
	if err := readDeparture(ctx, conn, p, &d); err != nil {
		return false, err
	}
	ops, err := p.LeaveTx(d)
	if err != nil || len(ops) == 0 {
		return err == nil, err
	}
	if _, err := conn.Do(ctx, ops...); err != nil {
		return false, fmt.Errorf("LEAVE: %w", err)
	}
	return false, nil
}

// readDeparture reads what LEAVE depends on.
func readDeparture(ctx context.Context, conn leaver, p cluster.Paths, d *cluster.Departure) error {
	d.Session, d.Wall = conn.SessionID(), time.Now()
	if err := readDepartingSlots(ctx, conn, p, d); err != nil {
		return err
	}
	var err error
	if d.Node, err = readRecord(ctx, conn, p.Node(d.ID), false, cluster.ReadStored[cluster.Node]); err != nil {
		return err
	}
	names, err := listOwn(ctx, conn, p, d)
	for _, name := range names {
		_, stat, readErr := conn.Get(ctx, p.Incarnation(name), false)
		switch {
		case errors.Is(readErr, cluster.ErrNoNode), errors.Is(readErr, cluster.ErrNoAuth):
			// not this session's: that one can be read
		case readErr != nil:
			err = errors.Join(err, fmt.Errorf("cannot read znode %s: %w", p.Incarnation(name), readErr))
		case stat.Owner == d.Session:
			d.Incarnations = append(d.Incarnations, name)
		}
	}
	return err
}

// readDepartingSlots reads all slots at once: there may be many, and LEAVE fails if one of them changes meanwhile.
func readDepartingSlots(ctx context.Context, conn leaver, p cluster.Paths, d *cluster.Departure) error {
	d.Slots = slices.Clone(d.Slots)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxReads)
	for i := range d.Slots {
		l := &d.Slots[i]
		g.Go(func() (err error) {
			l.SlotState, err = ReadSlot(ctx, conn, cluster.Paths{Root: p.Root, Slot: l.Slot})
			return err
		})
	}
	return g.Wait()
}

// listOwn returns the names of the incarnations with this member's id.
func listOwn(ctx context.Context, conn leaver, p cluster.Paths, d *cluster.Departure) ([]string, error) {
	all, _, err := conn.Children(ctx, p.Election(), false)
	var held *zk.HeldBackError
	switch {
	case errors.Is(err, cluster.ErrNoNode):
		return nil, nil
	case errors.As(err, &held) && d.Self != "":
		return []string{d.Self}, nil // a forged list must not cost the other groups the session
	case err != nil:
		return nil, fmt.Errorf("cannot list znode %s: %w", p.Election(), err)
	}
	var names []string
	in, _ := cluster.ParseIncarnations(all)
	for _, i := range in {
		if i.ID == d.ID {
			names = append(names, i.Name)
		}
	}
	return names, nil
}
