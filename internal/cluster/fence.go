package cluster

import (
	"errors"
	"fmt"
	"time"
)

// ErrNeverWritten says that the data of leader is empty and has never been anything else, as in a new group. It proves
// nothing: the znode may have been deleted under a leader and created again.
var ErrNeverWritten = errors.New("holds no fence yet: nobody is known to have led here")

// MaxWait bounds the durations in a fence, and what they are computed from: no session timeout is longer. A longer one is
// damage, as it could overflow when it is added to a time.
const MaxWait = 10 * time.Minute

func plausibleWait(name string, d Duration) error {
	if d < 0 || time.Duration(d) > MaxWait {
		return fmt.Errorf("%s %s, which no session timeout leads to (at most %s)", name, d, MaxWait)
	}
	return nil
}

func (n *Node) plausible(Stat) error { return plausibleWait("session_timeout", n.SessionTimeout) }

// ReadFence is [ReadSlot] for the data of leader. Empty data is an error at any version, [ErrNeverWritten] at the first:
// who holds leadership is then unknown.
func ReadFence(path string, data []byte, stat Stat, exists bool) Slot[Fence] {
	if exists && len(data) == 0 && stat.Version == 0 {
		return Slot[Fence]{Exists: true, Stat: stat, Err: fmt.Errorf("znode %s %w", path, ErrNeverWritten)}
	}
	return ReadSlot[Fence](path, data, stat, exists)
}

// Memory is what a daemon remembers of the leaderships that it has seen, should the records be lost. It outlives the
// session.
type Memory struct {
	// Term is the highest that was seen or given.
	Term int64
	// Fence is the last one that could be read.
	Fence Fence
}

// See takes in a snapshot.
func (m *Memory) See(s *Snapshot) {
	m.Term = max(m.Term, s.HighestTerm())
	if s.Fence.Readable() {
		m.Fence = s.Fence.Record
	}
}

// Next returns the term after the highest known one, [FirstTerm] where none is known.
func (m *Memory) Next(wall time.Time) int64 {
	if m.Term <= 0 {
		return FirstTerm(wall)
	}
	return m.Term + 1
}

// FenceAnew returns the fence that an ELECT with the term next must write, nil to leave the one that is there. It is written
// anew where elected does not exist: versions begin again with a create, so one of an elected that was deleted would pass
// for the new one's. A fence that cannot be read is replaced by one that owes the longest wait that is known of, never by a
// clean one: that nothing is known of a leader does not prove that there is none (S1).
func (m *Memory) FenceAnew(s *Snapshot, next int64, wall time.Time) *Fence {
	if s.Fence.Readable() {
		if s.Elected.Exists {
			return nil
		}
		f := s.Fence.Record
		return &f
	}
	last, wait := m.Fence, m.LeaseWait(s)
	anew := Fence{
		Term: next - 1, Node: last.Node, Site: last.Site, Incarnation: last.Incarnation, State: FenceRevoked,
		LeaseWait: Duration(wait), Kill: last.Kill, RevokeTimeout: last.RevokeTimeout, Time: wall,
	}
	if anew.RevokeTimeout == 0 { // its holder may be there, and stop its work
		anew.RevokeTimeout = Duration(min(2*wait, MaxWait))
	}
	switch {
	case !s.Fence.Exists:
		anew.Reason = "the znode leader had been deleted"
	case errors.Is(s.Fence.Err, ErrNeverWritten):
		anew.Reason = "nobody is known to have led here"
	default:
		anew.Reason = "the record was damaged: " + s.Fence.Err.Error()
	}
	return &anew
}

// LeaseWait returns the longest W that is known of: of the last fence, and of every member's session timeout.
func (m *Memory) LeaseWait(s *Snapshot) time.Duration {
	wait := max(time.Duration(m.Fence.LeaseWait), time.Duration(m.Fence.Owed))
	if s.Fence.Readable() {
		wait = max(wait, time.Duration(s.Fence.Record.LeaseWait), time.Duration(s.Fence.Record.Owed))
	}
	for _, member := range s.Members {
		wait = max(wait, LeaseWait(time.Duration(member.Node.Record.SessionTimeout)))
	}
	return min(wait, MaxWait)
}

// LeaseWait returns W for a session timeout: by when every lease that such a session was granted is over.
func LeaseWait(session time.Duration) time.Duration {
	b, err := NewBudget(session, 0)
	if err != nil {
		return session // no lease is that long
	}
	return b.LeaseWait
}

// The versions of a fence where leader is new: see writeFence.
const (
	termWrites = 8  // one term writes the fence less often: HELD, READY, and how it ended
	termCycle  = 64 // so many terms in a row have versions of their own
)

// writeFence returns the operations that write the fence: one where a fence is there. The versions of a leader that was
// deleted and created again begin at 0, so a transaction of the old one's holder that arrives late could find the version
// that it was made for. Where leader is new, it is therefore written a number of times, and its versions are above those of
// any earlier one in the terms just before (for termCycle terms).
func (p Paths) writeFence(read Slot[Fence], f Fence, term int64) []Op {
	data, version := Encode(&f), read.Stat.Version
	if read.Exists && !errors.Is(read.Err, ErrNeverWritten) {
		return []Op{{Kind: OpSet, Path: p.Leader(), Version: version, Data: data}}
	}
	var ops []Op
	if !read.Exists {
		ops, version = append(ops, Op{Kind: OpCreate, Path: p.Leader()}), 0
	}
	for range termWrites * (uint64(term) % termCycle) {
		ops = append(ops, Op{Kind: OpSet, Path: p.Leader(), Version: version})
		version++
	}
	return append(ops, Op{Kind: OpSet, Path: p.Leader(), Version: version, Data: data})
}
