package cluster

import (
	"errors"
	"time"
)

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

// Newer returns the error of a record in a format that this build does not know, nil for any other. Such a record is no
// damage: it must be neither written over nor repaired, and nothing is decided without it.
func (s Slot[T]) Newer() error {
	var newer *NewerVersionError
	if errors.As(s.Err, &newer) {
		return s.Err
	}
	return nil
}

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
	Fence      Slot[Fence]
	Current    Slot[Current]
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

// HighestTerm returns the highest term that any record of a leadership holds, 0 where there is none to be read.
func (s *Snapshot) HighestTerm() int64 {
	elected, fence := s.Terms()
	if s.Current.Readable() {
		return max(elected, fence, s.Current.Record.Term)
	}
	return max(elected, fence)
}

// Newer returns the error of the first record of the leadership that has a newer format: elected, the fence or current.
// Whoever reads one neither elects, revokes, acquires nor repairs.
func (s *Snapshot) Newer() error {
	for _, err := range []error{s.Elected.Newer(), s.Fence.Newer(), s.Current.Newer()} {
		if err != nil {
			return err
		}
	}
	return nil
}

// Acquired tells that the elected incarnation has taken hold of leadership in the elected term.
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
	return state == FenceReleased || state == FenceUnclean || state == FenceRevoked
}

// Waiting says how long, and why, a candidate that has acquired waits before its work; empty if none does.
func (s *Snapshot) Waiting() string {
	if f := s.Fence.Record; s.Acquired() && f.State == FenceHeld {
		return f.Wait
	}
	return ""
}

// Ready tells that the elected incarnation leads: the fence and current both say so.
func (s *Snapshot) Ready() bool {
	return s.Acquired() && s.Fence.Record.State == FenceReady && s.Current.Exists
}

// Trust says what a candidate takes for proof that the work of the last holder has ended.
type Trust struct {
	// LeaseWait is W for the candidate's own figures.
	LeaseWait time.Duration
	// SessionEnd is set if the end of the holder's session counts as proof. A stranger who reaches the servers can end any
	// session, so without it only a release does.
	SessionEnd bool
}

// Owed returns the lease wait W that a candidate owes before its child may start (docs/protocol.md, Taking over), and why;
// 0 and nothing for none.
func (s *Snapshot) Owed(t Trust) (wait time.Duration, why string) {
	f := s.Fence.Record
	full := max(time.Duration(f.LeaseWait), time.Duration(f.Owed), t.LeaseWait)
	switch {
	case !s.Fence.Readable():
		return t.LeaseWait, "absence and damage of the fence prove nothing"
	case f.State == FenceReleased:
		return 0, ""
	case f.State == FenceUnclean:
		wait, why = time.Duration(f.Owed), f.Node+" had not served what it owed to an earlier holder, or could not undo its leadership"
	case f.Node == "": // the elector has made the fence, and knew of no holder
		wait, why = full, "whether somebody led here before is not known"
	case f.State != FenceReady && f.State != FenceHeld: // REVOKED
		wait, why = full, "the lease of "+f.Node+", which did not release, may still run"
	case s.FenceAlive:
		wait, why = full, "current was taken away from "+f.Node+", whose lease may still run"
	case t.SessionEnd:
		// The session is over, so the lease is: only what this holder itself owed remains. READY owes nothing.
		wait, why = time.Duration(f.Owed), f.Node+" had not served what it owed to an earlier holder"
	default:
		wait, why = full, "the end of "+f.Node+"'s session does not prove that its work ended"
	}
	if wait == 0 {
		return 0, ""
	}
	return wait, why
}
