package sim

import (
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/transition"
)

// breakage removes one check from the core, from outside: the product has no switches for that. The zero value removes none.
type breakage struct {
	name string
	// by names the promises whose checks may detect it.
	by string
	// timed makes a world in which the check matters: every host trusts that a session ends after its lease.
	timed bool
	// granting, if set, is what the servers grant in that world.
	granting granting
}

// The breakages. Each must be detected, or the simulation proves nothing.
const (
	noOwnIncarnation = "no check of the own incarnation"
	noElectedVersion = "no check of elected's version"
	noFenceVersion   = "no check of the fence's version"
	noLeaseWait      = "no lease wait"
	releasedUnclean  = "RELEASED where UNCLEAN is due"
	releaseEarly     = "release before the child is dead"
	weakRenew        = "RENEW that checks only the session"
	inMemory         = "exclusions kept in memory only"
	blameCandidate   = "the candidate blamed for its predecessor's slow stop"
	noAmnesty        = "no amnesty"
	noRevoke         = "no REVOKE"
	noDamping        = "preemptions not counted"
	newCircumstances = "new circumstances for each preemption"
	noHysteresis     = "no hysteresis"
	softPause        = "a hard pause treated as a soft one"
	noPause          = "no pause"
	noCordon         = "no cordons"
	noMove           = "no move by operators"
	noFailback       = "no failback setting"
	noElection       = "no election on request"
	mixedMoments     = "snapshots of more than one moment"
	holderGone       = "holders always taken to be gone"
	shortKill        = "K of 5 % of T"
	absentFenceClean = "an absent fence treated as clean"
	keepLease        = "a lease kept although T has shrunk"
	anyTerm          = "terms accepted that no group reaches"
	leaveEarly       = "LEAVE before the work is dead"
	trustSessionEnd  = "the end of a session treated as the end of the work"
	longestLease     = "a lease computed from the longest T that is granted"
)

// sees returns the snapshot for the machine.
func (b breakage) sees(l *loop, s cluster.Snapshot) cluster.Snapshot {
	if b.name == noLeaseWait && s.Fence.Exists {
		s.Fence.Err = nil
		s.Fence.Record.Owed = 0
		if !s.Current.Exists {
			s.Fence.Record.State = cluster.FenceReleased
		}
	}
	if b.name == holderGone {
		s.FenceAlive = false
	}
	return s
}

// sends returns the operations to send for the machine's transaction.
func (b breakage) sends(l *loop, a transition.Send) []cluster.Op {
	ops := append([]cluster.Op(nil), a.Ops...)
	switch {
	case b.name == noOwnIncarnation:
		return l.h.w.blind(ops)
	case b.name == weakRenew && a.Tx == transition.TxRenew:
		return ops[:1]
	case b.name == releasedUnclean && a.Tx == transition.TxRelease:
		for i := range ops {
			ops[i].Data = []byte(strings.Replace(string(ops[i].Data), `"UNCLEAN"`, `"RELEASED"`, 1))
		}
	}
	return b.relax(l.h.w, ops)
}

// relax removes version checks.
func (b breakage) relax(w *world, ops []cluster.Op) []cluster.Op {
	for i := range ops {
		if (b.name == noElectedVersion && ops[i].Path == w.known.elected) || (b.name == noFenceVersion && ops[i].Path == w.known.leader) {
			if ops[i].Kind != cluster.OpCreate {
				ops[i].Version = cluster.AnyVersion
			}
		}
	}
	return ops
}

// judges returns the snapshot for the elector.
func (b breakage) judges(l *loop, s cluster.Snapshot) cluster.Snapshot {
	if b.name == inMemory {
		s.Elected.Record.Exclusions = l.elector.kept
	}
	requests := s.Control.Record.Clone()
	switch b.name {
	case softPause:
		if requests.Pause != nil {
			requests.Pause.Hard = false
		}
	case noPause:
		requests.Pause = nil
	case noCordon:
		requests.Cordons = nil
	case noMove:
		requests.Move = nil
	case noElection:
		requests.Reelect = nil
	default:
		return s
	}
	s.Control.Record = requests
	return s
}

// ranks returns the rules for the policy.
func (b breakage) ranks(r cluster.Rules) cluster.Rules {
	switch b.name {
	case noHysteresis:
		r.Hysteresis = 0
	case noFailback:
		r.Failback = ""
	}
	return r
}

// watches returns the snapshot for the watchdog.
func (b breakage) watches(l *loop, s cluster.Snapshot) cluster.Snapshot {
	if b.name == blameCandidate && s.Current.Exists && !s.Acquired() {
		s.Current = cluster.Slot[cluster.Current]{}
	}
	return s
}

// decides changes the elector's decision.
func (b breakage) decides(l *loop, d *elector.Decision, s cluster.Snapshot) {
	switch {
	case d.Elect != nil && b.name == noAmnesty:
		for _, x := range s.Elected.Record.Exclusions {
			for _, y := range d.Elect.Exclusions {
				if x.Node == y.Node && !x.Expired && y.Expired && !l.expired(x) {
					d.Elect = nil
					return
				}
			}
		}
		for _, y := range d.Elect.Exclusions {
			if y.Expired && y.Term == s.Elected.Record.Term {
				d.Elect = nil
				return
			}
		}
	case d.Revoke != nil && b.name == noRevoke:
		d.Revoke = nil
	}
}

// expired reports whether an exclusion has ended, which is no amnesty.
func (l *loop) expired(x cluster.Exclusion) bool { return l.h.w.now >= l.h.w.check.until[x.Node] }

// elects returns the operations to send for ELECT.
func (b breakage) elects(l *loop, ops []cluster.Op, rec *cluster.Elected) []cluster.Op {
	l.h.w.check.decides(rec)
	switch b.name {
	case noOwnIncarnation:
		ops = l.h.w.blind(ops)
	case noDamping:
		bare := *rec
		bare.Preemptions = nil
		ops[len(ops)-1].Data = cluster.Encode(&bare)
	case newCircumstances:
		if rec.Cause == cluster.CausePreempt {
			anew := *rec
			anew.Circumstances = cluster.Circumstances{Cause: rec.Cause, Node: rec.PreviousNode, Site: rec.PreviousSite}
			ops[len(ops)-1].Data = cluster.Encode(&anew)
		}
	case absentFenceClean:
		for i := range ops {
			if ops[i].Path == l.h.w.known.leader && !l.snap.Fence.Readable() {
				ops[i].Data = []byte(strings.Replace(string(ops[i].Data), `"REVOKED"`, `"RELEASED"`, 1))
			}
		}
	case shortKill:
		for i := range ops {
			if ops[i].Path == l.h.w.known.leader && ops[i].Data != nil {
				f := cluster.ReadFence(ops[i].Path, ops[i].Data, cluster.Stat{Version: 1}, true).Record
				f.LeaseWait = cluster.Duration(l.h.budget.LeaseWait)
				ops[i].Data = cluster.Encode(&f)
			}
		}
	case inMemory:
		l.elector.kept = rec.Exclusions
		bare := *rec
		bare.Exclusions = nil
		ops[len(ops)-1].Data = cluster.Encode(&bare)
	}
	return b.relax(l.h.w, ops)
}

func (b breakage) revokes(w *world, ops []cluster.Op) []cluster.Op {
	if b.name == noOwnIncarnation {
		ops = w.blind(ops)
	}
	return b.relax(w, ops)
}

// blind makes the first check, that of the sender's incarnation, always succeed.
func (w *world) blind(ops []cluster.Op) []cluster.Op {
	ops[0].Path = w.paths.Root
	return ops
}
