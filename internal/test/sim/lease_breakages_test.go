package sim

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
	"zkelectd/internal/watchdog"
)

// The breakages of the lease znodes, the deputies and TAKE.
//
// Some rules have none, because others stand in for them. A lease znode of version 0 or of another owner, or one whose path is used again,
// could be watched as well: a renewal advances it in any case, or is refused. READY could extend a lease, since it changes the fence. And a
// deputy could keep a sighting over the end of its session: the transaction ids tell whether what it sees is still the same.
const (
	plainRenew     = "RENEW that leaves the lease znode as it is"
	restUnseen     = "a RENEW of the rest, after a refusal, that leaves the lease znode as it is"
	readBackRenews = "a lease that is renewed by reading the lease znode back"
	goesOn         = "a session that goes on after its lease znode was written by somebody else"
	unnamed        = "hosts that do not advance the lease znode, nor name it in the fence"
	guessesZnode   = "a lease znode that is watched although the fence does not name it"
	sightsEvent    = "a sighting that begins with the event"
	keepsSighting  = "a sighting that outlasts a renewal"
	keepsFence     = "a sighting that outlasts a change of the fence"
	ownWait        = "TAKE after the deputy's own lease wait"
	takesSoon      = "TAKE that does not wait for earlier holders"
	forgetsEarlier = "TAKE that forgets what earlier holders have left to wait for"
	blindDeputy    = "a deputy that does not read again before TAKE"
	blindTake      = "TAKE without the check of the lease znode's version"
	blindSilence   = "SILENCE without the check of the lease znode's version"
	anyFenceTaken  = "TAKE without the check of the fence's version"
	fenceNotTaken  = "TAKE that leaves the fence as it is"
	staysSilent    = "a member that does not register again although it counts as silent"
	takesBound     = "TAKE without a right of succession"
	outageSilences = "an outage of the servers that counts as the leader's silence"
)

// focusOnLeases makes little go wrong in most of the worlds, besides what is about leases.
func (w *world) focusOnLeases() {
	rng, t := rand.New(rand.NewPCG(w.seed, silenceSeed+1)), &w.traits
	if rng.IntN(4) == 0 {
		return
	}
	t.total, t.stuck, t.refusesRelease, t.failing, t.dying, t.hooks, t.handoverFault, t.deletedDecision = 0, false, false, 0, 0, 0, 0, 0
	t.slowKill, t.granting = 1, grantAlike
	w.onlyPriorities()
	if w.broken.name == blindSilence {
		for i := range t.groups {
			for j := range t.groups[i].rules {
				t.groups[i].rules[j].Confirm, t.groups[i].rules[j].ConfirmAfter = "member.id != previous.id", "1ms" // else its lease is over by then
			}
		}
	}
	if rng.IntN(2) == 0 { // the group mostly reacts at once
		t.turn, t.slow, t.lateWatch, t.lostWatch, t.losing = 0, 0.2*float64(rng.IntN(2)), 0, 0, false
		for i := range t.latency {
			t.latency[i] = time.Millisecond
		}
	}
	if rng.IntN(3) == 0 {
		t.uniform = false
		for i := range t.timeouts {
			t.timeouts[i] = []time.Duration{4 * time.Second, 10 * time.Second}[rng.IntN(2)]
		}
	}
}

// unnamed reports whether a host has a lease znode that its sessions do not use.
func (b breakage) unnamed(h *host) bool {
	return (b.name == unnamed || b.name == guessesZnode) && h.number%2 == 0
}

// guesses names the lease znode in a fence that does not.
func (b breakage) guesses(f *cluster.Fence) {
	if b.name == guessesZnode && f.LeaseZnode == "" && f.Session != 0 {
		f.LeaseZnode = cluster.LeaseZnode(leaseBase, f.Node, f.Session)
	}
}

// deputizes changes what a deputy goes by.
func (b breakage) deputizes(in watchdog.DeputyInput) watchdog.DeputyInput {
	s := *in.Snapshot
	f := &s.Fence.Record
	switch b.name {
	case guessesZnode:
		b.guesses(f)
	case keepsFence:
		s.Fence.Stat.Created, s.Fence.Stat.Modified = 1, 1
	case ownWait:
		f.LeaseWait, f.Owed, f.Earlier = 0, 0, nil
	case takesSoon, forgetsEarlier:
		f.Owed, f.Earlier = 0, nil
	case takesBound:
		in.MaySucceed = func() bool { return true }
	case outageSilences:
		in.Reconnects = 0
	default:
		return in
	}
	in.Snapshot = &s
	return in
}

// sights returns what a deputy takes for the last answer about a lease znode.
func (b breakage) sights(w *watchedLease) cluster.LeaseZnodeSeen {
	seen := w.seen
	switch b.name {
	case sightsEvent:
		seen.At = w.sent
	case keepsSighting:
		seen.At = w.first
	}
	return seen
}

// rereads reports whether a deputy reads again before TAKE.
func (b breakage) rereads() bool {
	return b.name != blindDeputy && b.name != blindTake && b.name != blindSilence
}

// takes returns the operations to send for TAKE.
func (b breakage) takes(l *loop, ops []cluster.Op) []cluster.Op {
	for i := range ops {
		op := &ops[i]
		switch fence := op.Path == l.m.g.known.leader; {
		case fence && b.name == anyFenceTaken:
			op.Version = cluster.AnyVersion
		case fence && b.name == fenceNotTaken:
			op.Kind, op.Data = cluster.OpCheck, nil
		case fence && b.name == forgetsEarlier:
			f := cluster.ReadFence(op.Path, op.Data, cluster.Stat{Version: 1}, true).Record
			f.Owed, f.Earlier = 0, nil
			op.Data = cluster.Encode(&f)
		}
	}
	if b.name == blindTake {
		return slices.DeleteFunc(ops, func(op cluster.Op) bool { return isLease(op.Path) })
	}
	return b.relax(l.m.g, ops)
}

// silences returns the operations to send for SILENCE.
func (b breakage) silences(l *loop, ops []cluster.Op) []cluster.Op {
	if b.name == blindSilence {
		return slices.DeleteFunc(ops, func(op cluster.Op) bool { return isLease(op.Path) })
	}
	return b.takes(l, ops)
}

// renewing is what a broken renewer remembers.
type renewing struct {
	posted   map[int]transition.Renew // by the instance's number
	checking bool                     // the last batch was one that renews nothing
	left     bool                     // it leaves the lease znode alone
	skipped  int32                    // how often the lease znode was left as it is although the merger takes it to be advanced
}

// batches returns the operations of a batch, and what to send after a refusal; nil if that is nothing.
func (b breakage) batches(r *renewer, ops []cluster.Op) (sent []cluster.Op, refused func(error) []cluster.Op) {
	last, nothing := len(ops)-1, func(error) []cluster.Op { return nil }
	if r.s.leases.znode == "" {
		return ops, nothing
	}
	checking := ops[last].Path != r.s.leases.znode
	before := r.broken.checking
	r.broken.checking = checking
	switch {
	case checking:
	case b.name == plainRenew, b.name == restUnseen && before:
		r.broken.skipped++
		return ops[:last], nothing
	case b.name == restUnseen:
		ops = slices.Clone(ops)
		ops[last].Version -= r.broken.skipped
	case r.broken.left:
		return ops[:last], nothing
	case b.name == goesOn:
		return ops, func(err error) []cluster.Op {
			var refusal *cluster.TxError
			if !errors.As(err, &refusal) || refusal.Index != last {
				return nil
			}
			r.broken.left = true
			return ops[:last]
		}
	}
	return ops, nothing
}

// readBack renews the leases by what was read back of the lease znode, and when.
func (b breakage) readBack(r *renewer, sent time.Duration) {
	if b.name != readBackRenews {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(r.broken.posted)) {
		posted := r.broken.posted[id]
		r.done[id](transition.RenewDone{Term: posted.Term, Held: posted.Held, Sent: sent})
	}
}
