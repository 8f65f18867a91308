package cluster

import (
	"fmt"
	"slices"
	"time"
)

// Forced says who has declared a term of failsafe mode to be over, when, and why.
type Forced struct {
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Time   time.Time `json:"time"`
}

// String describes it for people.
func (f Forced) String() string {
	text := f.By + " has declared that no work of this term is left"
	if f.Reason != "" {
		text += ": " + f.Reason
	}
	return text
}

// CheckStuck returns why the group is not stuck in failsafe mode, nil if it is: nobody may acquire before a member that
// has promised something, or the last leader's node, has vetoed that, and none of them is registered with the state
// that it had. All members must have been read.
func (s *Snapshot) CheckStuck() error {
	f := &s.Fence.Record
	switch {
	case s.Newer() != nil:
		return s.Newer()
	case !s.Fence.Exists || s.Fence.Err != nil:
		return fmt.Errorf("the fence is missing or damaged: the elector repairs it")
	case s.Current.Exists:
		return fmt.Errorf("there is a leader or a candidate: znode current exists, of term %d",
			max(s.Current.Record.Term, f.Term))
	case f.State == FenceReleased:
		return fmt.Errorf("%s has released leadership in term %d: nothing is in the way of a successor", f.Node, f.Term)
	case f.Failsafe == nil || len(f.Failsafe.Members) == 0:
		return fmt.Errorf("nobody has promised anything to %s in term %d: a successor waits for nobody", f.Node, f.Term)
	case !f.bound():
		return fmt.Errorf("%s has already allowed another member to take over after term %d", f.Failsafe.Veto, f.Term)
	}
	for i := range s.Members {
		m := &s.Members[i]
		if m.Name == f.Incarnation {
			return fmt.Errorf("the session of %s has not ended yet", m.ID)
		}
		if n := m.Node.Record.Failsafe; n != nil && f.Succession(m.ID, n.Key) != SuccessionBarred {
			return fmt.Errorf("%s is registered, and will allow another member to take over", m.ID)
		}
	}
	return nil
}

// FailsafeNodes returns the ids of the nodes whose hosts may still run, or have promised, the work of the fence's term:
// the last leader's first.
func (f *Fence) FailsafeNodes() []string {
	ids := []string{f.Node}
	add := func(id string) {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if f.Failsafe != nil {
		for _, m := range f.Failsafe.Members {
			add(m.ID)
		}
	}
	for _, h := range f.Earlier {
		add(h.Node)
	}
	return ids
}

// forced returns the fence after a person has declared that the hosts of its term are off: a veto in the name of the
// last leader's node, which says that its work is dead. The successor still waits as long as after any other leader
// that has not released.
func (f Fence) forced(by Forced) Fence {
	f.End(f.LeastIdle())
	f.State, f.Reason, f.Requested, f.Time = FenceRevoked, by.String(), true, by.Time
	fs := *f.Failsafe
	fs.Veto = f.Node
	f.Failsafe = &fs
	return f
}

// ForceTx returns what ends a group's standstill in failsafe mode, see [Snapshot.CheckStuck]. A group is stuck only
// while current does not exist, and only an ACQUIRE creates it, which changes the fence. past is the history with its
// znode's stat; nil leaves it alone.
func (p Paths) ForceTx(snap Snapshot, by Forced, past *Stored[History]) []Op {
	ops := []Op{p.setFence(snap.Fence.Stat.Version, snap.Fence.Record.forced(by))}
	if past != nil {
		next := past.Record
		ops = append(ops, Op{Kind: OpSet, Path: p.History(), Version: past.Stat.Version, Data: EncodeHistory(&next)})
	}
	return ops
}

// Force notes in the entry of a term that a person has declared it to be over, and reports whether there is one.
func (h *History) Force(term int64, by Forced) bool {
	i := slices.IndexFunc(h.Terms, func(t PastTerm) bool { return t.Term == term })
	if i < 0 {
		return false
	}
	h.Terms = slices.Clone(h.Terms)
	h.Terms[i].Forced = &by
	return true
}
