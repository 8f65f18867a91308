package elector

import (
	"fmt"
	"time"

	"zkelectd/internal/cluster"
)

// ResizeInput is everything that a step of a resize depends on, besides what the [Resizer] remembers.
type ResizeInput struct {
	// Paths are those of any slot of the group.
	Paths cluster.Paths
	// Snapshot is that of the elector's loop of slot 0. Its incarnation, members, elected and slots are used.
	Snapshot cluster.Snapshot
	// Table has all slots of the present size and of the next one, in the order of their numbers: the present ones as the loops
	// have read them last, the others as read since. If some are missing, nothing is done. While the record is not readable, it has
	// all slots that exist.
	Table []cluster.SlotState
	// LeaseWait is the elector's own W.
	LeaseWait time.Duration
	// Now is the elector's monotonic time, Wall its wall clock.
	Now  time.Duration
	Wall time.Time
}

// ResizeStep names a transaction of a resize.
type ResizeStep string

// The transactions of a resize; ResizeNone is none.
const (
	ResizeNone   ResizeStep = ""
	ResizeClose  ResizeStep = "SLOTS" // the record was deleted or damaged: the group is closed, for a new epoch
	ResizeRevoke ResizeStep = "REVOKE"
	ResizeCommit ResizeStep = "COMMIT"
)

// ResizeDecision is the next transaction of a resize, if one is due.
type ResizeDecision struct {
	Step ResizeStep
	// Slot is the one that is revoked.
	Slot string
	Ops  []cluster.Op
	// Note says what the resize waits for; empty if none is under way.
	Note string
	// Wake is when the decision may change without an event; 0 means never.
	Wake time.Duration
}

// Resizer carries out resizes (docs/protocol.md, Slots). Only the elector of slot 0 uses it. It remembers since when each slot has
// been as it is; a new elector measures that again.
type Resizer struct {
	known cluster.Slots // the last record that could be read
	slots []slotWait    // by number, while the group is closed
}

// slotWait is since when a slot has been as it is, and since when it has had its current.
type slotWait struct{ state, current condition }

// condition is identified by key and has held since a time.
type condition struct {
	key   string
	since time.Duration
}

// hold restarts the condition unless it already has the same key.
func (c *condition) hold(key string, now time.Duration) {
	if c.key != key {
		*c = condition{key: key, since: now}
	}
}

// NewResizer returns a resizer for an instance that was started for known.
func NewResizer(known cluster.Slots) *Resizer { return &Resizer{known: known} }

// Resize returns the next step of a resize.
func (r *Resizer) Resize(in ResizeInput) ResizeDecision {
	s := &in.Snapshot
	switch read := s.Slots; {
	case !s.Elector || read.Newer() != nil:
		return ResizeDecision{}
	case !read.Readable():
		return r.repair(in)
	case read.Record.Epoch != r.known.Epoch: // this instance is about to end
		r.slots = nil
		return ResizeDecision{}
	}
	r.known = s.Slots.Record
	if r.known.Next == nil {
		r.slots = nil
		return ResizeDecision{}
	}
	return r.step(in)
}

// repair closes a group whose record was deleted or damaged, to begin a new epoch with the last known size (L1). Perhaps another
// resize was committed that this instance has not noticed (S1): the group may have slots that only its successor knew, and an epoch
// that instances still run in. So the record covers all slots that exist, and its epoch and the next have never been used. It also
// ends this instance; the next elector goes on.
func (r *Resizer) repair(in ResizeInput) ResizeDecision {
	read := in.Snapshot.Slots
	reason := "the znode was deleted"
	if read.Err != nil {
		reason = read.Err.Error()
	}
	if r.known.Count == 0 {
		return ResizeDecision{Note: "the number of slots is not known: " + reason}
	}
	size := r.known.SlotSize
	if r.known.Next != nil {
		size = *r.known.Next
	}
	next := r.known.Resized(size, in.Snapshot.Self.ID, reason, in.Wall)
	next.Epoch = max(next.Epoch+2, cluster.FirstTerm(in.Wall))
	for _, s := range in.Table {
		next.Count = max(next.Count, cluster.SlotNumber(s.Slot)+1)
	}
	return ResizeDecision{Step: ResizeClose, Ops: in.Paths.SlotsTx(in.Snapshot.Self.Name, read, next), Note: "repairing the number of slots: " + reason}
}

// step returns the next transaction of the resize under way.
func (r *Resizer) step(in ResizeInput) ResizeDecision {
	record := in.Snapshot.Slots.Record
	slots := max(record.Count, record.Next.Count)
	if len(in.Table) < slots {
		return ResizeDecision{Note: record.Closed() + ": not all slots have been read yet"}
	}
	table := in.Table[:slots]
	for i, s := range table {
		if s.Slot != in.Paths.OfSlot(i).Slot {
			return ResizeDecision{Note: record.Closed() + ": not all slots have been read yet"}
		}
		if err := (&cluster.Snapshot{Elected: s.Elected, Fence: s.Fence, Current: s.Current}).Newer(); err != nil {
			return ResizeDecision{Note: record.Closed() + ": " + err.Error()}
		}
	}
	r.observe(table, in.Now)
	d := r.revokeHolders(in, table)
	if d.Step == ResizeNone && d.Note == "" {
		d = r.revokeFences(in, table)
	}
	if d.Step == ResizeNone && d.Note == "" {
		d = r.commit(in, table)
	}
	if d.Note != "" {
		d.Note = record.Closed() + ": " + d.Note
	}
	return d
}

// observe notes since when each slot has been as it is. A REVOKE, the end of current and everything else that happens to the
// leadership begin a new wait.
func (r *Resizer) observe(table []cluster.SlotState, now time.Duration) {
	if len(r.slots) != len(table) {
		r.slots = make([]slotWait, len(table))
	}
	for i, s := range table {
		w := &r.slots[i]
		w.state.hold(fmt.Sprint(s.Fence.Exists, s.Fence.Stat.Created, s.Fence.Stat.Version, s.Current.Exists, s.Current.Stat.Created), now)
		w.current.hold(fmt.Sprint(s.Current.Exists, s.Current.Stat.Created), now)
	}
}

// revokeHolders waits until no slot has a current, and revokes the holders that do not release (L2).
func (r *Resizer) revokeHolders(in ResizeInput, table []cluster.SlotState) ResizeDecision {
	var d ResizeDecision
	for i, s := range table {
		if !s.Current.Exists {
			continue
		}
		limit := 2 * in.LeaseWait
		if s.Fence.Readable() {
			limit = time.Duration(s.Fence.Record.RevokeTimeout)
		}
		due := r.slots[i].current.since + limit
		if in.Now >= due {
			return revokeSlot(in, s, fmt.Sprintf("did not release leadership within %s after the group was closed", limit.Round(time.Millisecond)), false)
		}
		d.Wake = cluster.Earliest(d.Wake, due)
		d.Note = fmt.Sprintf("slot %s has a leader that is stopping", s.Slot)
	}
	return d
}

// revokeFences revokes the leaderships that have lost their current without a release, so that no RENEW of them takes effect any
// more. That is no strike: their sessions have ended, or someone has deleted current.
func (r *Resizer) revokeFences(in ResizeInput, table []cluster.SlotState) ResizeDecision {
	for _, s := range table {
		if f := s.Fence.Record; f.State == cluster.FenceHeld || f.State == cluster.FenceReady {
			return revokeSlot(in, s, "did not release leadership before the group was resized", true)
		}
	}
	return ResizeDecision{}
}

// commit ends the resize, once every lease that may be running is over (S1): in the next epoch, any slot may do the work of any
// slot of this one. Only RELEASED proves that the work is dead.
func (r *Resizer) commit(in ResizeInput, table []cluster.SlotState) ResizeDecision {
	read := in.Snapshot.Slots
	wait := leaseWait(in, table)
	var until time.Duration
	waits := 0
	for i, s := range table {
		clean := s.Fence.Readable() && s.Fence.Record.State == cluster.FenceReleased
		unused := i >= read.Record.Count && !s.Fence.Exists
		if over := r.slots[i].state.since + wait; !clean && !unused && in.Now < over {
			until = max(until, over)
			waits++
		}
	}
	if waits > 0 {
		return ResizeDecision{Wake: until, Note: fmt.Sprintf("waiting %s until every lease of %d slots that were not released is over", wait.Round(10*time.Millisecond), waits)}
	}
	next := read.Record.Committed(in.Wall)
	return ResizeDecision{Step: ResizeCommit, Ops: in.Paths.CommitTx(in.Snapshot.Self.Name, read, next, table), Note: "beginning the next epoch"}
}

// leaseWait returns the longest W that is known.
func leaseWait(in ResizeInput, table []cluster.SlotState) time.Duration {
	wait := in.LeaseWait
	for _, s := range table {
		wait = max(wait, new(cluster.LastKnown).LeaseWait(&cluster.Snapshot{Fence: s.Fence, Members: in.Snapshot.Members}))
	}
	return wait
}

// revokeSlot returns REVOKE for a slot. It is a strike for the holder unless it is requested.
func revokeSlot(in ResizeInput, s cluster.SlotState, reason string, requested bool) ResizeDecision {
	snap := cluster.Snapshot{
		Self: in.Snapshot.Self, Members: in.Snapshot.Members, Slot: s.Slot, Elected: s.Elected, Fence: s.Fence, Current: s.Current,
	}
	var fence cluster.Fence
	if s.Fence.Readable() {
		fence = *revoke(Input{Snapshot: snap, Revoke: reason, Wall: in.Wall})
	} else {
		last := new(cluster.LastKnown)
		last.Update(&snap)
		fence = *last.ReplacementFence(&snap, last.Next(&snap, in.Wall), in.Wall)
	}
	fence.Requested = requested
	p := cluster.Paths{Root: in.Paths.Root, Slot: s.Slot}
	return ResizeDecision{Step: ResizeRevoke, Slot: s.Slot, Ops: p.RevokeTx(snap, fence), Note: fmt.Sprintf("revoking slot %s, which %s", s.Slot, reason)}
}
