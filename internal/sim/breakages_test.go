package sim

import (
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/transition"
)

// breakage takes one check away from the core, from outside: the product has no switches. The zero value takes none.
type breakage struct {
	name string
	// by names the promises whose checks may notice.
	by string
	// timed makes a world in which the check matters: every host trusts the end of a session to come after the lease.
	timed bool
	// granting, if set, is what the servers grant in it.
	granting granting
}

// The breakages. Each must be caught, or the simulation proves nothing.
const (
	noOwnIncarnation = "no check of the own incarnation"
	noElectedVersion = "no check of elected's version"
	noFenceVersion   = "no check of the fence's version"
	noLeaseWait      = "no lease wait"
	releasedUnclean  = "RELEASED where UNCLEAN is due"
	releaseEarly     = "release before the child is dead"
	weakRenew        = "RENEW that checks only the session"
	forgetful        = "exclusions kept in memory only"
	blaming          = "the candidate blamed for its predecessor's slow stop"
	noAmnesty        = "no amnesty"
	noRevoke         = "no REVOKE"
	undamped         = "policy's moves not counted"
	fickle           = "new circumstances for each move by policy"
	jumpy            = "no hysteresis"
	pauseSoft        = "a hard pause taken for a soft one"
	pauseNot         = "no pause"
	noCordon         = "no cordons"
	noMove           = "no operator's move"
	hasty            = "no failback setting"
	noElection       = "no election on request"
	mixing           = "snapshots of more than one moment"
	noHolder         = "holders always taken for gone"
	shortKill        = "K of 5 % of T"
	absentClean      = "a fence that is not there taken for a clean one"
	keptLease        = "a lease kept although T has shrunk"
	gullible         = "terms accepted that no group reaches"
	leaveEarly       = "LEAVE before the work is dead"
	trusting         = "the end of a session taken for the end of the work"
	longestLease     = "a lease computed from the longest T that is granted"
)

// sees is what the machine is shown of the cluster.
func (b breakage) sees(l *loop, s cluster.Snapshot) cluster.Snapshot {
	if b.name == noLeaseWait && s.Fence.Exists {
		s.Fence.Err = nil
		s.Fence.Record.Owed = 0
		if !s.Current.Exists {
			s.Fence.Record.State = cluster.FenceReleased
		}
	}
	if b.name == noHolder {
		s.FenceAlive = false
	}
	return s
}

// sends is what becomes of the machine's transactions.
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

// relax takes version checks away.
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

// judges is what the elector is shown of the cluster.
func (b breakage) judges(l *loop, s cluster.Snapshot) cluster.Snapshot {
	if b.name == forgetful {
		s.Elected.Record.Exclusions = l.elector.kept
	}
	requests := s.Control.Record.Clone()
	switch b.name {
	case pauseSoft:
		if requests.Pause != nil {
			requests.Pause.Hard = false
		}
	case pauseNot:
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

// ranks is what the policy is taken for.
func (b breakage) ranks(r cluster.Rules) cluster.Rules {
	switch b.name {
	case jumpy:
		r.Hysteresis = 0
	case hasty:
		r.Failback = ""
	}
	return r
}

// watches is what the watchdog is shown.
func (b breakage) watches(l *loop, s cluster.Snapshot) cluster.Snapshot {
	if b.name == blaming && s.Current.Exists && !s.Acquired() {
		s.Current = cluster.Slot[cluster.Current]{}
	}
	return s
}

// decides is what becomes of the elector's decision.
func (b breakage) decides(l *loop, d *elector.Decision, s cluster.Snapshot) {
	switch {
	case d.Elect != nil && b.name == noAmnesty:
		for _, x := range s.Elected.Record.Exclusions {
			for _, y := range d.Elect.Exclusions {
				if x.Node == y.Node && !x.Served && y.Served && !l.served(x) {
					d.Elect = nil
					return
				}
			}
		}
		for _, y := range d.Elect.Exclusions {
			if y.Served && y.Term == s.Elected.Record.Term {
				d.Elect = nil
				return
			}
		}
	case d.Revoke != nil && b.name == noRevoke:
		d.Revoke = nil
	}
}

// served tells that an exclusion has run its time, which is no amnesty.
func (l *loop) served(x cluster.Exclusion) bool { return l.h.w.now >= l.h.w.check.until[x.Node] }

// elects is what becomes of ELECT.
func (b breakage) elects(l *loop, ops []cluster.Op, rec *cluster.Elected) []cluster.Op {
	l.h.w.check.decides(rec)
	switch b.name {
	case noOwnIncarnation:
		ops = l.h.w.blind(ops)
	case undamped:
		bare := *rec
		bare.Preemptions = nil
		ops[len(ops)-1].Data = cluster.Encode(&bare)
	case fickle:
		if rec.Cause == cluster.CausePreempt {
			anew := *rec
			anew.Circumstances = cluster.Circumstances{Cause: rec.Cause, Node: rec.PreviousNode, Site: rec.PreviousSite}
			ops[len(ops)-1].Data = cluster.Encode(&anew)
		}
	case absentClean:
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
	case forgetful:
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

// blind makes the first check, that of the own incarnation, always true.
func (w *world) blind(ops []cluster.Op) []cluster.Op {
	ops[0].Path = w.paths.Root
	return ops
}
