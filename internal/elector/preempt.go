package elector

import (
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// replace applies rule (d): may somebody else take over from the elected attempt, which goes on?
func (e *Elector) replace(b ballot, r outcome, best cluster.Member, o *standing, d *Decision) *cluster.Elected {
	rec := b.in.Snapshot.Elected.Record
	if o.Reelect != nil {
		return e.rerun(b, o, d)
	}
	if best.Name == rec.Incarnation { // not the zero of a ranking without any
		return nil
	}
	if entry, known := r.Find(rec.Incarnation); !known || !entry.Allowed() {
		return e.dismiss(b, entry, o, d)
	}
	if o.Move != nil && o.Move.Matches(best.ID, best.Node.Record.Site) && !o.Move.Matches(rec.Node, rec.Site) {
		return e.elect(b, r, verdict{
			cause: cluster.CauseMove, request: o.Move.Request, reason: fmt.Sprintf("moved to %s %s", o.Move.Target(), o.Move.Request),
		}, best)
	}
	if d.Holding = e.holds(b, r, best, o, d); d.Holding != "" {
		d.Holding = fmt.Sprintf("%s would be better than %s (%s), but %s", best.ID, rec.Node, r.Difference(best.Name, rec.Incarnation), d.Holding)
		return nil
	}
	return e.elect(b, r, verdict{
		cause: cluster.CausePreempt, reason: fmt.Sprintf("%s is better than %s: %s", best.ID, rec.Node, r.Difference(best.Name, rec.Incarnation)),
	}, best)
}

// dismiss replaces a leader that may no longer lead, by an election under circumstances of its own.
func (e *Elector) dismiss(b ballot, entry policy.Entry, o *standing, d *Decision) *cluster.Elected {
	s := &b.in.Snapshot
	v := dismissal(s.Elected.Record, entry, o)
	if o.Pause != nil && v.cause == cluster.CauseIneligible {
		d.Holding = fmt.Sprintf("%s, but policy moves nobody: paused %s", v.reason, o.Pause.Request)
		return nil
	}
	b.over, b.circumstances = true, circumstances(s, v)
	r := b.strict() // no amnesty: who has just failed is no better than a leader that at least works
	best, ok := r.Best()
	switch {
	case !ok:
		d.Holding = v.reason + ", but nobody else may: " + Refusals(r.Ranking)
		return nil
	case best.Name == s.Elected.Record.Incarnation:
		d.Holding = v.reason + ", but the election that follows would find it again"
		return nil
	}
	d.Ranking, d.Circumstances = r.Ranking, b.circumstances
	return e.elect(b, r, v, best)
}

// dismissal says why a leader may no longer lead. What a pause does not put off comes first.
func dismissal(rec cluster.Elected, entry policy.Entry, o *standing) verdict {
	v := verdict{over: true, cause: cluster.CauseIneligible}
	why := entry.RefusalReason()
	for _, r := range slices.Backward(entry.Refusals) {
		switch r.Filter {
		case policy.HealthFilter:
			v.cause, v.request, why = cluster.CauseUnhealthy, cluster.Request{}, r.Why
		case policy.CordonFilter:
			v.cause, v.request = o.drained(rec.Node, rec.Site)
			why = r.Why
		}
	}
	v.reason = fmt.Sprintf("%s may no longer lead: %s", rec.Node, why)
	return v
}

// rerun holds the election that an operator has asked for, once, by policy alone.
func (e *Elector) rerun(b ballot, o *standing, d *Decision) *cluster.Elected {
	rec := b.in.Snapshot.Elected.Record
	if rec.Cause == cluster.CauseReelect && rec.Request == o.Reelect.ID {
		o.endElect(rec.Node+" was elected", b.in.Wall)
		return nil
	}
	b.move, b.circumstances = nil, cluster.Circumstances{Cause: cluster.CauseReelect, Node: rec.Node, Site: rec.Site}
	r := e.rank(b)
	best, ok := r.Best()
	switch {
	case !ok:
		o.endElect("no member may lead: "+Refusals(r.Ranking), b.in.Wall)
		return nil
	case best.Name == rec.Incarnation:
		o.endElect(rec.Node+" leads: it is the best", b.in.Wall)
		return nil
	}
	d.Ranking, d.Circumstances = r.Ranking, b.circumstances
	return e.elect(b, r, verdict{
		cause: cluster.CauseReelect, request: *o.Reelect,
		reason: fmt.Sprintf("election asked for %s: %s is better than %s: %s", o.Reelect, best.ID, rec.Node, r.Difference(best.Name, rec.Incarnation)),
	}, best)
}

// holds says what keeps policy from moving a healthy leader, "" if nothing does.
func (e *Elector) holds(b ballot, r outcome, best cluster.Member, o *standing, d *Decision) string {
	rules := b.in.Policy.Rules
	if o.Pause != nil {
		return "policy moves nobody: paused " + o.Pause.Request.String()
	}
	if s := &b.in.Snapshot; s.Policy.Exists && s.Policy.Err != nil {
		hint := ""
		if s.Policy.Newer() == nil {
			hint = "; 'zkelectd repair policy' repairs it"
		}
		return "policy moves nobody: the policy in ZooKeeper cannot be read: " + s.Policy.Err.Error() + hint
	}
	if r.Unanswered {
		return "the policy's program has no ranking"
	}
	switch rules.Failback {
	case cluster.FailbackManual:
		return "failback is manual: 'zkelectd reelect' moves it"
	case cluster.FailbackDelayed:
		delay := time.Duration(rules.FailbackDelay)
		if due := e.eligible[best.Name] + delay; due > b.in.Now {
			d.Wake = cluster.Earliest(d.Wake, due)
			return fmt.Sprintf("failback is delayed until it has been eligible for %s", delay)
		}
	}
	recent := e.recent(b.in.Snapshot.Elected.Record.Preemptions, b.in)
	if rules.MaxPreemptions <= 0 || len(recent) < rules.MaxPreemptions {
		return ""
	}
	d.Wake = cluster.Earliest(d.Wake, e.preemptions[recent[0]]+time.Duration(rules.PreemptionWindow))
	return fmt.Sprintf("policy has moved the leader %d times within %s, election.max_preemptions allows no more", len(recent), time.Duration(rules.PreemptionWindow))
}

// recent are the preemptions that still count, by when this elector has first seen them.
func (e *Elector) recent(terms []int64, in Input) []int64 {
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
