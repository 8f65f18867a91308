package cluster

import "slices"

// This file has the transactions (docs/protocol.md, Transactions). Each is one multi. Every check closes a hole that
// model checking found, so none is redundant. Versions are those of the snapshot that the decision was made from.

// RegisterTx returns REGISTER. The path of the incarnation is that of the last [Result]. In a group with slots, checks
// are those of their record, see [Paths.CheckSlots]: while the member is registered, [Paths.SetSlotsTx] cannot change
// it.
func (p Paths) RegisterTx(n Node, checks ...Op) []Op {
	return append(slices.Clone(checks),
		Op{Kind: OpCreate, Path: p.Node(n.ID), Data: Encode(&n), Ephemeral: true},
		Op{Kind: OpCreate, Path: p.Incarnation(n.incarnationPrefix()), Data: []byte{}, Ephemeral: true, Sequential: true},
	)
}

// NodeTx returns a write of the member's own node record, whose version must be known. The result at 1 is that of the
// write.
func (p Paths) NodeTx(self string, version int32, n Node) []Op {
	return []Op{p.alive(self), {Kind: OpSet, Path: p.Node(n.ID), Version: version, Data: Encode(&n)}}
}

// ElectTx returns ELECT: next becomes the decision, provided that this elector and the candidate still exist and
// neither the fence nor the decision has changed since snap was read. fence is what [LastKnown.ReplacementFence]
// returns. In a slot, the group's slots must not have changed either, and others are the decisions of all other slots,
// which must still be in force: else two electors could elect one node in too many slots.
func (p Paths) ElectTx(snap Snapshot, next Elected, fence *Fence, others ...SlotState) []Op {
	ops := []Op{p.alive(snap.Self.Name), p.alive(next.Incarnation)}
	if fence == nil {
		ops = append(ops, Op{Kind: OpCheck, Path: p.Leader(), Version: snap.Fence.Stat.Version})
	} else {
		ops = append(ops, p.writeFence(snap.Fence, *fence, fence.Term)...)
	}
	ops = append(ops, writeOp(p.Elected(), snap.Elected, Encode(&next)))
	for _, other := range others {
		ops = append(ops, p.checkDecision(other)...)
	}
	return append(ops, p.CheckSlots(snap.Slots)...)
}

// AcquireTx returns ACQUIRE: the candidate writes the fence and creates current in one step. In a slot, the group's
// slots must not have changed: in another epoch, another slot may do the work of this one (S1).
func (p Paths) AcquireTx(snap Snapshot, fence Fence, current Current) []Op {
	fence.Failsafe = nil // nobody has promised anything yet
	return append([]Op{
		p.alive(snap.Self.Name),
		{Kind: OpCheck, Path: p.Elected(), Version: snap.Elected.Stat.Version},
		p.setFence(snap.Fence.Stat.Version, fence),
		{Kind: OpCreate, Path: p.Current(), Data: Encode(&current), Ephemeral: true},
	}, p.CheckSlots(snap.Slots)...)
}

// HeldVersions holds the versions that are checked in a holder's transactions. Self is its incarnation.
type HeldVersions struct {
	Self    string
	Elected int32
	Fence   int32
	Current int32
}

// ReadyTx returns READY.
func (p Paths) ReadyTx(h HeldVersions, fence Fence, current Current) []Op {
	return []Op{
		p.alive(h.Self),
		{Kind: OpCheck, Path: p.Elected(), Version: h.Elected},
		p.setFence(h.Fence, fence),
		{Kind: OpSet, Path: p.Current(), Version: h.Current, Data: Encode(&current)},
	}
}

// RenewTx returns RENEW. It changes nothing, but it goes through the quorum, which the lease depends on (S1;
// docs/protocol.md, Leading, and the lease).
func (p Paths) RenewTx(h HeldVersions) []Op {
	return []Op{
		p.alive(h.Self),
		{Kind: OpCheck, Path: p.Elected(), Version: h.Elected},
		{Kind: OpCheck, Path: p.Leader(), Version: h.Fence},
		{Kind: OpCheck, Path: p.Current(), Version: h.Current},
	}
}

// ValueTx returns VALUE: RENEW that also writes current, with another value. It does not advance the lease znode, so
// it extends no lease.
func (p Paths) ValueTx(h HeldVersions, current Current) []Op {
	ops := p.RenewTx(h)
	ops[ResultCurrent] = Op{Kind: OpSet, Path: p.Current(), Version: h.Current, Data: Encode(&current)}
	return ops
}

// ReleaseTx returns RELEASE. It does not check elected: a holder that was replaced must be able to release.
func (p Paths) ReleaseTx(h HeldVersions, fence Fence) []Op {
	fence.Failsafe = nil // the work is dead: nobody has to promise anything any more
	return []Op{
		p.alive(h.Self),
		p.setFence(h.Fence, fence),
		{Kind: OpDelete, Path: p.Current(), Version: h.Current},
	}
}

// FinalTx returns FINAL: RELEASE on behalf of a holder that cannot send it, sent just before its session is closed,
// once its work is dead. It deletes the holder's incarnation instead of checking it, so that an elector sees the
// release and the member's end at the same time, as it sees the end of a session. In a slot it checks the incarnation,
// which the slots of a member share: each has a FINAL. The elector elects no member that has released by FINAL.
func (p Paths) FinalTx(h HeldVersions, fence Fence) []Op {
	ops := p.ReleaseTx(h, fence)
	if p.Slot == "" {
		ops[0].Kind = OpDelete
	}
	return ops
}

// RevokeTx returns REVOKE: the elector deletes the current of a holder that does not release (L2). fence must be
// REVOKED; [Paths.SilenceTx] has another one.
func (p Paths) RevokeTx(snap Snapshot, fence Fence) []Op {
	return []Op{
		p.alive(snap.Self.Name),
		{Kind: OpCheck, Path: p.Elected(), Version: snap.Elected.Stat.Version},
		p.setFence(snap.Fence.Stat.Version, fence),
		{Kind: OpDelete, Path: p.Current(), Version: snap.Current.Stat.Version},
	}
}

// ControlTx returns CONTROL: it writes the requests, for an elector, whose incarnation is self, or for an operator's
// command with an empty self. It fails with ErrBadVersion or ErrNodeExists if control has changed since it was read.
// Requests of one slot are written together with those of the others.
func (p Paths) ControlTx(self string, read Stored[Control], next Control) []Op {
	next = next.Whole()
	return p.byElector(self, writeOp(p.Control(), read, Encode(&next)))
}

// byElector returns ops, with a check of the incarnation of the elector that sends them. self is empty for all others.
func (p Paths) byElector(self string, ops ...Op) []Op {
	if self == "" {
		return ops
	}
	return append([]Op{p.alive(self)}, ops...)
}

// HistoryTx writes the history. It checks that the elector's incarnation still exists: a former elector would take
// terms that its successor has added to be forged.
func (p Paths) HistoryTx(self string, stat Stat, exists bool, next History) []Op {
	return []Op{p.alive(self), writeOp(p.History(), Stored[History]{Exists: exists, Stat: stat}, EncodeHistory(&next))}
}

// The indexes of the two writes in ACQUIRE and READY. SETM writes the fence only, and VALUE current.
const (
	ResultFence   = 2
	ResultCurrent = 3
)

// setFence returns the write of the fence over a version.
func (p Paths) setFence(version int32, f Fence) Op {
	return Op{Kind: OpSet, Path: p.Leader(), Version: version, Data: Encode(&f)}
}

// alive returns a check that an incarnation exists. Its data never changes and its name is never used again, so any
// version will do.
func (p Paths) alive(incarnation string) Op {
	return Op{Kind: OpCheck, Path: p.Incarnation(incarnation), Version: AnyVersion}
}
