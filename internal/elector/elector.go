// Package elector turns a snapshot into a decision: whom to elect, whom to revoke, and why (docs/protocol.md,
// Electing). It is pure. Its rules are level-triggered: every snapshot is judged whole, so nothing hangs on one event.
package elector

import (
	"fmt"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// FailbackMode says whether a better member may take over from a healthy leader.
type FailbackMode string

// The failback modes.
const (
	FailbackImmediate FailbackMode = "immediate"
	FailbackDelayed   FailbackMode = "delayed"
	FailbackManual    FailbackMode = "manual"
)

// Options are the elector's settings.
type Options struct {
	Failback FailbackMode
	// Delay is how long the better member must have been eligible without a break, under delayed failback.
	Delay time.Duration
	// Exclusion is the duration of a first strike, ExclusionMax the most that doubling makes of it.
	Exclusion, ExclusionMax time.Duration
}

// Input is what a decision is made from.
type Input struct {
	Snapshot cluster.Snapshot
	Policy   *policy.Policy
	// Now is the elector's monotonic time, Wall its wall clock, which is only written into records for people.
	Now  time.Duration
	Wall time.Time
	// Overdue, Revoke, Exclusions and Age are the watchdog's findings.
	Overdue, Revoke string
	Exclusions      []cluster.Exclusion
	Age             []time.Duration
}

// Decision is what the elector wants written, at most one of Elect and Revoke at a time.
type Decision struct {
	// Elect is the next decision, nil to leave the present one.
	Elect *cluster.Elected
	// Revoke is the fence that takes current away from its holder, nil for none.
	Revoke *cluster.Fence
	// Ranking is how the members stand, for status.
	Ranking policy.Ranking
	// Note says why nothing was elected where there ought to be a leader; empty otherwise.
	Note string
	// Wake is when the decision may change with no event; 0 if never.
	Wake time.Duration
}

// Elector remembers since when members have been eligible, for delayed failback, and since when an attempt has been over
// that it could not replace yet.
type Elector struct {
	opt       Options
	eligible  map[string]time.Duration
	overTerm  int64
	overSince time.Duration
	highest   int64 // the highest term that was seen or given, should the records be wiped
}

// New returns an elector that has seen nothing.
func New(opt Options) *Elector {
	return &Elector{opt: opt, eligible: make(map[string]time.Duration)}
}

// verdict is what has become of the elected attempt.
type verdict struct {
	over   bool
	cause  cluster.Cause
	reason string
	strike bool
	// barred: the incarnation was stopped on request and must not be chosen again.
	barred bool
}

// Decide judges one snapshot. The snapshot must have been read by the elector (Snapshot.Elector).
func (e *Elector) Decide(in Input) Decision {
	s := &in.Snapshot
	elected, fenced := s.Terms()
	e.highest = max(e.highest, elected, fenced)
	v := attempt(in)
	exclusions := in.Exclusions
	if v.over && elected != e.overTerm {
		e.overTerm, e.overSince = elected, in.Now
	}
	if v.strike {
		rec := s.Elected.Record
		exclusions = cluster.Strike(exclusions, rec.Node, v.reason, rec.Term, e.opt.Exclusion, e.opt.ExclusionMax, in.Wall)
	}
	ranking, exclusions, wake := e.rank(in, v, exclusions)
	d := Decision{Ranking: ranking, Wake: wake}
	e.track(ranking, in.Now)

	best, ok := ranking.Best()
	switch {
	case v.over && !ok:
		d.Note = "no member may lead: " + refusals(ranking)
		return d
	case !v.over && ok:
		v = e.preempt(in, ranking, best, &d)
	}
	if v.over {
		d.Elect = e.elect(in, v, ranking, best, exclusions)
		e.highest = d.Elect.Term
		return d
	}
	if in.Revoke != "" && s.Current.Exists {
		d.Revoke = revoke(in)
	}
	return d
}

// attempt applies the rules (a) to (c): is the elected attempt over, why, and whose fault is it?
func attempt(in Input) verdict {
	s := &in.Snapshot
	rec, fence := s.Elected.Record, s.Fence.Record
	elected, fenced := s.Terms()
	switch {
	case !s.Elected.Exists && fenced == 0:
		return verdict{over: true, cause: cluster.CauseFirst, reason: "first election"}
	case !s.Elected.Exists:
		return verdict{over: true, cause: cluster.CauseRepair, reason: "the decision had been deleted"}
	case s.Elected.Err != nil:
		return verdict{over: true, cause: cluster.CauseRepair, reason: s.Elected.Err.Error()}
	case s.Fence.Err != nil && s.Fence.Stat.Modified > s.Elected.Stat.Modified:
		// The term may have been acquired, and must not be a second time.
		return verdict{over: true, cause: cluster.CauseRepair, reason: s.Fence.Err.Error()}
	case fenced > elected || (fenced == elected && fenced != 0 && fence.Incarnation != rec.Incarnation):
		return verdict{over: true, cause: cluster.CauseRepair, reason: "the decision is older than the last leadership"}
	}
	_, alive := s.Member(rec.Incarnation)
	if s.Acquired() {
		switch fence.State {
		case cluster.FenceReleased, cluster.FenceUnclean:
			if fence.Requested {
				return verdict{over: true, cause: cluster.CauseStopped, reason: rec.Node + " let go: " + fence.Reason, barred: true}
			}
			return verdict{over: true, cause: cluster.CauseGaveUp, reason: rec.Node + " gave up: " + fence.Reason, strike: true}
		case cluster.FenceRevoked:
			return verdict{over: true, cause: cluster.CauseRevoked, reason: rec.Node + " was revoked: " + fence.Reason, strike: true}
		}
	}
	switch {
	case !alive:
		return verdict{over: true, cause: cluster.CauseFailure, reason: rec.Node + " is gone"}
	case s.Acquired() && !s.Current.Exists:
		// Not the session's end, or the incarnation would be gone as well.
		return verdict{over: true, cause: cluster.CauseRepair, reason: "current had been deleted under " + rec.Node}
	case in.Overdue != "":
		return verdict{over: true, cause: cluster.CauseOverdue, reason: rec.Node + " is " + in.Overdue, strike: true}
	}
	return verdict{}
}

// preempt applies rule (d).
func (e *Elector) preempt(in Input, r policy.Ranking, best cluster.Member, d *Decision) verdict {
	rec := in.Snapshot.Elected.Record
	if best.Name == rec.Incarnation {
		return verdict{}
	}
	if ok, why := r.Allows(rec.Incarnation); !ok {
		return verdict{over: true, cause: cluster.CauseIneligible, reason: fmt.Sprintf("%s may no longer lead: %s", rec.Node, why)}
	}
	better := fmt.Sprintf("%s is better than %s: %s", best.ID, rec.Node, r.Difference(best.Name, rec.Incarnation))
	switch e.opt.Failback {
	case FailbackManual:
		return verdict{}
	case FailbackDelayed:
		if due := e.eligible[best.Name] + e.opt.Delay; due > in.Now {
			d.Wake = earlier(d.Wake, due)
			return verdict{}
		}
	}
	return verdict{over: true, cause: cluster.CausePreempt, reason: better}
}

// track keeps since when each member has been eligible without a break.
func (e *Elector) track(r policy.Ranking, now time.Duration) {
	next := make(map[string]time.Duration, len(r.Entries))
	for _, entry := range r.Entries {
		if entry.Refused != "" {
			continue
		}
		since, known := e.eligible[entry.Member.Name]
		if !known {
			since = now
		}
		next[entry.Member.Name] = since
	}
	e.eligible = next
}

// elect writes the decision down.
func (e *Elector) elect(in Input, v verdict, r policy.Ranking, best cluster.Member, exclusions []cluster.Exclusion) *cluster.Elected {
	s := &in.Snapshot
	verdicts, omitted := r.Verdicts()
	next := &cluster.Elected{
		Header:         s.Elected.Record.Header,
		Term:           max(s.NextTerm(in.Wall), e.highest+1),
		Node:           best.ID,
		Site:           best.Node.Record.Site,
		Incarnation:    best.Name,
		Cause:          v.cause,
		Reason:         v.reason,
		By:             s.Self.Name,
		PreviousNode:   s.Elected.Record.Node,
		PreviousSite:   s.Elected.Record.Site,
		Ranking:        verdicts,
		RankingOmitted: omitted,
		Exclusions:     exclusions,
		PolicyRevision: in.Policy.Revision,
		Time:           in.Wall,
	}
	if next.PreviousNode == "" && s.Fence.Readable() {
		next.PreviousNode, next.PreviousSite = s.Fence.Record.Node, s.Fence.Record.Site
	}
	return next
}

// revoke marks the fence: the holder's lease may still run, so its figures stay in it for the successor to wait out.
func revoke(in Input) *cluster.Fence {
	s := &in.Snapshot
	f := s.Fence.Record
	if !s.Fence.Readable() {
		// What is known of the holder is in current. The term must not be forgotten with the fence.
		c := s.Current.Record
		elected, _ := s.Terms()
		f = cluster.Fence{Term: max(c.Term, elected-1), Node: c.Node, Site: c.Site, Incarnation: c.Incarnation}
	}
	f.State, f.Reason, f.Time = cluster.FenceRevoked, in.Revoke, in.Wall
	return &f
}

func earlier(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}
