package cli

import (
	"context"
	"errors"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
)

// readSlots returns the group with its slots. With watch, it sets watches.
func (g group) readSlots(ctx context.Context, watch bool) (operator.SlotGroup, error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	return operator.ReadSlotGroup(ctx, g.session, g.name, g.paths, watch)
}

// slotView returns the status of the group with its slots, from what was read.
func (g group) slotView(read operator.SlotGroup) status.SlotGroup {
	view := read.Status(g.cfg)
	if drift := operator.SlotsDrift(g.name, g.cfg.Slots, read.Shared.Slots); drift != "" {
		view.Problems = append(view.Problems, drift)
	}
	return view
}

// readLeaders returns a snapshot of the group, or one for each of its slots.
func (g group) readLeaders(ctx context.Context) ([]cluster.Snapshot, error) {
	if g.manyLeaders() {
		read, err := g.readSlots(ctx, false)
		return read.Snapshots, err
	}
	s, err := g.read(ctx)
	return []cluster.Snapshot{s}, err
}

// followLeaders calls f with what [group.readLeaders] returns, and again after each change, until ctx is done or f returns an error. It
// returns nil if ctx is done.
func (g group) followLeaders(ctx context.Context, f func([]cluster.Snapshot) error) error {
	if !g.manyLeaders() {
		return store.Follow(ctx, g.session, g.paths, func(s cluster.Snapshot) error { return f([]cluster.Snapshot{s}) })
	}
	for {
		read, err := g.readSlots(ctx, true)
		if err == nil {
			if err := f(read.Snapshots); err != nil {
				return err
			}
		} else if g.session.Err() == nil && ctx.Err() == nil && !errors.Is(err, cluster.ErrUnknown) && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		select {
		case <-g.session.Wake():
			g.session.TakeHints()
		case <-g.session.Done():
			return g.session.Err()
		case <-ctx.Done():
			return nil
		}
	}
}
