package sim

import (
	"errors"
	"slices"
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
	// timed makes a world in which the check matters: every host takes the end of a session for the end of the lease.
	timed bool
	// granting, if set, is what the servers grant in that world.
	granting granting
	// control is a breakage that remains when the check is not removed; alone it must be harmless.
	control string
	// merged is set if the check matters only where hosts have several groups, or if schedules with one notice it too seldom.
	merged bool
	// slotted is set if the check matters only in a group with slots. It makes a world in which little but the number of slots changes.
	slotted bool
	// rare is set if schedules with several groups notice it too seldom for every run: only -sim.hunt searches them.
	rare bool
	// hanging makes a world in which work hangs in the kernel.
	hanging bool
	// leases is set if it is one of the lease znodes, the deputies or TAKE.
	leases bool
	// heirs is set if it is one of HEIR.
	heirs bool
	// lending makes a world in which applications have leases.
	lending bool
	// leaving makes a world in which little but leaders that leave goes wrong.
	leaving bool
	// restored makes a world in which the sequence numbers of incarnations come again.
	restored bool
	// fencing is set if it is one of fencing. It makes a world in which hosts fence each other.
	fencing bool
	// calmOutage makes a world in which nothing goes wrong by itself.
	calmOutage bool
	// promoted is set if it is one of promotable work. Its world has that, and much goes wrong with orders.
	promoted bool
	// calling is set if it is one of roll calls. In its world all groups call the roll, and rank by the answers.
	calling bool
	// passive is set if some daemons of its world have turned failsafe mode off.
	passive bool
	// one, three and slots are the seeds of schedules with one group, with three groups per host, and with slots, that notice it: that
	// saves searching.
	one, three, slots uint64
}

var breakages = []breakage{
	{name: noOwnIncarnation, by: "S1 S2", one: 8, three: 176},
	{name: noElectedVersion, by: "S1 S2", one: 9, three: 21},
	{name: noFenceVersion, by: "S1 S2", one: 8, three: 38},
	{name: noLeaseWait, by: "S1", one: 22, three: 5},
	{name: releasedUnclean, by: "S1", one: 373, three: 14},
	{name: releaseEarly, by: "S1", one: 8, three: 0},
	{name: weakRenew, by: "S1", rare: true, one: 2006, three: 730},
	{name: inMemory, by: "L2", one: 361, three: 45},
	{name: blameCandidate, by: "L2", one: 24, three: 22},
	{name: noAmnesty, by: "L1 L3", one: 301, three: 24},
	{name: noRevoke, by: "L1 L2", one: 24, three: 210},
	{name: noDamping, by: "damping", one: 280, three: 1315},
	{name: newCircumstances, by: "S3 L4", one: 8, three: 0},
	{name: noHysteresis, by: "S3", one: 1338, three: 399},
	{name: softPause, by: "pause", one: 54, three: 139},
	{name: noPause, by: "pause", one: 54, three: 139},
	{name: noCordon, by: "L4", one: 45, three: 3},
	{name: noMove, by: "L4", one: 165, three: 87},
	{name: noFailback, by: "failback", one: 24, three: 2},
	{name: noElection, by: "L4", one: 11, three: 29},
	{name: mixedMoments, by: "S1 S2", one: 1016, three: 2382},
	{name: shortKill, by: "S1", one: 132, three: 373},
	{name: absentFenceClean, by: "S1", one: 20, three: 5},
	{name: keepLease, by: "S1", timed: true, granting: grantShorter, one: 521, three: 357},
	{name: longestLease, by: "S1", timed: true, granting: grantLonger, one: 2260, three: 303},
	{name: anyTerm, by: "S2", one: 8, three: 1},
	{name: trustSessionEnd, by: "S1", one: 166, three: 5},
	{name: finalEarly, by: "S1", one: 38, three: 207},
	{name: renewRefused, by: "S1", one: 344, three: 373},
	{name: leaveForeignCurrent, by: "S2", one: 8, three: 0},
	{name: leaveLateCurrent, by: "L1", one: 211, three: 1000},
	{name: deleteAlone, by: "S1", one: 44, three: 11},
	{name: newBeforeDead, by: "S1", one: 333, three: 38},
	{name: sameInstance, by: "S1 S2", restored: true, three: 1},
	{name: anyCurrent, by: "L1", restored: true, one: 197, three: 2},
	{name: abandonedActs, by: "S1", one: 344, three: 27},
	{name: extendAll, by: "S1", rare: true, merged: true, three: 3848},
	{name: neverOverdue, by: "L1 L2", hanging: true, one: 47, three: 2},
	{name: claimsDeath, by: "S1", hanging: true, one: 24, three: 5},
	{name: blindControl, by: "request", one: 209, three: 24},
	{name: leaderIsHeir, by: "heir", heirs: true, three: 1},
	{name: heirInElected, by: "S2", heirs: true, three: 1},
	{name: uncheckedHeir, by: "heir", heirs: true, one: 8, three: 2},
	{name: noHeirRefresh, by: "heir", heirs: true, one: 85, three: 2},
	{name: keepFences, by: "S1", slotted: true, slots: 47},
	{name: noGate, by: "per_node", slotted: true, slots: 49},
	{name: forgottenFence, by: "S1", slotted: true, slots: 5},
	{name: forgottenCurrent, by: "L1", slotted: true, slots: 5},
	{name: leavingEligible, by: "leaving", leaving: true, one: 8, three: 5},
	{name: ownApplications, by: "S1", lending: true},
	{name: forgetsApplications, by: "S1", lending: true},
	{name: forgetsAbandoned, by: "S1", lending: true, one: 333, three: 27},
	{name: endlessHandover, by: "L1", leaving: true, one: 5, three: 2},
	{name: currentTaken, by: "S1 S2", leaving: true},
	{name: forgetTerms, by: "token", one: 246, three: 155},
	{name: workBeforeReply, by: "S1"},
	{name: failedFencing, by: "S1", fencing: true, rare: true, one: 685},
	{name: fencedForAnother, by: "S1", fencing: true, rare: true, one: 33},
	{name: fencesOn, by: "fencing", fencing: true, one: 112, three: 5},
	{name: fencedPreempts, by: "fencing", fencing: true, one: 45, three: 5},
	{name: plainRenew, by: "S1", leases: true, one: 1, three: 0},
	{name: restUnseen, by: "S1", leases: true, merged: true, three: 1183},
	{name: readBackRenews, by: "S1", leases: true, one: 206, three: 31},
	{name: goesOn, by: "S1", leases: true, one: 36, three: 45},
	{name: guessesZnode, by: "S1", leases: true, one: 8, three: 0, control: unnamed},
	{name: sightsEvent, by: "S1", leases: true, one: 196, three: 79},
	{name: keepsSighting, by: "S1", leases: true, one: 1, three: 0},
	{name: keepsFence, by: "S1", leases: true, one: 3414, three: 312},
	{name: ownWait, by: "S1", leases: true, one: 6, three: 6},
	{name: forgetsEarlier, by: "S1", leases: true, one: 4397, three: 2104, control: takesSoon},
	{name: blindTake, by: "S1", leases: true, one: 10, three: 6, control: blindDeputy},
	{name: blindSilence, by: "S1", leases: true, one: 388, three: 66},
	{name: anyFenceTaken, by: "S1 S2", leases: true, one: 292, three: 244},
	{name: fenceNotTaken, by: "S2", leases: true, one: 2, three: 1},
	{name: staysSilent, by: "L1 L4", leases: true, one: 75, three: 34},
	{name: keepsForever, by: "S1", promoted: true, one: 232, three: 5},
	{name: promotesUnconfirmed, by: "S1", promoted: true, merged: true, three: 101},
	{name: failedPromotion, by: "S1", promoted: true, one: 113, three: 1},
	{name: latePromotion, by: "S1", promoted: true, one: 562, three: 45},
	{name: notYetPromoted, by: "S1", promoted: true, one: 5, three: 5},
	{name: failedDemotion, by: "S1", promoted: true, one: 45, three: 5},
	{name: lateDemotion, by: "S1", promoted: true, one: 395, three: 132},
	{name: leaseDropped, by: "S1", promoted: true, rare: true, one: 1103},
	{name: demotedEarly, by: "S1", promoted: true, one: 45, three: 5},
	{name: outlivesDaemon, by: "S1", promoted: true, one: 8, three: 1},
	{name: outlivesInstance, by: "S1", promoted: true, one: 69, three: 5},
	{name: outlivesSession, by: "S1", promoted: true, one: 46, three: 30},
	{name: promotesCold, by: "warm", promoted: true, one: 1, three: 5},
	{name: staysCold, by: "warm", promoted: true, one: 1, three: 5},
	{name: electsCold, by: "warm", promoted: true, one: 1, three: 1},
	{name: anyCallCounts, by: "roll call", calling: true, one: 39, three: 38},
	{name: earlyCallCounts, by: "roll call", calling: true, one: 38, three: 5},
	{name: callsNoRoll, by: "roll call", calling: true, one: 1, three: 5},
	{name: waitsForNobody, by: "roll call", calling: true, one: 1, three: 1},
	{name: answersPublished, by: "roll call", calling: true, one: 5, three: 1},
	{name: repeatsAnswer, by: "roll call", calling: true, one: 26, three: 5},
}

// The breakages. Each must be detected, or the simulation proves nothing.
const (
	leaderIsHeir        = "the leader as its own heir"
	heirInElected       = "a refresh of the heir that writes elected"
	uncheckedHeir       = "HEIR without its checks"
	noHeirRefresh       = "an heir that is published by ELECT only"
	keepFences          = "SETSLOTS that leaves the fences as they are"
	noGate              = "a takeover while the host works in too many other slots"
	forgottenFence      = "LEAVE that forgets the fence of a slot"
	forgottenCurrent    = "LEAVE that forgets the current of a slot"
	noOwnIncarnation    = "no check of the own incarnation"
	noElectedVersion    = "no check of elected's version"
	noFenceVersion      = "no check of the fence's version"
	noLeaseWait         = "no lease wait"
	releasedUnclean     = "RELEASED where UNCLEAN is due"
	releaseEarly        = "release before the child is dead"
	weakRenew           = "RENEW that checks only the session"
	inMemory            = "exclusions kept in memory only"
	blameCandidate      = "the candidate blamed for its predecessor's slow stop"
	noAmnesty           = "no amnesty"
	noRevoke            = "no REVOKE"
	noDamping           = "preemptions not counted"
	newCircumstances    = "new circumstances for each preemption"
	noHysteresis        = "no hysteresis"
	softPause           = "a hard pause treated as a soft one"
	noPause             = "no pause"
	noCordon            = "no cordons"
	noMove              = "no move by operators"
	noFailback          = "no failback setting"
	noElection          = "no election on request"
	mixedMoments        = "snapshots of more than one moment"
	shortKill           = "K of 5 % of T"
	absentFenceClean    = "an absent fence treated as clean"
	keepLease           = "a lease kept although T has shrunk"
	anyTerm             = "terms accepted that no group reaches"
	finalEarly          = "FINAL before the work is dead"
	trustSessionEnd     = "the end of a session treated as the end of the work"
	renewRefused        = "a refused RENEW, or one of unknown outcome, treated as successful"
	longestLease        = "a lease computed from the longest T that is granted"
	leaveForeignCurrent = "LEAVE that deletes current whoever owns it"
	leaveLateCurrent    = "LEAVE that does not delete a late current"
	deleteAlone         = "LEAVE that does not set the fence"
	sameInstance        = "instances without an id of their own"
	anyCurrent          = "a current that counts whoever owns it"
	newBeforeDead       = "a new instance before the work of the last one is dead"
	abandonedActs       = "an abandoned instance that may still act"
	neverOverdue        = "an instance that stays while its work hangs"
	claimsDeath         = "LEAVE that releases although the work may run"
	blindControl        = "CONTROL without the check of its version"
	forgetTerms         = "a member that forgets its terms with its session"
	workBeforeReply     = "work that starts before ACQUIRE is answered"
	ownApplications     = "no release knows of application leases"
	forgetsAbandoned    = "LEAVE of an abandoned instance knows of no application leases"
	forgetsApplications = "a release does not wait for application leases"
	leavingEligible     = "a node that is about to end still eligible"
	endlessHandover     = "a leader that waits for its successor without a limit"
	currentTaken        = "ACQUIRE that takes current from its holder"
	extendAll           = "a new lease for one group that extends the leases of all"
)

// The breakages of fencing.
const (
	failedFencing    = "a lease wait that ends although fencing has failed"
	fencedForAnother = "a lease wait owed for another holder that fencing ends"
	fencesOn         = "fencing that goes on after its term"
	fencedPreempts   = "a fenced node that preempts at once"
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
	if b.name == fencedForAnother {
		blamesLast(&s.Fence.Record)
	}
	if b.name == staysSilent {
		s.Elected.Record.Silent = nil
	}
	if b.name == trustSessionEnd || b.timed {
		l.m.g.check.trusts(&s.Fence)
	}
	if b.name == currentTaken && s.Elected.Record.Incarnation == l.self.Name && !s.HoldsCurrent() {
		s.Current = cluster.Stored[cluster.Current]{}
	}
	return b.unpromised(s)
}

// sends returns the operations to send for the machine's transaction.
func (b breakage) sends(l *loop, a transition.Send) []cluster.Op {
	ops := append([]cluster.Op(nil), a.Ops...)
	switch {
	case a.Tx == transition.TxVeto:
		return b.vetoed(ops)
	case b.name == noOwnIncarnation:
		return l.m.g.blind(ops)
	case b.name == currentTaken && a.Tx == transition.TxAcquire && l.m.g.check.readCurrent().Exists:
		for i := range ops {
			if ops[i].Kind == cluster.OpCreate && ops[i].Path == l.m.g.known.current {
				return slices.Insert(ops, i, cluster.Op{Kind: cluster.OpDelete, Path: ops[i].Path, Version: cluster.AnyVersion})
			}
		}
	case b.name == releasedUnclean && a.Tx == transition.TxRelease:
		for i := range ops {
			ops[i].Data = []byte(strings.Replace(string(ops[i].Data), `"UNCLEAN"`, `"RELEASED"`, 1))
		}
	}
	return b.relax(l.m.g, ops)
}

// startsEarly starts work with ACQUIRE, before its member has a lease, and kills it if it is not to be started. The guard, which
// refuses that, is broken as well.
func (b breakage) startsEarly(l *loop) {
	if b.name != workBeforeReply {
		return
	}
	acquiring := l.machine.Phase() == transition.Acquiring
	switch {
	case !acquiring && l.machine.Term() == 0 && l.m.work != nil && !l.m.work.hook && !l.machine.Running():
		l.m.kill()
	case acquiring && l.m.work == nil && !l.m.unguarded && !l.in.refused():
		l.startWork(l.snap.Elected.Record.Term, false)
	}
}

// renews returns the operations of the machine's RENEW.
func (b breakage) renews(l *loop, a transition.Renew) []cluster.Op {
	ops := append([]cluster.Op(nil), a.Ops...)
	switch b.name {
	case noOwnIncarnation:
		return l.m.g.blind(ops)
	case weakRenew:
		return ops[:1]
	}
	return b.relax(l.m.g, ops)
}

// remembers returns the last term that a new instance knows.
func (b breakage) remembers(term int64) int64 {
	if b.name == forgetTerms {
		return 0
	}
	return term
}

// renewed returns the outcome of a RENEW for the machine.
func (b breakage) renewed(l *loop, ev transition.RenewDone) transition.RenewDone {
	if b.name == renewRefused && !errors.Is(ev.Err, cluster.ErrSessionEnded) {
		ev.Err = nil
	}
	return ev
}

// extends extends the leases of the other groups of a host with that of one.
func (b breakage) extends(m *member) {
	for _, other := range m.host.members {
		if b.name == extendAll && other.lease > 0 && other.lease < m.lease {
			other.extend(m.lease)
		}
	}
}

// leaves changes what LEAVE is made from.
func (b breakage) leaves(d cluster.Departure) cluster.Departure {
	for i := range d.Slots {
		b.leavesOne(d, &d.Slots[i])
	}
	return d
}

// leavesOne changes what LEAVE is made from, in one leadership.
func (b breakage) leavesOne(d cluster.Departure, x *cluster.DepartingSlot) {
	switch {
	case b.name == forgottenFence && x.Slot != "0":
		x.Fence = cluster.Stored[cluster.Fence]{}
	case b.name == forgottenCurrent && x.Slot != "0":
		x.Current = cluster.Stored[cluster.Current]{}
	case b.name == leaveForeignCurrent:
		x.Current.Stat.Owner = d.Session
	case b.name == leaveLateCurrent && !slices.Contains(append(d.Incarnations, d.Self), x.Fence.Record.Incarnation):
		x.Current = cluster.Stored[cluster.Current]{}
	}
}

// departs returns the operations to send for LEAVE.
func (b breakage) departs(r *resource, ops []cluster.Op) []cluster.Op {
	for i := range ops {
		if b.name == deleteAlone && r.isFence(ops[i].Path) {
			ops[i].Kind, ops[i].Data = cluster.OpCheck, nil
		}
	}
	for _, g := range r.groups {
		ops = b.relax(g, ops)
	}
	return ops
}

// identifies returns the number that tells an instance of a host from others.
func (b breakage) identifies(number uint64) uint64 {
	if b.name == sameInstance {
		return 0
	}
	return number
}

// relax removes version checks.
func (b breakage) relax(g *group, ops []cluster.Op) []cluster.Op {
	for i := range ops {
		if (b.name == noElectedVersion && ops[i].Path == g.known.elected) || (b.name == noFenceVersion && ops[i].Path == g.known.leader) {
			if ops[i].Kind != cluster.OpCreate {
				ops[i].Version = cluster.AnyVersion
			}
		}
	}
	return ops
}

// judges returns the snapshot for the elector.
func (b breakage) judges(l *loop, s cluster.Snapshot) cluster.Snapshot {
	if b.name == anyCurrent && s.ForeignCurrent() {
		s.Current = l.m.g.check.readCurrent()
	}
	if b.name == inMemory {
		s.Elected.Record.Exclusions = l.elector.kept
	}
	if b.name == fencedPreempts {
		s.Fence.Record.Fencing = nil
	}
	b.guesses(&s.Fence.Record)
	if b.name == leavingEligible || b.name == electsCold {
		s.Members = slices.Clone(s.Members)
		for i := range s.Members {
			n := &s.Members[i].Node.Record
			if b.name == leavingEligible {
				n.Leaving = ""
			} else {
				n.Standby = nil
			}
		}
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

// controls returns the operations to send for CONTROL.
func (b breakage) controls(l *loop, ops []cluster.Op) []cluster.Op {
	for i := range ops {
		if b.name == blindControl && ops[i].Kind == cluster.OpSet && ops[i].Path == l.m.g.known.control {
			ops[i].Version = cluster.AnyVersion
		}
	}
	return ops
}

// ranks returns the rules for the policy.
func (b breakage) ranks(r cluster.Rules) cluster.Rules {
	switch b.name {
	case noHysteresis:
		r.Hysteresis = 0
	case noFailback:
		r.Failback = ""
	case callsNoRoll:
		r.RollCall.Enabled = false
	case waitsForNobody:
		r.RollCall.Timeout = 1
	}
	return r
}

// watches returns the snapshot for the watchdog.
func (b breakage) watches(l *loop, s cluster.Snapshot) cluster.Snapshot {
	if b.name == blameCandidate && s.Current.Exists && !s.Acquired() {
		s.Current = cluster.Stored[cluster.Current]{}
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

// sets returns the operations to send for SETSLOTS.
func (b breakage) sets(ops []cluster.Op) []cluster.Op {
	if b.name != keepFences {
		return ops
	}
	return slices.DeleteFunc(ops, func(op cluster.Op) bool { return op.Kind == cluster.OpSet && strings.Contains(op.Path, "/slots/") })
}

// expired reports whether an exclusion has ended, which is no amnesty.
func (l *loop) expired(x cluster.Exclusion) bool { return l.m.w.now >= l.m.g.check.until[x.Node] }

// elects returns the operations to send for ELECT.
func (b breakage) elects(l *loop, ops []cluster.Op, rec *cluster.Elected) []cluster.Op {
	l.m.g.check.decides(rec)
	l.m.g.check.electsStaying(l.snap, rec)
	l.m.g.check.electsWarm(l.snap, rec)
	switch b.name {
	case noOwnIncarnation:
		ops = l.m.g.blind(ops)
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
			if ops[i].Path == l.m.g.known.leader && !l.snap.Fence.Readable() {
				ops[i].Data = []byte(strings.Replace(string(ops[i].Data), `"REVOKED"`, `"RELEASED"`, 1))
			}
		}
	case shortKill:
		for i := range ops {
			if ops[i].Path == l.m.g.known.leader && ops[i].Data != nil {
				f := cluster.ReadFence(ops[i].Path, ops[i].Data, cluster.Stat{Version: 1}, true).Record
				f.LeaseWait = cluster.Duration(l.m.budget.LeaseWait)
				f.Owed = min(f.Owed, f.LeaseWait)
				ops[i].Data = cluster.Encode(&f)
			}
		}
	case inMemory:
		l.elector.kept = rec.Exclusions
		bare := *rec
		bare.Exclusions = nil
		ops[len(ops)-1].Data = cluster.Encode(&bare)
	}
	return b.relax(l.m.g, ops)
}

func (b breakage) revokes(g *group, ops []cluster.Op) []cluster.Op {
	if b.name == noOwnIncarnation {
		ops = g.blind(ops)
	}
	return b.relax(g, b.forgetPromises(g, ops))
}

// blind makes the first check, that of the sender's incarnation, always succeed.
func (g *group) blind(ops []cluster.Op) []cluster.Op {
	ops[0].Path = g.paths.Root
	return ops
}
