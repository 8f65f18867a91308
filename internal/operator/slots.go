package operator

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
)

// SlotGroup is a group with slots, as read.
type SlotGroup struct {
	Name  string // of the group
	Paths cluster.Paths
	// Shared has what all slots share: the members, the policy, the requests of the whole group, and the record of slots.
	Shared cluster.Snapshot
	// Snapshots has one for each slot, in their order. Each has the requests that concern the slot.
	Snapshots []cluster.Snapshot
}

// slotReadsAtOnce bounds how many slots are read at once.
const slotReadsAtOnce = 16

// ReadSlotGroup returns a group with slots. name is the name of the group or of one of its slots. ReadSlotGroup reads the decisions before
// the members, as a daemon does. If watch is true, it sets watches.
func ReadSlotGroup(ctx context.Context, r cluster.Reader, name string, paths cluster.Paths, watch bool) (SlotGroup, error) {
	g := SlotGroup{Name: cluster.GroupOf(name), Paths: cluster.Paths{Root: paths.Root}}
	record, err := store.ReadSlots(ctx, r, g.Paths, watch)
	if err != nil {
		return g, err
	}
	g.Snapshots = make([]cluster.Snapshot, record.Record.Count)
	readers, reading := errgroup.WithContext(ctx)
	readers.SetLimit(slotReadsAtOnce)
	for i := range g.Snapshots {
		readers.Go(func() (err error) {
			g.Snapshots[i], err = store.ReadTerm(reading, r, g.Paths.OfSlot(i), watch)
			return err
		})
	}
	if err := readers.Wait(); err != nil {
		return g, err
	}
	if g.Shared, err = store.ReadAll(ctx, r, g.Paths.OfSlot(0), watch); err != nil {
		return g, err
	}
	g.Shared.Slots = record
	for i := range g.Snapshots {
		s, own := g.Shared, &g.Snapshots[i]
		s.Slot, s.Elected, s.Fence, s.Current, s.Heir = g.Paths.OfSlot(i).Slot, own.Elected, own.Fence, own.Current, own.Heir
		s.Control.Record = g.Shared.Control.Record.Whole().OfSlot(s.Slot)
		*own = s
	}
	g.Shared.Slot, g.Shared.Control.Record = "", g.Shared.Control.Record.Whole()
	g.Shared.Elected, g.Shared.Fence, g.Shared.Current = cluster.Stored[cluster.Elected]{}, cluster.Stored[cluster.Fence]{}, cluster.Stored[cluster.Current]{}
	return g, nil
}

// Questions returns the questions for a forecast of all slots.
func (g SlotGroup) Questions(c config.Config, ask func(policy.Input) *policy.Answer) ([]whatif.Question, error) {
	policies := new(policy.Cache)
	all := make([]whatif.Question, len(g.Snapshots))
	for i, s := range g.Snapshots {
		q, err := g.Question(c, s.Slot, policies)
		if err != nil {
			return nil, err
		}
		q.Ask = ask
		all[i] = q
	}
	return all, nil
}

// Question returns the question for a forecast of one slot.
func (g SlotGroup) Question(c config.Config, slot string, policies *policy.Cache) (whatif.Question, error) {
	snap, err := g.Slot(slot)
	if err != nil {
		return whatif.Question{}, err
	}
	q, err := question(g.Name, c, snap, policies)
	for _, other := range g.Snapshots {
		if other.Slot != slot {
			q.Others = append(q.Others, other.SlotState())
		}
	}
	return q, err
}

// Status returns the view of the group. For each slot without a leader, it says why none can be elected, by the policy of c.
func (g SlotGroup) Status(c config.Config) status.SlotGroup {
	view := status.OfSlots(g.Name, g.Paths.Root, g.Shared, g.Snapshots)
	questions, err := g.Questions(c, nil)
	if err != nil {
		return view
	}
	for i, out := range whatif.RunSlots(questions) {
		s := &view.Slots[i]
		if s.State == status.StateNone && !out.HasLeader() {
			s.NoLeader = out.WhyNoLeader()
		}
		s.Blocked = blocked(questions[i], out)
	}
	return view
}

// SlotsDrift says how the slots in a group's configuration differ from those in force; empty if they are the same.
func SlotsDrift(name string, c config.Slots, inForce cluster.Stored[cluster.Slots]) string {
	rec, own := inForce.Record, cluster.SlotSize{Count: c.Count, PerNode: c.Limit()}
	if !inForce.Readable() || !c.Enabled() || own == rec.SlotSize {
		return ""
	}
	return fmt.Sprintf("the configuration of this host has %s, but %s are in force: correct slots there, or run %s",
		own, rec.SlotSize, cluster.InGroup("'zkelectd slots %s --per-node %s'", name, own.Count, own.PerNode))
}

// noSlot returns the error for a slot that the group does not have.
func (g SlotGroup) noSlot(slot string) error {
	n := len(g.Snapshots)
	if n == 0 {
		return fmt.Errorf("there is no slot %s: the group has none yet", slot)
	}
	return fmt.Errorf("there is no slot %s: the group has %d, 0 to %d", slot, n, n-1)
}

// Slot returns the snapshot of one slot.
func (g SlotGroup) Slot(slot string) (cluster.Snapshot, error) {
	i := cluster.SlotNumber(slot)
	if i < 0 || i >= len(g.Snapshots) {
		return cluster.Snapshot{}, g.noSlot(slot)
	}
	return g.Snapshots[i], nil
}
