package elector

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// replace applies rule (d) of docs/protocol.md, Electing: whether another member replaces the elected one, whose
// attempt is not over. It returns nil if not.
func (e *Elector) replace(b rankingInput, r rankedMembers, best cluster.Member, active *activeRequests,
	d *Decision) *cluster.Elected {
	rec := b.in.Snapshot.Elected.Record
	if active.Reelect != nil {
		return e.reelect(b, active, d)
	}
	if best.Name == rec.Incarnation { // best is zero, and differs, if no member is eligible
		e.peers = peerWait{}
		return nil
	}
	if entry, known := r.Find(rec.Incarnation); !known || !entry.Eligible() {
		return e.replaceIneligible(b, entry, active, d)
	}
	e.peers = peerWait{}
	if active.Move != nil && active.Move.Matches(best.ID, best.Node.Record.Site) &&
		!active.Move.Matches(rec.Node, rec.Site) {
		if e.awaitsAnswers(b, r, false, d) {
			return nil
		}
		return e.elect(b, r, attemptEnd{
			cause: cluster.CauseMove, request: active.Move.Request, reason: active.Move.Describe(),
		}, best)
	}
	if chosen := b.choose(r, cluster.CausePreempt, active); chosen.Name != rec.Incarnation {
		best = chosen
	}
	if err := e.checkPreemption(b, r, best, active, d); err != nil {
		why := r.Difference(best.Name, rec.Incarnation)
		d.block(fmt.Sprintf("%s would be better than %s (%s)", best.ID, rec.Node, why), err)
		if d.Blocked.Manual && b.in.Policy.Rules.RollCall.Enabled && strings.HasPrefix(why, "score ") {
			d.Blocked = Blocked{} // members have not measured what they publish at the same time
		}
		return nil
	}
	if e.awaitsAnswers(b, r, false, d) {
		return nil
	}
	return e.elect(b, r, attemptEnd{
		cause: cluster.CausePreempt, reason: fmt.Sprintf("%s is better than %s: %s", best.ID, rec.Node,
			r.Difference(best.Name, rec.Incarnation)),
	}, best)
}

// replaceIneligible replaces a leader that is no longer eligible, in an election under its own circumstances.
func (e *Elector) replaceIneligible(b rankingInput, entry policy.Entry, active *activeRequests,
	d *Decision) *cluster.Elected {
	s := &b.in.Snapshot
	g := ineligibility(s.Elected.Record, entry, active)
	if active.Pause != nil && g.cause == cluster.CauseIneligible {
		d.block(g.reason, e.pausedError(active.Pause, b.in))
		return nil
	}
	if err := e.checkRollCall(b.in, d); err != nil && g.cause == cluster.CauseIneligible {
		d.block(g.reason, err)
		return nil
	}
	b.ended, b.circumstances = true, circumstances(s, g)
	r := e.rank(b)
	if e.awaitsAnswers(b, r, false, d) {
		return nil
	}
	best, ok := r.Best()
	if ok {
		if chosen := b.choose(r, g.cause, active); chosen.Name != s.Elected.Record.Incarnation {
			best = chosen
		}
	}
	why := excluded(b.exclusions)[best.ID]
	switch {
	case !ok:
		d.Blocked.Reason = g.reason + ", but no other member is eligible: " + r.Refusals()
		return nil
	case best.Name == s.Elected.Record.Incarnation:
		d.Blocked.Reason = g.reason + ", but the next election would elect it again"
		return nil
	case why != "" && g.cause.StillLeads():
		// A node that has just failed is no better than a leader that at least works. Whoever wants that leader to go
		// says so.
		d.Blocked.Reason = fmt.Sprintf("%s, but only members that have failed could replace it: %s: %s", g.reason,
			best.ID, why)
		return nil
	case e.awaits(b, d):
		return nil
	}
	d.Ranking, d.Circumstances = r.Ranking, b.circumstances
	return e.elect(b, r, g, best)
}

// ineligibility returns the grounds on which a leader is no longer eligible. Leaving, health and cordons come first: a
// pause does not suspend them.
func ineligibility(rec cluster.Elected, entry policy.Entry, active *activeRequests) attemptEnd {
	g := attemptEnd{ended: true, cause: cluster.CauseIneligible}
	why := entry.RefusalReason()
	for _, r := range slices.Backward(entry.Refusals) {
		switch r.Filter {
		case policy.HealthFilter:
			g.cause, g.request, why = cluster.CauseUnhealthy, cluster.Request{}, r.Reason
		case policy.CordonFilter:
			g.cause, g.request = cluster.CauseDrain, active.drained(rec.Node, rec.Site)
			why = r.Reason
		case policy.LeavingFilter:
			g.cause, g.request, why = cluster.CauseStopped, cluster.Request{}, r.Reason
		}
	}
	g.reason = fmt.Sprintf("%s is no longer eligible: %s", rec.Node, why)
	return g
}

// reelect holds the election that an operator has requested, once, by policy alone (docs/protocol.md, Operators).
func (e *Elector) reelect(b rankingInput, active *activeRequests, d *Decision) *cluster.Elected {
	rec := b.in.Snapshot.Elected.Record
	if rec.Cause == cluster.CauseReelect && rec.Request == active.Reelect.ID {
		active.endReelect(rec.Node+cluster.ElectedOutcome, b.in.Wall)
		return nil
	}
	b.move, b.reelect, b.circumstances = nil, true, cluster.Circumstances{Cause: cluster.CauseReelect, Node: rec.Node,
		Site: rec.Site}
	r := e.rank(b)
	if e.awaitsAnswers(b, r, false, d) {
		return nil
	}
	best, ok := r.Best()
	switch {
	case !ok:
		active.endReelect("no member is eligible: "+r.Refusals(), b.in.Wall)
		return nil
	case best.Name == rec.Incarnation:
		active.endReelect(rec.Node+cluster.StaysOutcome, b.in.Wall)
		return nil
	}
	d.Ranking, d.Circumstances = r.Ranking, b.circumstances
	return e.elect(b, r, attemptEnd{
		cause: cluster.CauseReelect, request: *active.Reelect,
		reason: fmt.Sprintf("reelection requested %s: %s is better than %s: %s", active.Reelect, best.ID, rec.Node,
			r.Difference(best.Name, rec.Incarnation)),
	}, best)
}

// heldError says what holds a better member back. The fields besides the reason are those of [Blocked].
type heldError struct {
	reason, remedy string
	until          time.Duration
	manual         bool
}

func (e *heldError) Error() string { return e.reason }

// reelectRemedy returns what an operator can do about failback and damping.
func (e *Elector) reelectRemedy() string {
	return cluster.InGroup("'zkelectd reelect'", e.opt.Group) + " moves leadership now"
}

// block records what holds a better member back.
func (d *Decision) block(fact string, err error) {
	d.Blocked = Blocked{Reason: fmt.Sprintf("%s, but %v", fact, err)}
	if held, ok := errors.AsType[*heldError](err); ok {
		d.Blocked.Remedy, d.Blocked.Until, d.Blocked.Manual = held.remedy, held.until, held.manual
	}
}

// pausedError says that a pause holds a better member back.
func (e *Elector) pausedError(p *cluster.Pause, in Input) *heldError {
	held := &heldError{reason: fmt.Sprintf("policy does not replace a healthy leader: paused %s", p.Request)}
	if p.ID != 0 {
		held.remedy = cluster.InGroup("'zkelectd resume'", cluster.GroupOf(e.opt.Group)) + " ends the pause"
	}
	if p.For > 0 { // an estimate, for people
		left := min(time.Duration(p.Remaining), p.Time.Add(time.Duration(p.For)).Sub(in.Wall))
		held.until = in.Now + max(0, left)
	}
	return held
}

// newRevision reports whether the policy in force was published after the present decision. What follows from it is an
// operator's order: the first preemption under a new revision is not damped, and does not count. That is at most one
// for each revision (S3).
func newRevision(in Input) bool {
	s := &in.Snapshot
	return s.Policy.Readable() && s.Policy.Record.Revision == in.Policy.Revision && s.Elected.Record.PolicyRevision !=
		in.Policy.Revision
}

// checkPreemption returns an error that says why policy must not preempt a healthy leader, nil if it may. It is a
// [heldError] if people can do something, or if its end is known.
func (e *Elector) checkPreemption(b rankingInput, r rankedMembers, best cluster.Member, active *activeRequests,
	d *Decision) error {
	rules := b.in.Policy.Rules
	if active.Pause != nil {
		return e.pausedError(active.Pause, b.in)
	}
	if s := &b.in.Snapshot; s.Policy.Exists && s.Policy.Err != nil {
		advice := ""
		if s.Policy.Newer() == nil {
			advice = "; " + cluster.InGroup("'zkelectd repair policy'", cluster.GroupOf(e.opt.Group)) + " repairs it"
		}
		return fmt.Errorf("policy does not replace a healthy leader: the policy in ZooKeeper cannot be read: %w%s",
			s.Policy.Err, advice)
	}
	if peer := b.in.Policy.Awaits(b.input()); peer != "" {
		return fmt.Errorf("the group %s, which this one follows, is about to decide", peer)
	}
	if r.Unanswered {
		return errors.New("the ranking program has no answer")
	}
	if err := e.checkRollCall(b.in, d); err != nil {
		return err
	}
	if err := e.checkFenced(best, b.in, d); err != nil {
		return err
	}
	delay, manual, err := cluster.ParseFailback(rules.Failback)
	if manual || err != nil {
		return &heldError{reason: "failback is manual", remedy: e.reelectRemedy(), manual: true}
	}
	approved := active.Move != nil && active.Move.Matches(best.ID, best.Node.Record.Site)
	if needed, _ := b.approval(b.circumstances, cluster.CausePreempt)(&best); needed && !approved {
		return &heldError{reason: "policy.confirm demands that a person decides", remedy: cluster.InGroup(
			"'zkelectd move %s'", e.opt.Group, best.ID) + " moves leadership"}
	}
	if due := e.eligible[best.Name] + delay; delay > 0 && due > b.in.Now {
		d.Wake = cluster.Earliest(d.Wake, due)
		return &heldError{reason: fmt.Sprintf("failback is delayed until it has been eligible for %s", delay),
			remedy: e.reelectRemedy(), until: due}
	}
	recent := e.recentPreemptions(b.in.Snapshot.Elected.Record.Preemptions, b.in)
	if rules.MaxPreemptions <= 0 || len(recent) < rules.MaxPreemptions || newRevision(b.in) {
		return e.checkMove(b.in, delay, d)
	}
	until := e.preemptions[recent[0].Term] + cluster.PreemptionWindow
	d.Wake = cluster.Earliest(d.Wake, until)
	return &heldError{
		reason: fmt.Sprintf("policy has replaced the leader %d times within %s; policy.max_preemptions allows no more",
			len(recent), cluster.PreemptionWindow),
		remedy: e.reelectRemedy(), until: until,
	}
}

// checkFenced returns an error if the present leader has fenced the member's node not long ago: two nodes that see each
// other as lost must not replace and fence each other in a loop (docs/protocol.md, Fencing).
func (e *Elector) checkFenced(best cluster.Member, in Input, d *Decision) error {
	f := in.Snapshot.Fence.Record
	if !f.HasFenced(best.ID) {
		return nil
	}
	until := e.fencedSince + e.opt.Exclusion
	if until <= in.Now {
		return nil
	}
	d.Wake = cluster.Earliest(d.Wake, until)
	return &heldError{
		reason: fmt.Sprintf("%s has fenced it in term %d, and a fenced node replaces no healthy leader for %s", f.Node,
			f.Term, e.opt.Exclusion),
		remedy: e.reelectRemedy(), until: until,
	}
}

// trackFenced remembers since when it has been known that the present leader has fenced nodes.
func (e *Elector) trackFenced(in Input) {
	f := in.Snapshot.Fence.Record
	if len(f.Fencing) > 0 && f.Term != e.fencedTerm {
		e.fencedTerm, e.fencedSince = f.Term, e.firstSeen(in, f.Time)
	}
}

// recentPreemptions returns the preemptions that still count for damping, in the order in which this elector has first
// seen them.
func (e *Elector) recentPreemptions(all []cluster.Preemption, in Input) []cluster.Preemption {
	next := make(map[int64]time.Duration, len(all))
	var recent []cluster.Preemption
	for _, p := range all {
		since, known := e.preemptions[p.Term]
		if !known {
			since = e.firstSeen(in, p.Time)
		}
		next[p.Term] = since
		if in.Now-since < cluster.PreemptionWindow {
			recent = append(recent, p)
		}
	}
	e.preemptions = next
	slices.SortFunc(recent, func(a, b cluster.Preemption) int { return cmp.Compare(next[a.Term], next[b.Term]) })
	return recent
}
