package cluster

import (
	"fmt"
	"slices"
	"time"
)

// Failsafe is the part of a fence that says who has to promise before its holder may work on without ZooKeeper
// (docs/protocol.md, Failsafe). It must not be changed in place: records share it.
type Failsafe struct {
	// Key identifies the state directory of the holder's daemon.
	Key string `json:"key"`
	// Members must all promise not to let anybody take over. If there are none, the holder never works on without
	// ZooKeeper.
	Members []FailsafeMember `json:"members"`
	// Veto is the id of the member, or of the holder's node, that refuses every later promise for this term; empty if
	// there is none.
	Veto string `json:"veto,omitempty"`
	// Max is how long the holder works on at most, counted from the sending of its last acknowledged write; 0 for no
	// limit.
	Max Duration `json:"max,omitempty"`
}

// FailsafeMember is a member that must promise. A promise binds one incarnation.
type FailsafeMember struct {
	ID          string `json:"id"`
	Incarnation string `json:"inc"`
	// Key identifies the state directory of its daemon. A daemon with another one may be another host with the same id.
	Key string `json:"key"`
}

// FailsafeNode is what a node says about itself for failsafe mode.
type FailsafeNode struct {
	// Key identifies the state directory of its daemon.
	Key string `json:"key"`
	// Address is where its daemon answers the rounds of leaders, as host:port or URL. Without one the node promises
	// nothing, but agrees to successors, because it may have promised something before.
	Address string `json:"address,omitempty"`
}

// CanPromise reports whether the node can be asked for a promise. One that cannot must not be among those that must
// promise: the first outage would stop the leader.
func (n *FailsafeNode) CanPromise() bool { return n != nil && n.Key != "" && n.Address != "" }

// FailsafeRules say whether a group uses failsafe mode.
type FailsafeRules struct {
	Enabled bool `json:"enabled,omitempty"`
	// Max bounds how long a leader works on without ZooKeeper; 0 for no limit.
	Max Duration `json:"max,omitempty"`
}

// fenceVersion is the format version of a fence with members that must promise. A daemon that does not know it must not
// acquire, elect or revoke over such a fence.
const fenceVersion = 2

// formats returns the format version of the record, and the newest that this build reads.
func (f *Fence) formats() (version, newest int) {
	if f.Failsafe != nil && len(f.Failsafe.Members) > 0 {
		return fenceVersion, fenceVersion
	}
	return FormatVersion, fenceVersion
}

// bound reports whether members may have promised to let nobody take over from the holder, and none of them, nor the
// holder's node, has vetoed that since.
func (f *Fence) bound() bool {
	fs := f.Failsafe
	if fs == nil || len(fs.Members) == 0 || f.State == FenceReleased {
		return false
	}
	return fs.Veto == "" || fs.Veto != f.Node && !slices.ContainsFunc(fs.Members,
		func(m FailsafeMember) bool { return m.ID == fs.Veto })
}

// Succession is the right by which a node may acquire over a fence. It is required in addition to the lease wait, see
// [Snapshot.Owed].
type Succession int

// The rights.
const (
	// SuccessionFree: nobody has to refuse promises first.
	SuccessionFree Succession = iota
	// SuccessionMember: the node is a member that must promise. It may acquire, or veto, once its own promise has
	// lapsed and it has recorded that it refuses every later one.
	SuccessionMember
	// SuccessionOwner: the node held the term. It may acquire, or veto, once all of its work is dead.
	SuccessionOwner
	// SuccessionBarred: a veto must come first, or the limit of [Failsafe.Max].
	SuccessionBarred
)

// Succession returns the right of the node with this id, whose state directory has this key; empty if it has none.
func (f *Fence) Succession(id, key string) Succession {
	switch {
	case !f.bound():
		return SuccessionFree
	case key == "":
		return SuccessionBarred
	case f.Node == id && f.Failsafe.Key == key:
		return SuccessionOwner
	case slices.ContainsFunc(f.Failsafe.Members, func(m FailsafeMember) bool { return m.ID == id && m.Key == key }):
		return SuccessionMember
	}
	return SuccessionBarred
}

// Names reports whether the node is the holder's or one of those that must promise, whatever its key.
func (f *Fence) Names(id string) bool {
	return f.Failsafe != nil && (f.Node == id || slices.ContainsFunc(f.Failsafe.Members,
		func(m FailsafeMember) bool { return m.ID == id }))
}

// CapWait returns how long after it has seen that current of the fence's term is gone anybody may acquire without a
// veto; 0 for never (docs/protocol.md, Failsafe).
func (f *Fence) CapWait() time.Duration {
	if f.Failsafe == nil || f.Failsafe.Max <= 0 {
		return 0
	}
	return OnAnyClock(time.Duration(f.Failsafe.Max) + time.Duration(f.Kill))
}

// OnAnyClock returns how long to wait on one host's clock so that d has passed on any other's.
func OnAnyClock(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 + Drift) / (1 - Drift))
}

// CheckSuccession returns an error while members may have promised to let nobody take over from the holder of the
// fence. It is for those that put an end to a term without a candidate, such as the move of a group.
func (f *Fence) CheckSuccession() error {
	if !f.bound() {
		return nil
	}
	return fmt.Errorf("%s may still lead in term %d: the members that have promised not to replace it have not "+
		"said otherwise", f.Node, f.Term)
}

// FailsafeGrace returns how long before the end of a lease the work is asked to stop at the earliest, while members may
// promise to let it go on: they need the time before that in order to answer.
func FailsafeGrace(lease time.Duration) time.Duration { return lease / 3 }

// MaxFailsafe bounds [FailsafeRules.Max].
const MaxFailsafe = MaxRequestTime

func (f *Failsafe) validate() error {
	if f != nil && (f.Max < 0 || time.Duration(f.Max) > MaxFailsafe) {
		return fmt.Errorf("failsafe.max is %s, not between 0s and %s", f.Max, time.Duration(MaxFailsafe))
	}
	return nil
}

// SetMembersTx returns SETM: RENEW that also writes the fence, with the members that must promise from now on.
func (p Paths) SetMembersTx(h HeldVersions, fence Fence) []Op {
	ops := p.RenewTx(h)
	ops[ResultFence] = p.setFence(h.Fence, fence)
	return ops
}

// VetoTx returns VETO: the fence stays as it is in snap, and says in addition that the node vetoes. The node must be a
// member that must promise, or the holder's ([Fence.Succession]), and must never again promise anything for the term.
func (p Paths) VetoTx(snap Snapshot, id string) []Op {
	fence := snap.Fence.Record
	fs := *fence.Failsafe
	fs.Veto = id
	fence.Failsafe = &fs
	return []Op{p.alive(snap.Self.Name), p.setFence(snap.Fence.Stat.Version, fence)}
}

// ProbeTx returns a write that changes nothing, but goes through the quorum: its answer proves that the quorum can be
// reached.
func (p Paths) ProbeTx(self string) []Op { return []Op{p.alive(self)} }
