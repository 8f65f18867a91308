package cluster

import (
	"errors"
	"fmt"
	"slices"
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

// Slots is the record of slots: how many leaders the group has (docs/protocol.md, Slots). It is the same for all hosts;
// their configurations only propose the first one.
type Slots struct {
	Header
	SlotSize
	// Epoch grows with every change. The work of one slot in one epoch may be that of another slot in the next.
	Epoch int64 `json:"epoch"`
	// By is the operator or the node that wrote it, Reason why, and Time when, by that host's clock.
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Time   time.Time `json:"time"`
}

// NewSlots returns the first record of a group. The epoch begins like a term (see [FirstTerm]), so that it grows even
// if the record was deleted: instances of the epoch before end then.
func NewSlots(size SlotSize, by string, wall time.Time) Slots {
	return Slots{SlotSize: size, Epoch: FirstTerm(wall), By: by, Reason: "the first member's configuration", Time: wall}
}

// Changed returns the record with another size. Its epoch is new, also to a clock that is behind.
func (s Slots) Changed(size SlotSize, by, reason string, wall time.Time) Slots {
	s.SlotSize, s.By, s.Reason, s.Time = size, by, reason, wall
	next, least := s.Epoch+1, FirstTerm(wall)
	if next < least { // the versions of a record that is created anew go on from those of the epoch before, see writeSlots
		next += (least - next + epochCycle - 1) / epochCycle * epochCycle
	}
	s.Epoch = next
	return s
}

func (s *Slots) validate(stat Stat) error {
	errs := []error{s.Check(), checkTerm(s.Epoch, stat, TermSlack)}
	if s.Epoch == 0 {
		errs = append(errs, errors.New("epoch is missing"))
	}
	return errors.Join(errs...)
}

// ErrNoSlots is the error of a slots znode that has never been written, as in a new group.
var ErrNoSlots = errors.New("has not been written yet")

// ReadSlots is [ReadStored] for the data of slots. Empty data is [ErrNoSlots] at the first version, as is what
// [Paths.Split] leaves.
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

// SlotState returns what s says about its slot. It is complete if s.HolderRead is set, as in every elector's snapshot.
func (s *Snapshot) SlotState() SlotState {
	return SlotState{Slot: s.Slot, Elected: s.Elected, Fence: s.Fence, Current: s.Current}
}

// snapshot returns what s says as a snapshot of that slot.
func (s SlotState) snapshot() *Snapshot {
	return &Snapshot{Slot: s.Slot, Elected: s.Elected, Fence: s.Fence, Current: s.Current, HolderRead: true}
}

// Acquired is [Snapshot.Acquired].
func (s SlotState) Acquired() bool { return s.snapshot().Acquired() }

// Ended is [Snapshot.Ended].
func (s SlotState) Ended() bool { return s.snapshot().Ended() }

// CheckSlots returns an error that says why no member of an epoch may acquire or be elected now: in a slot, the record
// of slots must be readable, of that epoch and include this slot. It returns nil in a group with one leader.
func (s *Snapshot) CheckSlots(epoch int64) error {
	rec := s.Slots.Record
	switch {
	case s.Slot == "":
		return nil
	case s.Slots.Err != nil:
		return s.Slots.Err
	case !s.Slots.Exists:
		return errors.New("the number of slots was deleted")
	case rec.Epoch != epoch:
		return fmt.Errorf("the group has %s now: epoch %d has ended", rec.SlotSize, epoch)
	case SlotNumber(s.Slot) >= rec.Count:
		return fmt.Errorf("there are only %s", rec.SlotSize)
	}
	return nil
}

// SlotsTx returns SLOTS: it writes the record of slots, for the elector whose incarnation is self, or for 'init' or the
// first member with an empty self. It fails with ErrBadVersion or ErrNodeExists if the record has changed since it was
// read.
func (p Paths) SlotsTx(self string, read Stored[Slots], next Slots) []Op {
	return p.byElector(self, p.writeSlots(read, next)...)
}

// The versions of the record in a new znode, see writeSlots.
const (
	epochWrites = 4  // more often than one epoch writes the record: as its first one, and repaired
	epochCycle  = 64 // this many epochs in a row have different versions
)

// writeSlots returns the operations that write the record. As for a fence, a new znode is written several times: a late
// ELECT or ACQUIRE of an instance that has not noticed that the znode was deleted and created again must not match its
// version (S1).
func (p Paths) writeSlots(read Stored[Slots], next Slots) []Op {
	if read.Exists && !errors.Is(read.Err, ErrNoSlots) {
		return []Op{writeOp(p.Slots(), read, Encode(&next))}
	}
	return firstWrite(p.Slots(), read.Exists, read.Stat.Version, emptyWrites(read.Stat.Version, next.Epoch, epochWrites,
		epochCycle), Encode(&next))
}

// RepairSlotsTx returns the transaction by which an elector writes a record again that was deleted or damaged. known is
// the record that its REGISTER has checked. While this elector is registered, [Paths.SetSlotsTx] is refused, so a
// damaged record was that one, and no work restarts. If the znode is another one, all fences were deleted with the one
// before, so there is nothing to continue: a new epoch begins, whose leaders wait for leases of whatever was in
// between. A damaged record in another znode is not repaired: an error says so, and the instance must end.
func (p Paths) RepairSlotsTx(self string, read, known Stored[Slots], wall time.Time) ([]Op, error) {
	next := known.Record
	switch {
	case !read.Exists || errors.Is(read.Err, ErrNoSlots):
		next = next.Changed(next.SlotSize, self, "the record of slots was deleted", wall)
	case read.Stat.Created != known.Stat.Created:
		return nil, fmt.Errorf("another record of slots was written, and damaged: %w", read.Err)
	}
	return p.SlotsTx(self, read, next), nil
}

// SetSlotsTx returns SETSLOTS: it changes the number of slots while no member is registered, and returns how long the
// first leaders must wait. It deletes and creates nodes and election, which is refused unless they are empty: so no
// member of the old epoch can write anything any more, and none of the new one has read the old record (S1). slots are
// those of the old and the new size, and all others that exist, by number.
//
// Slot 1 of 4 may do what slot 5 of 8 did. So if one of the old fences does not prove that its work is dead, every new
// leader waits for the longest lease of all.
func (p Paths) SetSlotsTx(read Stored[Slots], next Slots, slots []SlotState) (ops []Op, wait time.Duration, err error) {
	for _, parent := range []string{p.Nodes(), p.Election()} {
		ops = append(ops, Op{Kind: OpDelete, Path: parent, Version: AnyVersion}, Op{Kind: OpCreate, Path: parent,
			Data: []byte{}})
	}
	clean := read.Readable() // else it is not known which slots there were
	for i, s := range slots {
		f := &s.Fence.Record
		switch {
		case s.snapshot().Newer() != nil:
			return nil, 0, s.snapshot().Newer()
		case f.Failsafe != nil && len(f.Failsafe.Members) > 0 && f.bound():
			return nil, 0, fmt.Errorf("znode %s: members have promised to let nobody take over", p.OfSlot(i).Leader())
		case s.Current.Exists: // it is left behind; its owner cannot renew its lease without an incarnation
			clean = false
			ops = append(ops, Op{Kind: OpDelete, Path: p.OfSlot(i).Current(), Version: s.Current.Stat.Version})
		case s.Fence.Readable() && f.State == FenceReleased, i >= read.Record.Count && !s.Fence.Exists:
		default:
			clean = false
		}
		wait = max(wait, time.Duration(f.LeaseWait), time.Duration(f.Owed))
	}
	for i, s := range slots {
		leader, f := p.OfSlot(i).Leader(), s.Fence.Record
		if clean {
			f = Fence{State: FenceReleased, Reason: "created by " + next.By, Requested: true, Time: next.Time}
		} else {
			f = f.waiting(wait, next)
			if !s.Fence.Readable() && s.Elected.Readable() {
				f.Term = s.Elected.Record.Term // the fence may have had it, and elected may be lost as well: no term comes again
			}
		}
		switch {
		case s.Fence.Exists && (clean || i >= next.Count):
			ops = append(ops, Op{Kind: OpCheck, Path: leader, Version: s.Fence.Stat.Version})
		case s.Fence.Exists:
			ops = append(ops, Op{Kind: OpSet, Path: leader, Version: s.Fence.Stat.Version, Data: Encode(&f)})
		case i < next.Count:
			ops = append(ops, Op{Kind: OpCreate, Path: leader, Data: Encode(&f)})
		}
	}
	if clean {
		wait = 0
	}
	return append(ops, writeOp(p.Slots(), read, Encode(&next))), wait, nil
}

// waiting returns the fence with which a slot begins an epoch if work of any slot of the epoch before may still be
// running. A successor waits for a holder of which nothing is known, so that fencing cannot shorten the wait.
func (f Fence) waiting(wait time.Duration, by Slots) Fence {
	if f.State == FenceReleased || f.State == FenceUnclean { // its own work is dead: this holder need not be fenced
		f.Node, f.Site, f.Incarnation, f.Host, f.API = "", "", "", "", ""
	}
	f.State, f.Requested, f.LeaseZnode, f.Time = FenceRevoked, true, "", by.Time
	f.Reason = "the number of slots was changed by " + by.By + ", and not all slots had been released"
	f.LeaseWait, f.Owed = Duration(wait), Duration(wait)
	f.Earlier = MergeEarlier(append(slices.Clone(f.Earlier), EarlierHolder{Wait: Duration(wait)}))
	return f
}

// CheckSlots returns a check that the record of slots has not changed, in a slot.
func (p Paths) CheckSlots(read Stored[Slots]) []Op {
	if p.Slot == "" {
		return nil
	}
	return []Op{{Kind: OpCheck, Path: p.Slots(), Version: read.Stat.Version}}
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
