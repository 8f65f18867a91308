package cluster

import (
	"errors"
	"fmt"
	"time"
)

// RootState is what was read below one root, for a move of the group to another one.
type RootState struct {
	Paths    Paths
	Identity Stored[Identity]
	Snapshot Snapshot
	// Nodes and Election are the stats of these two znodes, which exist.
	Nodes, Election Stat
	// Policy, Roster and History are data, nil if there is none; HistoryStat is the stat of the last one.
	Policy, Roster, History []byte
	HistoryStat             Stat
}

// Relocation moves a group to another root. No daemon is a member of it in either one.
type Relocation struct {
	From, To RootState
	// Name is the record of the group's name, at NamePath; it is empty if that is one of the roots, or if none is known.
	NamePath string
	Name     Stored[Identity]
	// By is who moves it, at the time Wall.
	By   string
	Wall time.Time
}

// Check returns an error if the group cannot be moved.
func (r Relocation) Check() error {
	from, to := r.From.Snapshot, r.To.Snapshot
	switch newer := errors.Join(from.Newer(), to.Newer(), r.From.Identity.Newer(), r.Name.Newer()); {
	case newer != nil:
		return newer
	case !from.Fence.Readable() || from.HighestTerm() == 0:
		return fmt.Errorf("the group %s never had a leader, or its znode %s is damaged: only a group that has led can be moved; configure a new root, or see 'zkelectd repair'",
			r.From.Paths.Root, r.From.Paths.Leader())
	case from.Control.Err != nil || from.Policy.Err != nil:
		return fmt.Errorf("a record of the group %s is damaged: run 'zkelectd repair' first", r.From.Paths.Root)
	case r.From.Identity.Record.Kind == KindSlots:
		return fmt.Errorf("the group %s has slots, and such a group can't be moved: stop its daemons, and configure them with a new root", r.From.Paths.Root)
	case from.Current.Exists:
		return fmt.Errorf("znode %s exists: a daemon leads", r.From.Paths.Current())
	case to.Current.Exists:
		return fmt.Errorf("znode %s exists: a daemon leads", r.To.Paths.Current())
	case from.Fence.Record.bound() || to.Fence.Record.bound():
		return errors.Join(from.Fence.Record.CheckSuccession(), to.Fence.Record.CheckSuccession())
	case r.To.Identity.Record.Root == r.From.Paths.Root && r.To.Identity.Record.Kind == KindSingle:
		return nil // it was there before
	}
	return CheckIdentity(r.To.Paths.Root, r.To.Paths.Root, KindSingle, r.To.Identity)
}

// Fence returns the fence that the group begins with in the new root. The lease of the last leader may still be running, whatever
// its own fence says, because its incarnation could be taken for one below the new root.
func (r Relocation) Fence() Fence {
	old := r.From.Snapshot.Fence.Record
	return Fence{
		Term: max(r.From.Snapshot.HighestTerm(), r.To.Snapshot.HighestTerm()), Node: old.Node, Site: old.Site, State: FenceRevoked,
		Host: old.Host, API: old.API, Owed: old.Owed, Earlier: old.Earlier,
		LeaseWait: max(old.LeaseWait, old.Owed), Kill: old.Kill, RevokeTimeout: old.RevokeTimeout,
		Reason: fmt.Sprintf("moved from the root %s by %s", r.From.Paths.Root, r.By), Requested: true, Time: r.Wall,
	}
}

// Tx returns the transaction. It deletes the parents of the old root's ephemerals, so it is refused if a daemon is a member there.
// One that registers there later finds a hard pause.
func (r Relocation) Tx() []Op {
	from, to := r.From, r.To
	ops := []Op{
		{Kind: OpDelete, Path: from.Paths.Election(), Version: from.Election.Version},
		{Kind: OpDelete, Path: from.Paths.Nodes(), Version: from.Nodes.Version},
		{Kind: OpCheck, Path: from.Paths.Leader(), Version: from.Snapshot.Fence.Stat.Version},
		writeOp(from.Paths.Root, from.Identity, r.identity()),
		writeOp(to.Paths.Root, to.Identity, r.identity()),
	}
	if r.NamePath != "" {
		ops = append(ops, writeOp(r.NamePath, r.Name, r.identity()))
	}
	next, pause := from.Snapshot.Control.Record.Clone(), from.Snapshot.Control.Record.Clone()
	next.FixSchedule(from.Snapshot.Control.Stat)
	pause.Scheduled = nil
	if next.Pause != nil && next.Pause.MovedTo != "" {
		next.Pause = nil
	}
	pause.Pause = &Pause{Request: pause.Next(Request{By: r.By, Reason: "the group was moved", Time: r.Wall}), Hard: true, MovedTo: to.Paths.Root}
	pause.LastRequest = fmt.Sprintf("move of the group to %s by %s", to.Paths.Root, r.By)
	ops = append(ops, from.Paths.ControlTx("", from.Snapshot.Control, pause)...)
	ops = append(ops, to.Paths.ControlTx("", to.Snapshot.Control, next)...)
	fence := r.Fence()
	ops = append(ops, to.Paths.writeFence(to.Snapshot.Fence, fence, fence.Term)...)
	for _, s := range []RootState{from, to} {
		if e := s.Snapshot.Elected; e.Exists {
			// The numbers of incarnations begin again at 0, so a new one could be the one that it elects, and acquire.
			ops = append(ops, Op{Kind: OpDelete, Path: s.Paths.Elected(), Version: e.Stat.Version})
		}
	}
	ops = append(ops, copyOp(to.Paths.Policy(), to.Snapshot.Policy.Exists, to.Snapshot.Policy.Stat, from.Policy)...)
	ops = append(ops, copyOp(to.Paths.Roster(), to.Snapshot.Roster.Exists, to.Snapshot.Roster.Stat, from.Roster)...)
	return append(ops, copyOp(to.Paths.History(), to.History != nil, to.HistoryStat, from.History)...)
}

func (r Relocation) identity() []byte {
	return Encode(&Identity{Root: r.To.Paths.Root, Kind: KindSingle})
}

// writeOp returns the write of data to a znode that may not exist.
func writeOp[T any](path string, read Stored[T], data []byte) Op {
	if !read.Exists {
		return Op{Kind: OpCreate, Path: path, Data: data}
	}
	return Op{Kind: OpSet, Path: path, Version: read.Stat.Version, Data: data}
}

// copyOp returns the write of data, if there is any.
func copyOp(path string, exists bool, stat Stat, data []byte) []Op {
	if data == nil {
		return nil
	}
	return []Op{writeOp(path, Stored[struct{}]{Exists: exists, Stat: stat}, data)}
}
