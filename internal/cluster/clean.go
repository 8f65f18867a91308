package cluster

// The version of leader shows how its last term has ended: a RELEASE that leaves no lease wait raises it to a multiple of cleanStep, and
// no other write over a fence does. So a candidate that knows the version before it can send ACQUIRE as soon as current is gone, without
// reading the fence first: that ACQUIRE takes effect only after a clean RELEASE (S1; docs/protocol.md, Taking over).
const (
	cleanStep = 8
	// cleanDistance is by how much a clean RELEASE raises the version at least: a few writes by hand are not taken for one.
	cleanDistance = 4
)

// CleanVersion returns the version that a clean RELEASE gives to a fence that has this version now. No other write leaves that
// version, except by hand.
func CleanVersion(version int32) int32 {
	return (version + cleanDistance + cleanStep - 1) / cleanStep * cleanStep
}

// AfterRelease returns the snapshot as it is once the leader that it shows has released and left nothing to wait for. ok is false if it
// shows no leader. An ACQUIRE from it takes effect only if that is how the term has ended.
func (s Snapshot) AfterRelease() (after Snapshot, ok bool) {
	f := &s.Fence
	if !f.Readable() || f.Record.State != FenceReady || !s.Current.Readable() || s.Current.Record.State != CurrentReady ||
		s.Current.Record.Incarnation != f.Record.Incarnation {
		return s, false
	}
	f.Stat.Version = CleanVersion(f.Stat.Version)
	f.Record.State, f.Record.Owed, f.Record.Earlier = FenceReleased, 0, nil
	s.Current = Stored[Current]{}
	return s, true
}

// overwrite returns the operation that writes the fence over a version, and one that repeats it if the version would be that of a
// clean RELEASE.
func (p Paths) overwrite(version int32, f Fence) (write Op, again []Op) {
	write = Op{Kind: OpSet, Path: p.Leader(), Version: version, Data: Encode(&f)}
	if (version+1)%cleanStep == 0 {
		repeated := write
		repeated.Version++
		again = append(again, repeated)
	}
	return write, again
}

// release returns the operations that write the fence at the end of a term over a version. If nothing remains to wait for, the version
// says so.
func (p Paths) release(version int32, f Fence) []Op {
	if f.State != FenceReleased {
		write, again := p.overwrite(version, f)
		return append([]Op{write}, again...)
	}
	return p.raise(version, CleanVersion(version), f)
}

// rewrite returns the operations that write the fence anew, with an election. They also pass over the next version of a clean RELEASE: an
// ACQUIRE that was made before must not match it later, since a new elected may have the version of the old one (S2).
func (p Paths) rewrite(version int32, f Fence) []Op {
	return p.raise(version, CleanVersion(version)+1, f)
}

// raise returns the operations that write the fence until it has a version. Only the last one has content: nobody can read the others.
func (p Paths) raise(from, to int32, f Fence) (ops []Op) {
	for ; from < to-1; from++ {
		ops = append(ops, Op{Kind: OpSet, Path: p.Leader(), Version: from})
	}
	return append(ops, Op{Kind: OpSet, Path: p.Leader(), Version: from, Data: Encode(&f)})
}

// LastFenceWrite returns the index of the operation that writes the fence last; -1 if none does.
func (p Paths) LastFenceWrite(ops []Op) int {
	for i := len(ops) - 1; i >= 0; i-- {
		if ops[i].Kind == OpSet && ops[i].Path == p.Leader() {
			return i
		}
	}
	return -1
}
