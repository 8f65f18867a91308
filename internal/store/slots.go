package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
)

// EnsureSlots creates the persistent znodes of a group with slots that do not exist yet, and returns the record of its
// slots. The first member writes proposal; from then on the record in the tree is in force. A damaged one is replaced
// by proposal if no member is registered; else the elector writes it again.
func EnsureSlots(ctx context.Context, conn cluster.ReadWriter, p cluster.Paths, proposal cluster.SlotSize,
	by string) (cluster.Stored[cluster.Slots], error) {
	if err := EnsureTree(ctx, conn, p.OfSlot(0)); err != nil {
		return cluster.Stored[cluster.Slots]{}, err
	}
	slots, err := ensureSlots(ctx, conn, p, cluster.NewSlots(proposal, by, time.Now()))
	if err != nil {
		return slots, err
	}
	for i := 1; i < slots.Record.Count; i++ {
		if err := ensureZnode(ctx, conn, p.OfSlot(i).Leader()); err != nil {
			return slots, err
		}
	}
	return slots, nil
}

// ensureSlots returns the record of slots, and writes the first one.
func ensureSlots(ctx context.Context, conn cluster.ReadWriter, p cluster.Paths,
	first cluster.Slots) (cluster.Stored[cluster.Slots], error) {
	for {
		read, err := ReadSlots(ctx, conn, p, false)
		switch {
		case err != nil || read.Readable():
			return read, err
		case read.Newer() != nil:
			return read, read.Err
		case read.Exists && !errors.Is(read.Err, cluster.ErrNoSlots):
			if err := EnsureTree(ctx, conn, p.OfSlot(0)); err != nil {
				return read, err
			}
			if _, err = SetSlots(ctx, conn, p, read, first); err != nil {
				err = fmt.Errorf("%w: the elector writes it again, or this host when nobody is registered: %w", read.Err, err)
			}
		default:
			err = DoSplit(ctx, conn, p, p.SlotsTx("", read, first))
		}
		switch {
		case err == nil, errors.Is(err, cluster.ErrNodeExists), errors.Is(err, cluster.ErrBadVersion),
			errors.Is(err, cluster.ErrNoNode):
			// What is there now counts: perhaps another host was faster, or deleted it.
		default:
			return read, fmt.Errorf("cannot write znode %s: %w", p.Slots(), err)
		}
	}
}

// SetSlots changes the number of slots by SETSLOTS, and returns how long the first leaders wait. It fails with
// ErrNotEmpty while a member is registered.
func SetSlots(ctx context.Context, conn cluster.ReadWriter, p cluster.Paths, read cluster.Stored[cluster.Slots],
	next cluster.Slots) (time.Duration, error) {
	slots, err := readSlots(ctx, conn, p, max(read.Record.Count, next.Count))
	if err != nil {
		return 0, err
	}
	ops, wait, err := p.SetSlotsTx(read, next, slots)
	if err != nil {
		return 0, err
	}
	_, err = conn.Do(ctx, ops...)
	return wait, err
}

// ReadSlots returns the record of a group's slots.
func ReadSlots(ctx context.Context, r cluster.Reader, p cluster.Paths, watch bool,
) (cluster.Stored[cluster.Slots], error) {
	return readRecord(ctx, r, p.Slots(), watch, cluster.ReadSlots)
}

// readSlots reads the first slots, count of them, and all others up to the highest one that has a znode.
func readSlots(ctx context.Context, conn cluster.Reader, p cluster.Paths, count int) ([]cluster.SlotState, error) {
	names, _, err := conn.Children(ctx, p.Slots(), false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return nil, fmt.Errorf("cannot list znode %s: %w", p.Slots(), err)
	}
	for _, name := range names {
		count = max(count, cluster.SlotNumber(name)+1) // 0 for what is no slot
	}
	all := make([]cluster.SlotState, count)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxReads)
	for i := range all {
		g.Go(func() (err error) {
			all[i], err = ReadSlot(ctx, conn, p.OfSlot(i))
			return err
		})
	}
	return all, g.Wait()
}

// ReadSlot reads the state of a slot: its decision first. If that does not name a member, no ACQUIRE of that member
// takes effect after the fence is read.
func ReadSlot(ctx context.Context, conn cluster.Reader, p cluster.Paths) (s cluster.SlotState, err error) {
	s.Slot = p.Slot
	if s.Elected, err = readRecord(ctx, conn, p.Elected(), false, cluster.ReadStored[cluster.Elected]); err != nil {
		return s, err
	}
	if s.Fence, err = readRecord(ctx, conn, p.Leader(), false, cluster.ReadFence); err != nil {
		return s, err
	}
	s.Current, err = readRecord(ctx, conn, p.Current(), false, cluster.ReadStored[cluster.Current])
	return s, err
}
