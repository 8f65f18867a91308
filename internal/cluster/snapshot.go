package cluster

import "time"

// Slot is a znode with its record as it was read.
type Slot[T any] struct {
	Exists bool
	Stat   Stat
	Record T
	// Err says that the record cannot be read, and why; Record is then zero.
	Err error
}

// Readable tells that the record is there and was understood.
func (s Slot[T]) Readable() bool { return s.Exists && s.Err == nil }

// Snapshot is what one daemon has read of the cluster. Elected and the fence are read before the members, so that a
// decision made from it fails by its versions if anything moved under way.
type Snapshot struct {
	// At is on the reader's monotonic clock: whatever the reader's session had been told of by then is in the snapshot.
	At time.Duration
	// Self is the reader's incarnation; SelfLost that its znode or that below nodes is gone, foreign or damaged, which ends
	// the session: a registration is only ever made anew.
	Self     Incarnation
	SelfLost bool
	// Session is the reader's, as shown by [Stat.Owner].
	Session int64

	Elected Slot[Elected]

	// Leadership tells that Fence and Current were read: by the elector and by whoever is elected or holds current.
	Leadership bool
	// Fence does not exist, in this sense, while the data of leader is empty; its Stat is valid all the same.
	Fence   Slot[Fence]
	Current Slot[Current]
	// FenceAlive tells that the incarnation named by the fence exists. It is read after current, so that a holder whose
	// session ended is never taken for alive.
	FenceAlive bool

	// Elector tells that the reader has the lowest sequence; only then are the members, the policy and control read.
	Elector bool
	Members []Member
	Policy  Slot[Policy]
	Control Slot[Control]
}

// Member is one incarnation with the record of its node.
type Member struct {
	Incarnation
	Node Slot[Node]
	// Superseded is set for an older incarnation of an id that has a newer one.
	Superseded bool
}

// Member finds an incarnation by name among the members.
func (s *Snapshot) Member(incarnation string) (Member, bool) {
	for _, m := range s.Members {
		if m.Name == incarnation {
			return m, true
		}
	}
	return Member{}, false
}

// HoldsCurrent tells that leader/current belongs to the reader's session.
func (s *Snapshot) HoldsCurrent() bool {
	return s.Leadership && s.Current.Exists && s.Current.Stat.Owner == s.Session
}

// Terms returns the terms of elected and of the fence, 0 where there is none to be read.
func (s *Snapshot) Terms() (elected, fence int64) {
	if s.Elected.Readable() {
		elected = s.Elected.Record.Term
	}
	if s.Fence.Readable() {
		fence = s.Fence.Record.Term
	}
	return elected, fence
}

// NextTerm is the term of the next decision. Where no term is known it is Unix seconds, so that fencing tokens keep
// growing even after an ensemble has been wiped.
func (s *Snapshot) NextTerm(wall time.Time) int64 {
	elected, fence := s.Terms()
	if elected == 0 && fence == 0 {
		return wall.Unix()
	}
	return max(elected, fence) + 1
}

// Acquired tells that the elected incarnation has taken hold of leadership in the elected term.
func (s *Snapshot) Acquired() bool {
	return s.Elected.Readable() && s.Fence.Readable() &&
		s.Fence.Record.Term == s.Elected.Record.Term && s.Fence.Record.Incarnation == s.Elected.Record.Incarnation
}

// Ready tells that the elected incarnation leads: the fence and current both say so.
func (s *Snapshot) Ready() bool {
	return s.Acquired() && s.Fence.Record.State == FenceReady && s.Current.Exists
}

// Owed is the wait-out W that a candidate owes before its child may start (docs/protocol.md, Taking over), own being
// the one for the reader's figures, used where the fence can't tell.
func (s *Snapshot) Owed(own time.Duration) time.Duration {
	f := s.Fence.Record
	switch {
	case !s.Fence.Exists:
		return 0
	case s.Fence.Err != nil:
		return own
	case f.State == FenceReleased:
		return 0
	case f.State == FenceUnclean:
		return time.Duration(f.Owed)
	case (f.State == FenceReady || f.State == FenceHeld) && !s.FenceAlive:
		// The session is over, so the lease is: only what this holder itself owed remains. READY owes nothing.
		return time.Duration(f.Owed)
	default:
		// REVOKED, or current was deleted under a live holder: its lease may still run.
		return max(time.Duration(f.WaitOut), time.Duration(f.Owed), own)
	}
}
