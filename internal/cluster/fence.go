package cluster

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrNeverWritten is the error of a fence whose znode is empty and has never been written, as in a new group. It proves
// nothing: the znode may have been deleted under a leader and created again.
var ErrNeverWritten = errors.New("contains no fence yet: no earlier leader is known")

// MaxWait bounds the durations in a fence and the session timeouts that they are computed from. A longer one counts as
// damage: added to a time it could overflow.
const MaxWait = 10 * time.Minute

func checkWait(name string, d Duration) error {
	if d < 0 || time.Duration(d) > MaxWait {
		return fmt.Errorf("%s is %s, not between 0s and %s", name, d, MaxWait)
	}
	return nil
}

func (n *Node) validate(Stat) error { return checkWait("session_timeout", n.SessionTimeout) }

// ReadFence is [ReadStored] for the data of leader. Empty data is an error at any version, and [ErrNeverWritten] at the
// first, as is what an election leaves that has not got further than to raise the version: it is not known then who
// holds leadership (docs/protocol.md, Taking over, A1).
func ReadFence(path string, data []byte, stat Stat, exists bool) Stored[Fence] {
	if exists && (len(data) == 0 && stat.Version == 0 || string(data) == raising) {
		return Stored[Fence]{Exists: true, Stat: stat, Err: fmt.Errorf("znode %s %w", path, ErrNeverWritten)}
	}
	return ReadStored[Fence](path, data, stat, exists)
}

// LastKnown is what a daemon remembers of the leaderships that it has seen, in case the records are lost. It outlives
// the session.
type LastKnown struct {
	// Term is the highest term seen or assigned.
	Term int64
	// Fence is the last fence that could be read.
	Fence Fence
}

// Update includes what a snapshot shows.
func (m *LastKnown) Update(s *Snapshot) {
	m.Term = max(m.Term, s.HighestTerm())
	if s.Fence.Readable() {
		m.Fence = s.Fence.Record
	}
}

// Next returns the next term: above all that are known here or to a registered member, and at least [FirstTerm]. If the
// clock is ahead, it skips a multiple of termCycle terms, so that the versions of a new leader follow those of the
// terms before, see writeFence. Then it may be ahead of the clock by almost as many. So where the records are lost, it
// skips as many more: perhaps no registered member remembers the last term. If none is known at all, that may have been
// such a term.
func (m *LastKnown) Next(s *Snapshot, wall time.Time) int64 {
	last := max(m.Term, s.Remembered())
	next, least := last+1, FirstTerm(wall)
	switch {
	case last <= 0:
		return least + 2*termCycle
	case next < least:
		next += (least - next + termCycle - 1) / termCycle * termCycle
	}
	if !s.Elected.Readable() && !s.Fence.Readable() && next < least+2*termCycle {
		next += termCycle
	}
	return next
}

// ReplacementFence returns the fence that an ELECT with the term next must write, nil to leave the existing one
// (docs/protocol.md, Taking over, A1). It is also written if elected does not exist: the versions of a new znode begin
// at 0 again, so a version of the deleted one could match. An unreadable fence is replaced by one with the longest
// known wait, never by a clean one: that no leader is known does not prove that there is none (S1).
func (m *LastKnown) ReplacementFence(s *Snapshot, next int64, wall time.Time) *Fence {
	if s.Fence.Readable() {
		if s.Elected.Exists {
			return nil
		}
		f := s.Fence.Record
		return &f
	}
	last, wait := m.Fence, m.LeaseWait(s)
	f := Fence{
		Term: next - 1, Node: last.Node, Site: last.Site, Incarnation: last.Incarnation, State: FenceRevoked,
		Session: last.Session, LeaseWait: Duration(wait), Kill: last.Kill, RevokeTimeout: last.RevokeTimeout, Time: wall,
		Failsafe: last.Failsafe,
		// another node may have led since
		Host: last.Host, API: last.API, Owed: Duration(wait), Earlier: unknownHolder(last.Earlier, wait),
	}
	if f.RevokeTimeout == 0 { // the holder may exist and be stopping its work
		f.RevokeTimeout = Duration(min(2*wait, MaxWait))
	}
	switch {
	case !s.Fence.Exists:
		f.Reason = "the znode leader was deleted"
	case errors.Is(s.Fence.Err, ErrNeverWritten):
		f.Reason = "no earlier leader is known"
	default:
		f.Reason = "the record was damaged: " + s.Fence.Err.Error()
	}
	return &f
}

// unknownHolder adds a holder of which nothing is known to a list. An empty list needs none, see [Snapshot.Earlier].
func unknownHolder(list []EarlierHolder, wait time.Duration) []EarlierHolder {
	if len(list) == 0 {
		return nil
	}
	return MergeEarlier(append(slices.Clone(list), EarlierHolder{Wait: Duration(wait)}))
}

// LeaseWait returns the longest known W: that of the last fence, and of every member's session timeout.
func (m *LastKnown) LeaseWait(s *Snapshot) time.Duration {
	wait := max(time.Duration(m.Fence.LeaseWait), time.Duration(m.Fence.Owed))
	if s.Fence.Readable() {
		wait = max(wait, time.Duration(s.Fence.Record.LeaseWait), time.Duration(s.Fence.Record.Owed))
	}
	for _, member := range s.Members {
		wait = max(wait, LeaseWait(time.Duration(member.Node.Record.SessionTimeout)))
	}
	return min(wait, MaxWait)
}

// LeaseWait returns the longest W for a session timeout: by when every lease that such a session was granted is over,
// whatever is configured.
func LeaseWait(session time.Duration) time.Duration {
	b, err := NewBudget(session, 0, 0)
	if err != nil {
		return session // no lease is that long
	}
	return b.LeaseWait
}

// The versions of the fence in a new leader znode, see writeFence.
const (
	termWrites = 16 // more than HELD, READY and the end of a term raise the version
	termCycle  = 64 // this many terms in a row have different versions
)

// writeFence returns the operations that write the fence: over the present one, if there is a fence (docs/protocol.md,
// Transactions). If leader was deleted and created again, its versions begin at 0, and a late transaction of an earlier
// holder could match one of them. Therefore a new znode is written several times, so that its versions are above those
// of the termCycle terms before it.
func (p Paths) writeFence(read Stored[Fence], f Fence, term int64) []Op {
	if read.Exists && !errors.Is(read.Err, ErrNeverWritten) {
		return []Op{p.setFence(read.Stat.Version, f)}
	}
	return firstWrite(p.Leader(), read.Exists, read.Stat.Version, emptyWrites(read.Stat.Version, term, termWrites,
		termCycle), Encode(&f))
}

// emptyWrites returns how many empty writes raise a version to the first one of number, of which each has so many
// versions, in cycles.
func emptyWrites(version int32, number int64, writes, cycle uint64) uint64 {
	all := writes * cycle
	return (writes*(uint64(number)%cycle) + all - uint64(uint32(version))%all) % all
}

// maxRaise is how many writes without content one transaction has at most.
const maxRaise = 64

// raising is what leader or slots contains between the transactions of [Paths.Split].
const raising = `{"v":1,"raising":true}`

// Split returns the transactions that have the effect of ops together, in order. Those before the last one only raise
// the version of a new leader or slots znode: the version that a term begins with may need 1,008 writes, which is more
// than a server with a small jute.maxbuffer accepts at once. If they end early, the record counts as never written, and
// the next attempt goes on from there.
func (p Paths) Split(ops []Op) (txs [][]Op) {
	isEmpty := func(o Op) bool {
		return o.Kind == OpSet && (o.Path == p.Leader() || o.Path == p.Slots()) && len(o.Data) == 0
	}
	begin := slices.IndexFunc(ops, isEmpty)
	if begin < 0 {
		return [][]Op{ops}
	}
	before := slices.Clone(ops[:begin])
	for ; begin+maxRaise < len(ops) && isEmpty(ops[begin+maxRaise]); begin += maxRaise {
		tx := slices.Concat(before, ops[begin:begin+maxRaise])
		tx[len(tx)-1].Data = []byte(raising)
		txs = append(txs, tx)
		before = slices.DeleteFunc(before, func(o Op) bool { return o.Kind == OpCreate }) // it has created the znode
	}
	return append(txs, slices.Concat(before, ops[begin:]))
}

// firstWrite returns the operations that write a znode that has never been written, after so many empty writes.
func firstWrite(path string, exists bool, version int32, empty uint64, data []byte) []Op {
	var ops []Op
	if !exists {
		ops, version = append(ops, Op{Kind: OpCreate, Path: path}), 0
	}
	for range empty {
		ops = append(ops, Op{Kind: OpSet, Path: path, Version: version})
		version++
	}
	return append(ops, Op{Kind: OpSet, Path: path, Version: version, Data: data})
}
