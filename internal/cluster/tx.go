package cluster

// The transactions of docs/protocol.md. Each is one multi; every check in it closes a hole that model checking found,
// so none is redundant. Versions are those of the snapshot that the decision was made from.

// RegisterTx is REGISTER. The name of the incarnation is the Path of the second [Result].
func (p Paths) RegisterTx(n Node) []Op {
	return []Op{
		{Kind: OpCreate, Path: p.Node(n.ID), Data: Encode(&n), Ephemeral: true},
		{Kind: OpCreate, Path: p.Incarnation(n.ID + sequenceMark), Data: []byte{}, Ephemeral: true, Sequential: true},
	}
}

// ElectTx is ELECT: next becomes the decision, provided that this elector and the candidate still exist and neither
// the fence nor the decision has moved since snap was read.
func (p Paths) ElectTx(snap Snapshot, next Elected) []Op {
	write := Op{Kind: OpSet, Path: p.Elected(), Version: snap.Elected.Stat.Version, Data: Encode(&next)}
	fence := Op{Kind: OpCheck, Path: p.Leader(), Version: snap.Fence.Stat.Version}
	if !snap.Elected.Exists {
		// Versions begin anew with a create, so one of an elected that was deleted would pass for this one's. The fence,
		// which is never deleted and whose version is in every transaction too, moves on instead.
		write.Kind, write.Version = OpCreate, 0
		fence.Kind, fence.Data = OpSet, fenceAgain(snap.Fence, next.Term)
	}
	return []Op{p.alive(snap.Self.Name), p.alive(next.Incarnation), fence, write}
}

// fenceAgain is the content of a fence to be written anew with what it says: nobody has led, or what is owed is unknown.
// The latter keeps the terms growing, should elected be lost as well.
func fenceAgain(s Slot[Fence], next int64) []byte {
	rec := s.Record
	switch {
	case s.Err != nil:
		rec = Fence{Term: next - 1, State: FenceRevoked, Reason: "the record was damaged: " + s.Err.Error()}
	case !s.Exists:
		rec = Fence{State: FenceReleased, Reason: "nobody has led yet", Requested: true}
	}
	return Encode(&rec)
}

// AcquireTx is ACQUIRE: the candidate takes the fence and current in one step. The results at
// [ResultFence] and [ResultCurrent] are those of the two writes.
func (p Paths) AcquireTx(snap Snapshot, fence Fence, current Current) []Op {
	return []Op{
		p.alive(snap.Self.Name),
		{Kind: OpCheck, Path: p.Elected(), Version: snap.Elected.Stat.Version},
		{Kind: OpSet, Path: p.Leader(), Version: snap.Fence.Stat.Version, Data: Encode(&fence)},
		{Kind: OpCreate, Path: p.Current(), Data: Encode(&current), Ephemeral: true},
	}
}

// Holding names the versions that a holder's transactions are fenced with.
type Holding struct {
	Self    string
	Elected int32
	Fence   int32
	Current int32
}

// ReadyTx is READY.
func (p Paths) ReadyTx(h Holding, fence Fence, current Current) []Op {
	return []Op{
		p.alive(h.Self),
		{Kind: OpCheck, Path: p.Elected(), Version: h.Elected},
		{Kind: OpSet, Path: p.Leader(), Version: h.Fence, Data: Encode(&fence)},
		{Kind: OpSet, Path: p.Current(), Version: h.Current, Data: Encode(&current)},
	}
}

// RenewTx is RENEW. It changes nothing, but it passes the quorum, which is what the lease rests on (S1).
func (p Paths) RenewTx(h Holding) []Op {
	return []Op{
		p.alive(h.Self),
		{Kind: OpCheck, Path: p.Elected(), Version: h.Elected},
		{Kind: OpCheck, Path: p.Leader(), Version: h.Fence},
		{Kind: OpCheck, Path: p.Current(), Version: h.Current},
	}
}

// ReleaseTx is RELEASE. It doesn't look at elected: a holder that was replaced must be able to let go.
func (p Paths) ReleaseTx(h Holding, fence Fence) []Op {
	return []Op{
		p.alive(h.Self),
		{Kind: OpSet, Path: p.Leader(), Version: h.Fence, Data: Encode(&fence)},
		{Kind: OpDelete, Path: p.Current(), Version: h.Current},
	}
}

// RevokeTx is REVOKE: the elector takes current away from a holder that does not let go (L2). fence must be REVOKED.
func (p Paths) RevokeTx(snap Snapshot, fence Fence) []Op {
	return []Op{
		p.alive(snap.Self.Name),
		{Kind: OpCheck, Path: p.Elected(), Version: snap.Elected.Stat.Version},
		{Kind: OpSet, Path: p.Leader(), Version: snap.Fence.Stat.Version, Data: Encode(&fence)},
		{Kind: OpDelete, Path: p.Current(), Version: snap.Current.Stat.Version},
	}
}

// ControlTx brings the orders up to date: by an elector (self is its incarnation), or by an operator's command, for whom
// self is empty. It fails with ErrBadVersion or ErrNodeExists if somebody has changed them since snap was read.
func (p Paths) ControlTx(self string, read Slot[Control], next Control) []Op {
	write := Op{Kind: OpSet, Path: p.Control(), Version: read.Stat.Version, Data: Encode(&next)}
	if !read.Exists {
		write.Kind, write.Version = OpCreate, 0
	}
	if self == "" {
		return []Op{write}
	}
	return []Op{p.alive(self), write}
}

// Indices of the writes in the results of ACQUIRE and READY.
const (
	ResultFence   = 2
	ResultCurrent = 3
)

// alive checks that an incarnation exists. Its data never changes and its name is never reused, so any version will do.
func (p Paths) alive(incarnation string) Op {
	return Op{Kind: OpCheck, Path: p.Incarnation(incarnation), Version: AnyVersion}
}
