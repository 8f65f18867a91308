package cluster

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// LeaseZnodes returns the parent of the lease znodes of hosts below base, their zookeeper.root.
func LeaseZnodes(base string) string { return path.Join(base, ".leases") }

// LeaseZnodes returns [LeaseZnodes] for the hosts that have the group as one of many.
func (p Paths) LeaseZnodes() string { return LeaseZnodes(path.Dir(p.Root)) }

// LeaseZnode returns the path of the lease znode of a node's session (docs/protocol.md, The renewal is seen). It
// contains the session's id, so it is never used again.
func LeaseZnode(base, id string, session int64) string {
	return LeaseZnodes(base) + "/" + leaseZnodeName(id, session)
}

func leaseZnodeName(id string, session int64) string {
	return fmt.Sprintf("%s-%x", id, uint64(session))
}

// LeaseZnodeTx returns the creation of a lease znode. It is written once, so that its version is 1: one of version 0
// was created by somebody else.
func LeaseZnodeTx(znode string) []Op {
	return []Op{{Kind: OpCreate, Path: znode, Data: []byte{}, Ephemeral: true}, {Kind: OpSet, Path: znode}}
}

// namesLeaseZnode reports whether the fence names a znode that can be the lease znode of its holder. A record is a
// claim: another znode that the same session owns may stay as it is while the lease is renewed.
func (f *Fence) namesLeaseZnode() bool {
	dir, name := path.Split(f.LeaseZnode)
	return strings.HasPrefix(dir, "/") && path.Base(dir) == path.Base(LeaseZnodes("/")) &&
		name == leaseZnodeName(f.Node, f.Session)
}

// LeaseZnodeSeen is what a member has read of the lease znode of a holder.
type LeaseZnodeSeen struct {
	Znode  string
	Exists bool
	Stat   Stat
	// At is when the answer was received, on the member's monotonic clock.
	At time.Duration
	// Witnessed is set if the reader has seen the znode or the fence change then, and has not only found them like this.
	Witnessed bool
}

// Of reports whether this is the lease znode that the holder of the fence advances.
func (l LeaseZnodeSeen) Of(f *Fence) bool {
	return f.LeaseZnode != "" && l.Znode == f.LeaseZnode && l.Exists && l.Stat.Owner == f.Session && l.Stat.Version > 0
}

// TakeWait returns how long after a sighting of the holder's lease TAKE is sent at the earliest: every lease that this
// or an earlier holder was granted is over then. own is W of the member that takes over (docs/protocol.md, TAKE).
func (f *Fence) TakeWait(own time.Duration) time.Duration {
	return max(time.Duration(f.LeaseWait), time.Duration(f.Owed), time.Duration(LongestWait(f.Earlier)), own)
}

// KillWait returns how long after a sighting of the holder's lease its guard begins to kill, at the latest: of W, a
// quarter or more is reserved for the kill, see [NewBudget]. Once the work is dead, at most K later, the holder no longer
// adds to what a roll call compares: a deputy that asks now takes that for the time that it saves. own is as in TakeWait.
func (f *Fence) KillWait(own time.Duration) time.Duration { return f.TakeWait(own) / 4 * 3 }

// MayBeTaken reports whether the fence names a holder whose lease can be watched.
func (s *Snapshot) MayBeTaken() bool {
	f := &s.Fence.Record
	return s.HolderRead && s.Fence.Readable() && (f.State == FenceHeld || f.State == FenceReady) && f.namesLeaseZnode()
}

// TakeTx returns TAKE: ELECT that also takes the fence from a holder whose lease was seen unchanged for so long that it
// is over. While the fence and the lease znode are as they were then, no later lease has been granted, and after TAKE
// none can be: the fence has changed. SILENT leaves nothing to wait for of this holder, and every other wait as it is.
func (p Paths) TakeTx(snap Snapshot, seen LeaseZnodeSeen, next Elected, others ...SlotState) []Op {
	fence := snap.SilentFence(next.Leaderless, next.Reason, next.Time)
	ops := append(p.ElectTx(snap, next, &fence, others...), fence.unrenewed(seen))
	if snap.Current.Exists {
		ops = append(ops, Op{Kind: OpDelete, Path: p.Current(), Version: snap.Current.Stat.Version})
	}
	return ops
}

// SilenceTx returns SILENCE: TAKE without an election, for which a person must be asked first. fence is
// [Snapshot.SilentFence].
func (p Paths) SilenceTx(snap Snapshot, seen LeaseZnodeSeen, fence Fence) []Op {
	return append(p.RevokeTx(snap, fence), fence.unrenewed(seen))
}

// SilentFence returns the fence of a holder that has fallen silent, for TAKE and SILENCE.
func (s *Snapshot) SilentFence(leaderless *Gap, reason string, wall time.Time) Fence {
	f := s.Fence.Record
	f.Earlier = MergeEarlier(append(slices.Clone(f.Earlier), f.holder(0)))
	f.End(leaderless)
	f.State, f.Reason, f.Requested, f.Time = FenceSilent, reason, false, wall
	return f
}

// unrenewed checks that the lease znode is as it was seen.
func (f *Fence) unrenewed(seen LeaseZnodeSeen) Op {
	return Op{Kind: OpCheck, Path: f.LeaseZnode, Version: seen.Stat.Version}
}

// MaxDeputies is how many members watch the lease of a leader.
const MaxDeputies = 3

// Deputies returns the published deputies to the present decision.
func (s *Snapshot) Deputies() []string {
	switch {
	case !s.Elected.Readable():
		return nil
	case s.Heir.Readable() && s.Heir.Record.Term == s.Elected.Record.Term:
		return first(s.Heir.Record.Deputies, MaxDeputies)
	}
	return first(s.Elected.Record.Deputies, MaxDeputies)
}

// first returns at most n of a list: a forged one is not followed by everybody.
func first(list []string, n int) []string { return list[:min(n, len(list))] }

// DeputyPlace returns the reader's place among the deputies, from 0 on; -1 if it is none.
func (s *Snapshot) DeputyPlace() int { return slices.Index(s.Deputies(), s.Self.ID) }

// SilentReason says why a silent incarnation is not elected, and what happens next.
const SilentReason = "it has fallen silent, and registers again by itself as soon as it reads that"

// DeclaredSilent reports whether an incarnation is known to be silent: it is not elected, and its node must register
// again.
func (s *Snapshot) DeclaredSilent(incarnation string) bool {
	return slices.Contains(s.SlotState().Silent(), incarnation)
}

// Silent returns the incarnations for which [Snapshot.DeclaredSilent] is true.
func (s SlotState) Silent() []string {
	switch {
	case !s.Elected.Readable():
		return nil
	case s.Acquired() && s.Fence.Record.State == FenceSilent: // by SILENCE
		return append(slices.Clone(s.Elected.Record.Silent), s.Fence.Record.Incarnation)
	}
	return s.Elected.Record.Silent
}
