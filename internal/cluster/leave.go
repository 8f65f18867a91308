package cluster

import (
	"slices"
	"time"
)

// Departure is what a member needs to know in order to leave its group while its session goes on. Its work must be
// dead, its post_stop must have run, and its instance must have no lease, except where [DepartingSlot.Unproven] is set.
// The znodes must have been read after a sync: then no earlier write of the session can follow.
type Departure struct {
	// ID is the node's id, Session the id of its session. Self is its incarnation, empty if it never learned it.
	ID      string
	Session int64
	Self    string
	// Incarnations are the incarnations of ID that the session owns, by name.
	Incarnations []string
	Node         Stored[Node]
	// Slots are all slots, or the only one in a group with one leader.
	Slots []DepartingSlot

	// Reason says why it leaves; Requested is set if that was asked for.
	Reason    string
	Requested bool
	Wall      time.Time
}

// DepartingSlot is the leadership of one slot that a departing member may hold.
type DepartingSlot struct {
	// SlotState must have been read in the order of its fields. If elected is not known, the fence is checked.
	SlotState
	// Owed is how long the successor of a term that this member has not released must wait.
	Owed time.Duration
	// Unproven is set while it is not proven that the work is dead and undone: then a term is not released, but revoked.
	Unproven bool
}

// LeaveTx returns LEAVE (docs/protocol.md, Leaving a group), or nothing if nothing of the member is left. While a fence
// has a newer version, the member cannot leave: that record may say that it leads, and must not be overwritten. Then
// the error is a [NewerVersionError], and only the end of the session ends the membership.
func (p Paths) LeaveTx(d Departure) ([]Op, error) {
	var checks, deletes []Op
	released := false
	for i := range d.Slots {
		l := &d.Slots[i]
		paths := Paths{Root: p.Root, Slot: l.Slot}
		if err := l.Fence.Newer(); err != nil {
			return nil, err
		}
		holds := l.Current.Exists && l.Current.Stat.Owner == d.Session
		switch f := l.Fence; {
		case !f.Exists:
		case d.leads(l):
			checks, released = append(checks, paths.setFence(f.Stat.Version, d.release(l))), true
		case !holds && l.Slot != "" && l.Elected.Readable() && l.Elected.Record.Node != d.ID:
			// No ACQUIRE of this member can take effect any more, and the fences of many slots change all the time.
		default:
			// An ACQUIRE that takes effect after this was read changes the version. One that comes after LEAVE finds no
			// incarnation. REVOKE and the successor's ACQUIRE change it too: its current may have the version of this one.
			checks = append(checks, Op{Kind: OpCheck, Path: paths.Leader(), Version: f.Stat.Version})
		}
		// Whatever the fence says: it may have been deleted after an ACQUIRE, which would leave current without anyone
		// to delete it.
		if holds {
			deletes = append(deletes, Op{Kind: OpDelete, Path: paths.Current(), Version: l.Current.Stat.Version})
		}
	}
	for _, name := range d.Incarnations {
		// a name is never reused
		deletes = append(deletes, Op{Kind: OpDelete, Path: p.Incarnation(name), Version: AnyVersion})
	}
	if d.Node.Exists && d.Node.Stat.Owner == d.Session {
		deletes = append(deletes, Op{Kind: OpDelete, Path: p.Node(d.ID), Version: d.Node.Stat.Version})
	}
	if len(deletes) == 0 && !released {
		return nil, nil
	}
	return append(checks, deletes...), nil
}

// leads reports whether the fence says that this member leads or is taking over.
func (d *Departure) leads(l *DepartingSlot) bool {
	f := l.Fence.Record
	if !l.Fence.Readable() || (f.State != FenceHeld && f.State != FenceReady) {
		return false
	}
	return f.Incarnation == d.Self || slices.Contains(d.Incarnations, f.Incarnation)
}

// release returns the fence to leave behind: RELEASED only if no lease wait remains, and REVOKED if the work may still
// run: that claims nothing (S1).
func (d *Departure) release(l *DepartingSlot) Fence {
	f := l.Fence.Record
	f.End(f.LeastIdle())
	f.Reason, f.Requested, f.Lost, f.Time = d.Reason, d.Requested, !d.Requested, d.Wall
	if l.Unproven {
		f.State, f.Lost = FenceRevoked, false
		return f
	}
	if l.Owed > 0 { // it may be owed to others than those that the fence names
		f.Earlier = unknownHolder(f.Earlier, l.Owed)
	}
	f.Owed, f.State, f.Failsafe = max(f.Owed, Duration(l.Owed)), FenceReleased, nil
	if f.Owed > 0 || len(f.Earlier) > 0 { // an earlier holder without a wait may still have to be fenced
		f.State = FenceUnclean
	}
	return f
}
