package zkstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
)

// EnsureSlots creates the persistent znodes of a group with slots that do not exist yet, and returns how many slots it has. The first
// member writes proposal; from then on the record in the tree is in force. If that is damaged, EnsureSlots returns a record of all slots
// that may have leaders, closed for a resize to proposal: an elector can repair the damage with that.
func EnsureSlots(ctx context.Context, conn cluster.ReadWriter, p cluster.Paths, proposal cluster.SlotSize, by string) (cluster.Slots, error) {
	if err := EnsureTree(ctx, conn, p.OfSlot(0)); err != nil {
		return cluster.Slots{}, err
	}
	slots, err := ensureSlots(ctx, conn, p, proposal, by)
	if err != nil {
		return slots, err
	}
	for i := 1; i < slots.Count; i++ {
		if err := ensureZnode(ctx, conn, p.OfSlot(i).Leader()); err != nil {
			return slots, err
		}
	}
	return slots, nil
}

// ensureSlots returns the record of slots, and writes the first one.
func ensureSlots(ctx context.Context, conn cluster.ReadWriter, p cluster.Paths, proposal cluster.SlotSize, by string) (cluster.Slots, error) {
	for {
		data, stat, err := conn.Get(ctx, p.Slots(), false)
		if err != nil && !errors.Is(err, cluster.ErrNoNode) {
			return cluster.Slots{}, fmt.Errorf("cannot read znode %s: %w", p.Slots(), err)
		}
		read := cluster.ReadSlots(p.Slots(), data, stat, err == nil)
		first := cluster.NewSlots(proposal, by, time.Now())
		switch {
		case read.Newer() != nil:
			return cluster.Slots{}, read.Err
		case read.Readable():
			return read.Record, nil
		case read.Exists && !errors.Is(read.Err, cluster.ErrNoSlots):
			return damagedSlots(ctx, conn, p, first)
		}
		err = DoSplit(ctx, conn, p, p.SlotsTx("", read, first))
		switch {
		case err == nil:
			return first, nil
		case errors.Is(err, cluster.ErrNodeExists), errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNoNode):
			// Another host was faster, or deleted it: what is there now counts.
		default:
			return cluster.Slots{}, fmt.Errorf("cannot write znode %s: %w", p.Slots(), err)
		}
	}
}

// damagedSlots returns the record that takes the place of a damaged one, if first is what this host would propose.
func damagedSlots(ctx context.Context, conn cluster.Reader, p cluster.Paths, first cluster.Slots) (cluster.Slots, error) {
	exist, err := SlotNumbers(ctx, conn, p)
	if err != nil {
		return first, err
	}
	repaired := first.Resized(first.SlotSize, first.By, "the record of slots was damaged", first.Time)
	if len(exist) > 0 {
		repaired.Count = max(first.Count, exist[len(exist)-1]+1)
	}
	return repaired, nil
}

// SlotNumbers returns the numbers of the slots that have a znode, whatever the record of slots says, in their order.
func SlotNumbers(ctx context.Context, conn cluster.Reader, p cluster.Paths) ([]int, error) {
	names, _, err := conn.Children(ctx, p.Slots(), false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return nil, fmt.Errorf("cannot list znode %s: %w", p.Slots(), err)
	}
	var all []int
	for _, name := range names {
		if n := cluster.SlotNumber(name); n >= 0 {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

// ReadSlots reads the slots from first on: those before last, and all others up to the highest one that exists.
func ReadSlots(ctx context.Context, conn cluster.Reader, p cluster.Paths, first, last int) ([]cluster.SlotState, error) {
	exist, err := SlotNumbers(ctx, conn, p)
	if err != nil {
		return nil, err
	}
	if len(exist) > 0 {
		last = max(last, exist[len(exist)-1]+1)
	}
	all := make([]cluster.SlotState, max(0, last-first))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxReads)
	for i := range all {
		g.Go(func() (err error) {
			all[i], err = ReadSlot(ctx, conn, p.OfSlot(first+i))
			return err
		})
	}
	return all, g.Wait()
}

// ReadSlot reads the state of a slot: its decision first. If that does not name a member, no ACQUIRE of that member takes effect after
// the fence is read.
func ReadSlot(ctx context.Context, conn cluster.Reader, p cluster.Paths) (cluster.SlotState, error) {
	s := cluster.SlotState{Slot: p.Slot}
	err := readZnode(ctx, conn, p.Elected(), func(data []byte, stat cluster.Stat, exists bool) {
		s.Elected = cluster.ReadStored[cluster.Elected](p.Elected(), data, stat, exists)
	})
	if err != nil {
		return s, err
	}
	err = readZnode(ctx, conn, p.Leader(), func(data []byte, stat cluster.Stat, exists bool) {
		s.Fence = cluster.ReadFence(p.Leader(), data, stat, exists)
	})
	if err != nil {
		return s, err
	}
	err = readZnode(ctx, conn, p.Current(), func(data []byte, stat cluster.Stat, exists bool) {
		s.Current = cluster.ReadStored[cluster.Current](p.Current(), data, stat, exists)
	})
	return s, err
}

// readZnode passes what a znode contains to store.
func readZnode(ctx context.Context, conn cluster.Reader, path string, store func(data []byte, stat cluster.Stat, exists bool)) error {
	data, stat, err := conn.Get(ctx, path, false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return fmt.Errorf("cannot read znode %s: %w", path, err)
	}
	store(data, stat, err == nil)
	return nil
}
