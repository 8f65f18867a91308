package elector

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// replace applies rule (d) of docs/protocol.md, Electing: whether another member replaces the elected one, whose attempt is
// not over. It returns nil if not.
func (e *Elector) replace(b rankingInput, r rankedMembers, best cluster.Member, active *activeRequests, d *Decision) *cluster.Elected {
	rec := b.in.Snapshot.Elected.Record
	if active.Reelect != nil {
		return e.reelect(b, active, d)
	}
	if best.Name == rec.Incarnation { // best is zero, and differs, if no member is eligible
		return nil
	}
	if entry, known := r.Find(rec.Incarnation); !known || !entry.Eligible() {
		return e.replaceIneligible(b, entry, active, d)
	}
	if active.Move != nil && active.Move.Matches(best.ID, best.Node.Record.Site) && !active.Move.Matches(rec.Node, rec.Site) {
		return e.elect(b, r, attemptEnd{
			cause: cluster.CauseMove, request: active.Move.Request, reason: fmt.Sprintf("moved to %s %s", active.Move.Target(), active.Move.Request),
		}, best)
	}
	if err := e.checkPreemption(b, r, best, active, d); err != nil {
		d.Blocked = fmt.Sprintf("%s would be better than %s (%s), but %v", best.ID, rec.Node, r.Difference(best.Name, rec.Incarnation), err)
		return nil
	}
	return e.elect(b, r, attemptEnd{
		cause: cluster.CausePreempt, reason: fmt.Sprintf("%s is better than %s: %s", best.ID, rec.Node, r.Difference(best.Name, rec.Incarnation)),
	}, best)
}

// replaceIneligible replaces a leader that is no longer eligible, in an election under circumstances of its own.
func (e *Elector) replaceIneligible(b rankingInput, entry policy.Entry, active *activeRequests, d *Decision) *cluster.Elected {
	s := &b.in.Snapshot
	g := ineligibility(s.Elected.Record, entry, active)
	if active.Pause != nil && g.cause == cluster.CauseIneligible {
		d.Blocked = fmt.Sprintf("%s, but policy does not replace a healthy leader: paused %s", g.reason, active.Pause.Request)
		return nil
	}
	b.ended, b.circumstances = true, circumstances(s, g)
	r := b.rankWithoutAmnesty() // no amnesty: a node that has just failed is no better than a leader that at least works
	best, ok := r.Best()
	switch {
	case !ok:
		d.Blocked = g.reason + ", but no other member is eligible: " + Refusals(r.Ranking)
		return nil
	case best.Name == s.Elected.Record.Incarnation:
		d.Blocked = g.reason + ", but the next election would elect it again"
		return nil
	}
	d.Ranking, d.Circumstances = r.Ranking, b.circumstances
	return e.elect(b, r, g, best)
}

// ineligibility returns the grounds on which a leader is no longer eligible. Health and cordons come first: a pause does not
// suspend them.
func ineligibility(rec cluster.Elected, entry policy.Entry, active *activeRequests) attemptEnd {
	g := attemptEnd{ended: true, cause: cluster.CauseIneligible}
	why := entry.RefusalReason()
	for _, r := range slices.Backward(entry.Refusals) {
		switch r.Filter {
		case policy.HealthFilter:
			g.cause, g.request, why = cluster.CauseUnhealthy, cluster.Request{}, r.Why
		case policy.CordonFilter:
			g.cause, g.request = active.drained(rec.Node, rec.Site)
			why = r.Why
		}
	}
	g.reason = fmt.Sprintf("%s is no longer eligible: %s", rec.Node, why)
	return g
}

// reelect holds the election that an operator has requested, once, by policy alone (docs/protocol.md, Operators).
func (e *Elector) reelect(b rankingInput, active *activeRequests, d *Decision) *cluster.Elected {
	rec := b.in.Snapshot.Elected.Record
	if rec.Cause == cluster.CauseReelect && rec.Request == active.Reelect.ID {
		active.endReelect(rec.Node+" was elected", b.in.Wall)
		return nil
	}
	b.move, b.circumstances = nil, cluster.Circumstances{Cause: cluster.CauseReelect, Node: rec.Node, Site: rec.Site}
	r := e.rank(b)
	best, ok := r.Best()
	switch {
	case !ok:
		active.endReelect("no member is eligible: "+Refusals(r.Ranking), b.in.Wall)
		return nil
	case best.Name == rec.Incarnation:
		active.endReelect(rec.Node+" leads and is the best", b.in.Wall)
		return nil
	}
	d.Ranking, d.Circumstances = r.Ranking, b.circumstances
	return e.elect(b, r, attemptEnd{
		cause: cluster.CauseReelect, request: *active.Reelect,
		reason: fmt.Sprintf("reelection requested %s: %s is better than %s: %s", active.Reelect, best.ID, rec.Node, r.Difference(best.Name, rec.Incarnation)),
	}, best)
}

// checkPreemption returns an error that says why policy must not preempt a healthy leader, nil if it may. It moves d.Wake
// forward to when that may change.
func (e *Elector) checkPreemption(b rankingInput, r rankedMembers, best cluster.Member, active *activeRequests, d *Decision) error {
	rules := b.in.Policy.Rules
	if active.Pause != nil {
		return fmt.Errorf("policy does not replace a healthy leader: paused %s", active.Pause.Request)
	}
	if s := &b.in.Snapshot; s.Policy.Exists && s.Policy.Err != nil {
		hint := ""
		if s.Policy.Newer() == nil {
			hint = "; 'zkelectd repair policy' repairs it"
		}
		return fmt.Errorf("policy does not replace a healthy leader: the policy in ZooKeeper cannot be read: %w%s", s.Policy.Err, hint)
	}
	if r.Unanswered {
		return errors.New("the ranking program has no answer")
	}
	switch rules.Failback {
	case cluster.FailbackManual:
		return errors.New("failback is manual: 'zkelectd reelect' moves it")
	case cluster.FailbackDelayed:
		delay := time.Duration(rules.FailbackDelay)
		if due := e.eligible[best.Name] + delay; due > b.in.Now {
			d.Wake = cluster.Earliest(d.Wake, due)
			return fmt.Errorf("failback is delayed until it has been eligible for %s", delay)
		}
	}
	recent := e.recentPreemptions(b.in.Snapshot.Elected.Record.Preemptions, b.in)
	if rules.MaxPreemptions <= 0 || len(recent) < rules.MaxPreemptions {
		return nil
	}
	d.Wake = cluster.Earliest(d.Wake, e.preemptions[recent[0]]+time.Duration(rules.PreemptionWindow))
	return fmt.Errorf("policy has replaced the leader %d times within %s; election.max_preemptions allows no more", len(recent), time.Duration(rules.PreemptionWindow))
}

// recentPreemptions returns the terms of the preemptions that still count for damping, in the order in which this elector has
// first seen them.
func (e *Elector) recentPreemptions(terms []int64, in Input) []int64 {
	window := time.Duration(in.Policy.Rules.PreemptionWindow)
	next := make(map[int64]time.Duration, len(terms))
	var recent []int64
	for _, term := range terms {
		since, known := e.preemptions[term]
		if !known {
			since = in.Now
		}
		next[term] = since
		if in.Now-since < window {
			recent = append(recent, term)
		}
	}
	e.preemptions = next
	slices.SortFunc(recent, func(a, b int64) int { return int(next[a] - next[b]) })
	return recent
}
