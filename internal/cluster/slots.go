package cluster

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// MaxSlots bounds the number of slots, so that the transactions about all of them stay small.
const MaxSlots = 128

// SlotSize is how many slots a group has.
type SlotSize struct {
	// Count is the number of slots, PerNode for how many of them one node may be elected.
	Count   int `json:"count"`
	PerNode int `json:"per_node"`
}

// String returns the size in words.
func (s SlotSize) String() string {
	if s.Count == 1 {
		return "1 slot"
	}
	if s.PerNode == s.Count {
		return fmt.Sprintf("%d slots", s.Count)
	}
	return fmt.Sprintf("%d slots, at most %d per node", s.Count, s.PerNode)
}

// Check returns an error unless a group may have this size.
func (s SlotSize) Check() error {
	if s.Count < 1 || s.Count > MaxSlots {
		return fmt.Errorf("count is %d, not between 1 and %d", s.Count, MaxSlots)
	}
	if s.PerNode < 1 || s.PerNode > s.Count {
		return fmt.Errorf("per_node is %d, not between 1 and the count %d", s.PerNode, s.Count)
	}
	return nil
}

// Slots is the record of slots: how many leaders the group has (docs/protocol.md, Slots). It is the same for all hosts; their
// configurations only propose the first one.
type Slots struct {
	Header
	SlotSize
	// Epoch grows with every resize. What does the work of one slot in one epoch may be done by another slot in the next.
	Epoch int64 `json:"epoch"`
	// Next is set while the group is closed for a resize: no member may acquire leadership, and leaders stop.
	Next *SlotSize `json:"next,omitempty"`
	// By is the operator or the node that wrote it, Reason why, and Time when, by that host's clock.
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Time   time.Time `json:"time"`
}

// NewSlots returns the first record of a group. The epoch begins like a term (see [FirstTerm]), so that it grows even if the record
// was deleted: instances of the epoch before end then.
func NewSlots(size SlotSize, by string, wall time.Time) Slots {
	return Slots{SlotSize: size, Epoch: FirstTerm(wall), By: by, Reason: "the first member's configuration", Time: wall}
}

// Resized returns the record that closes the group for a resize.
func (s Slots) Resized(next SlotSize, by, reason string, wall time.Time) Slots {
	s.Next, s.By, s.Reason, s.Time = &next, by, reason, wall
	return s
}

// Committed returns the record that ends a resize.
func (s Slots) Committed(wall time.Time) Slots {
	if s.Next != nil {
		s.SlotSize = *s.Next
	}
	s.Next, s.Time = nil, wall
	s.Epoch++
	return s
}

// Closed describes the resize that is under way; empty if none is.
func (s Slots) Closed() string {
	if s.Next == nil {
		return ""
	}
	text := fmt.Sprintf("resize to %s requested by %s", *s.Next, s.By)
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	return text
}

func (s *Slots) validate(stat Stat) error {
	errs := []error{s.Check(), checkTerm(s.Epoch, stat, TermSlack)}
	if s.Epoch == 0 {
		errs = append(errs, errors.New("epoch is missing"))
	}
	if s.Next != nil {
		if err := s.Next.Check(); err != nil {
			errs = append(errs, fmt.Errorf("next: %w", err))
		}
	}
	return errors.Join(errs...)
}

// ErrNoSlots is the error of a slots znode that has never been written, as in a new group.
var ErrNoSlots = errors.New("has not been written yet")

// ReadSlots is [ReadStored] for the data of slots. Empty data is [ErrNoSlots] at the first version, as is what [Paths.Split] leaves.
func ReadSlots(path string, data []byte, stat Stat, exists bool) Stored[Slots] {
	if exists && (len(data) == 0 && stat.Version == 0 || string(data) == raising) {
		return Stored[Slots]{Exists: true, Stat: stat, Err: fmt.Errorf("znode %s %w", path, ErrNoSlots)}
	}
	return ReadStored[Slots](path, data, stat, exists)
}

// SlotState is what an elector knows of one slot.
type SlotState struct {
	Slot    string
	Elected Stored[Elected]
	Fence   Stored[Fence]
	Current Stored[Current]
}

// SlotState returns what s says about its slot. It is complete if s.Leadership is set, as in every elector's snapshot.
func (s *Snapshot) SlotState() SlotState {
	return SlotState{Slot: s.Slot, Elected: s.Elected, Fence: s.Fence, Current: s.Current}
}

// snapshot returns what s says as a snapshot of that slot.
func (s SlotState) snapshot() *Snapshot {
	return &Snapshot{Slot: s.Slot, Elected: s.Elected, Fence: s.Fence, Current: s.Current, Leadership: true}
}

// Acquired is [Snapshot.Acquired].
func (s SlotState) Acquired() bool { return s.snapshot().Acquired() }

// Ended is [Snapshot.Ended].
func (s SlotState) Ended() bool { return s.snapshot().Ended() }

// CheckSlots returns an error that says why no member of an epoch may acquire or be elected now: in a slot, the record of slots
// must be readable, open, of that epoch and include this slot. It returns nil in a group with one leader.
func (s *Snapshot) CheckSlots(epoch int64) error {
	rec := s.Slots.Record
	switch {
	case s.Slot == "":
		return nil
	case s.Slots.Err != nil:
		return s.Slots.Err
	case !s.Slots.Exists:
		return errors.New("the number of slots was deleted")
	case rec.Next != nil:
		return errors.New(rec.Closed())
	case rec.Epoch != epoch:
		return fmt.Errorf("the group was resized to %s: epoch %d has ended", rec.SlotSize, epoch)
	case SlotNumber(s.Slot) >= rec.Count:
		return fmt.Errorf("there are only %s", rec.SlotSize)
	}
	return nil
}

// SlotsTx returns SLOTS: it writes the record of slots, for the elector whose incarnation is self, or for a command or the first
// member with an empty self. It fails with ErrBadVersion or ErrNodeExists if the record has changed since it was read.
func (p Paths) SlotsTx(self string, read Stored[Slots], next Slots) []Op {
	ops := p.writeSlots(read, next)
	if self == "" {
		return ops
	}
	return append([]Op{p.alive(self)}, ops...)
}

// The versions of the record in a new znode, see writeSlots.
const (
	epochWrites = 4  // more often than one epoch writes the record: as its first one or COMMIT, and closed for a resize
	epochCycle  = 64 // this many epochs in a row have different versions
)

// writeSlots returns the operations that write the record. As for a fence, a new znode is written several times: a late ELECT or
// ACQUIRE of an instance that has not noticed that the znode was deleted and created again must not match its version (S1).
func (p Paths) writeSlots(read Stored[Slots], next Slots) []Op {
	if read.Exists && !errors.Is(read.Err, ErrNoSlots) {
		return []Op{writeOp(p.Slots(), read, Encode(&next))}
	}
	return firstWrite(p.Slots(), read.Exists, read.Stat.Version, emptyWrites(read.Stat.Version, next.Epoch, epochWrites, epochCycle), Encode(&next))
}

// CommitTx returns COMMIT: it ends a resize. slots are all slots of the old and the new size, by number; none of their fences may
// have changed, so that no ACQUIRE was overlooked (S1). A slot beyond the old size that has never been used gets a clean fence: in
// the epoch before, nobody could lead there.
func (p Paths) CommitTx(self string, read Stored[Slots], next Slots, slots []SlotState) []Op {
	ops := []Op{p.alive(self)}
	for i, s := range slots {
		leader := p.OfSlot(i).Leader()
		switch {
		case s.Fence.Exists:
			ops = append(ops, Op{Kind: OpCheck, Path: leader, Version: s.Fence.Stat.Version})
		case i >= next.Count:
			ops = append(ops, absent(leader)...)
		case i < read.Record.Count:
			ops = append(ops, Op{Kind: OpCreate, Path: leader, Data: []byte{}}) // its election writes how long to wait
		default:
			f := Fence{State: FenceReleased, Reason: "created by a resize by " + next.By, Requested: true, Time: next.Time}
			ops = append(ops, Op{Kind: OpCreate, Path: leader, Data: Encode(&f)})
		}
	}
	return append(ops, writeOp(p.Slots(), read, Encode(&next)))
}

// checkSlots returns a check that the group's slots have not changed, in a slot.
func (p Paths) checkSlots(snap Snapshot) []Op {
	if p.Slot == "" {
		return nil
	}
	return []Op{{Kind: OpCheck, Path: p.Slots(), Version: snap.Slots.Stat.Version}}
}

// checkDecision returns checks that the decision of another slot is still in force.
func (p Paths) checkDecision(s SlotState) []Op {
	other := Paths{Root: p.Root, Slot: s.Slot}
	switch {
	case s.Elected.Exists:
		return []Op{{Kind: OpCheck, Path: other.Elected(), Version: s.Elected.Stat.Version}}
	case s.Fence.Exists:
		return absent(other.Elected())
	}
	return absent(other.Leader()) // it is the parent
}

// absent returns operations that are refused if a znode exists, and change nothing if it does not.
func absent(path string) []Op {
	return []Op{{Kind: OpCreate, Path: path, Data: []byte{}}, {Kind: OpDelete, Path: path}}
}

// SlotNumber returns the number of a slot, -1 if it is none.
func SlotNumber(slot string) int {
	i, err := strconv.Atoi(slot)
	if err != nil || i < 0 || i >= MaxSlots || strconv.Itoa(i) != slot {
		return -1
	}
	return i
}
