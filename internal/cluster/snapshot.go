package cluster

import (
	"errors"
	"time"
)

// Stored is a znode and its record, as read.
type Stored[T any] struct {
	Exists bool
	Stat   Stat
	Record T
	// Err is the reason why the record cannot be read; Record is zero then.
	Err error
}

// Readable reports whether the record exists and could be decoded.
func (s Stored[T]) Readable() bool { return s.Exists && s.Err == nil }

// Newer returns its error if it is a [NewerVersionError], else nil. Such a record is not damaged: it must be neither
// overwritten nor repaired, and nothing is decided without it (docs/protocol.md, Records of a newer version).
func (s Stored[T]) Newer() error {
	if _, ok := errors.AsType[*NewerVersionError](s.Err); ok {
		return s.Err
	}
	return nil
}

// Snapshot is what one daemon has read of its group. Elected and the fence are read before the members: the versions of
// a decision made from it then no longer match if anything has changed meanwhile.
type Snapshot struct {
	// At is a time on the reader's monotonic clock: the snapshot includes every change that its session was notified of by
	// then.
	At time.Duration
	// Self is the reader's incarnation. SelfLost is set if its znode, or the one under nodes, is gone, foreign or damaged.
	// That ends the session: a registration is never repaired, only replaced by a new one.
	Self     Incarnation
	SelfLost bool
	// Session is the id of the reader's session, as in [Stat.Owner].
	Session int64

	// Slot is the slot that this is about, and Slots how many there are; empty in a group with one leader.
	Slot  string
	Slots Stored[Slots]

	Elected Stored[Elected]

	// HolderRead is set if Fence and Current were read: by the elector, by the elected member and by the holder of
	// current.
	HolderRead bool
	Fence      Stored[Fence]
	Current    Stored[Current]

	// Heir is the heir where elected names another one. Nothing is decided by it.
	Heir Stored[HeirRecord]
	// RollCall is read in groups that use roll calls only.
	RollCall Stored[RollCall]
	// Acting is set if the reader is not the elector, but does its work as a deputy.
	Acting bool

	// Elector is set if the reader is the elector; only then are the members, the policy, control and the roster read.
	Elector bool
	// MembersRead is set if the members and the policy were read, also by another reader: in failsafe mode the holder
	// reads them.
	MembersRead bool
	Members     []Member
	Policy      Stored[Policy]
	Control     Stored[Control]
	// Roster is for people only: nothing is decided by it.
	Roster Stored[Roster]
}

// Member is one incarnation with the record of its node.
type Member struct {
	Incarnation
	Node Stored[Node]
	// Superseded is set if the record of the node is that of another incarnation.
	Superseded bool
}

// Member returns the member with that incarnation.
func (s *Snapshot) Member(incarnation string) (Member, bool) {
	for i := range s.Members { // a member is large
		if s.Members[i].Name == incarnation {
			return s.Members[i], true
		}
	}
	return Member{}, false
}

// HoldsCurrent reports whether leader/current belongs to the reader's session.
func (s *Snapshot) HoldsCurrent() bool {
	return s.HolderRead && s.Current.Exists && s.Current.Stat.Owner == s.Session
}

// Terms returns the terms of elected and of the fence, 0 for one that cannot be read.
func (s *Snapshot) Terms() (elected, fence int64) {
	if s.Elected.Readable() {
		elected = s.Elected.Record.Term
	}
	if s.Fence.Readable() {
		fence = s.Fence.Record.Term
	}
	return elected, fence
}

// HighestTerm returns the highest term in elected, the fence and current, 0 if none can be read.
func (s *Snapshot) HighestTerm() int64 {
	elected, fence := s.Terms()
	if s.Current.Readable() {
		return max(elected, fence, s.Current.Record.Term)
	}
	return max(elected, fence)
}

// Remembered returns the highest term that a registered member knew when it registered, 0 if none knew one.
func (s *Snapshot) Remembered() (term int64) {
	for i := range s.Members {
		if t, err := LastTerm(s.Members[i].Node); err == nil {
			term = max(term, t)
		}
	}
	return term
}

// Newer returns the [NewerVersionError] of slots, elected, the fence or current, nil if none has a newer format. A
// daemon that reads one neither elects, revokes, acquires nor repairs (docs/protocol.md, Records of a newer version).
func (s *Snapshot) Newer() error {
	for _, err := range []error{s.Slots.Newer(), s.Elected.Newer(), s.Fence.Newer(), s.Current.Newer()} {
		if err != nil {
			return err
		}
	}
	return nil
}

// Acquired reports whether the elected incarnation has acquired the elected term.
func (s *Snapshot) Acquired() bool {
	return s.Elected.Readable() && s.Fence.Readable() &&
		s.Fence.Record.Term == s.Elected.Record.Term && s.Fence.Record.Incarnation == s.Elected.Record.Incarnation
}

// Ended reports whether the elected incarnation acquired leadership and has given it up or lost it since.
func (s *Snapshot) Ended() bool {
	if !s.Acquired() {
		return false
	}
	state := s.Fence.Record.State
	return state == FenceReleased || state == FenceUnclean || state == FenceRevoked || state == FenceSilent
}

// Waiting describes how long, and why, a candidate that has acquired waits before its work; empty if none is waiting.
func (s *Snapshot) Waiting() string {
	if f := s.Fence.Record; s.Acquired() && f.State == FenceHeld {
		return f.Wait
	}
	return ""
}

// FencingResults returns the attempts of the candidate or leader to fence earlier holders.
func (s *Snapshot) FencingResults() []FencingResult {
	if !s.Acquired() {
		return nil
	}
	return s.Fence.Record.Fencing
}

// Ready reports whether the elected incarnation leads, by the fence and current.
func (s *Snapshot) Ready() bool {
	return s.Acquired() && s.Fence.Record.State == FenceReady && s.Current.Exists && !s.ForeignCurrent()
}

// Owed returns the lease wait W that remains before a candidate's child may start (docs/protocol.md, Taking over), and
// why; 0 and nothing for none. own is W for the candidate's session timeout. Only a release proves that the work of the
// last holder has ended: anyone who can reach the servers can end its session.
func (s *Snapshot) Owed(own time.Duration) (wait time.Duration, why string) {
	f := s.Fence.Record
	full := max(time.Duration(f.LeaseWait), time.Duration(f.Owed), own)
	switch {
	case !s.Fence.Readable():
		return own, "a fence that is absent or damaged proves nothing"
	case f.State == FenceReleased:
		return 0, ""
	case f.State == FenceSilent:
		wait, why = time.Duration(f.Owed), f.Node+" had not yet waited for an earlier holder when it fell silent"
	case f.State == FenceUnclean:
		wait = time.Duration(f.Owed)
		why = f.Node + " had not yet waited for an earlier holder, could not undo its leadership, or had handed out " +
			"application leases"
	case f.Node == "": // the elector wrote the fence, and knew of no holder
		wait, why = full, "it is not known whether there was a leader before"
	default:
		wait, why = full, "the lease of "+f.Node+", which did not release, may still be running"
	}
	if wait == 0 {
		return 0, ""
	}
	return wait, why
}

// LeaderlessSince returns since when no member is READY, by the clocks of the members that wrote the records, so for
// people only; zero if one is READY, or if that is not known. A decision that follows a failed takeover counts from the
// end of the leader before.
func (s *Snapshot) LeaderlessSince() time.Time {
	f, e := &s.Fence.Record, &s.Elected.Record
	ended := f.Time
	if f.Lost { // FINAL was written before it was known when it would be sent
		ended = s.Fence.Stat.Time
	}
	switch {
	case s.Ready(), s.Current.Readable() && s.Current.Record.State == CurrentReady:
		return time.Time{}
	case s.Idle() != nil:
		return ended.Add(-time.Duration(s.Idle().For))
	case s.Ended() && f.Led, !s.Elected.Readable() && s.Fence.Readable():
		return ended // a leader has stopped in this term
	case s.Acquired() && f.State == FenceReady, !s.Elected.Readable():
		return time.Time{} // the leader is gone; nobody has written when
	case e.Leaderless != nil:
		return e.Time.Add(-time.Duration(e.Leaderless.For))
	case s.Acquired():
		return f.Time // elected while the last leader still led, so it stopped just before this one acquired
	}
	return e.Time
}
