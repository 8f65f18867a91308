package elector

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// approve withdraws a decision that a person must confirm first, and proposes it (docs/policies.md, Approval). What
// operators request needs no other person, and before the first leader there is nothing to lose.
func (e *Elector) approve(in Input, g attemptEnd, active *activeRequests, d *Decision) {
	rules, elect := in.Policy.Rules, d.Elect
	if rules.Observe {
		e.withdraw(in, g, d, fmt.Sprintf("policy.observe is set: %s would be elected: %s", elect.Node, elect.Reason))
		return
	}
	if elect.Cause == cluster.CauseFirst || requested(elect.Cause) ||
		active.Move != nil && active.Move.Matches(elect.Node, elect.Site) {
		return
	}
	entry, _ := d.Ranking.Find(elect.Incarnation)
	needed, why := e.rankingInput(in, g, active).approval(elect.Circumstances, elect.Cause)(entry.Member)
	if !needed {
		if best, ok := d.Ranking.Best(); ok && best.Name != elect.Incarnation && in.Policy.Rules.Confirm != "" {
			elect.Reason += fmt.Sprintf("; %s is better, but a person would have to approve it", best.ID)
		}
		return
	}
	target := cluster.Proposal{Node: elect.Node, Site: elect.Site}.Target()
	p := e.proposal(in, active, *elect)
	switch command := cluster.InGroup("'zkelectd approve'", e.opt.Group); {
	case p == nil: // a deputy writes none, the next elector will
		e.withdraw(in, g, d, fmt.Sprintf("a person must approve that %s is elected: %s", target, elect.Reason))
		if in.Snapshot.Control.Err != nil {
			d.Note = join("; ", d.Note, "but the requests are damaged: "+cluster.InGroup("'zkelectd repair control'",
				e.opt.Group)+" empties them")
		}
	case p.Answer == cluster.ProposalApproved:
		elect.Request, elect.RequestedBy = p.ID, p.AnsweredBy
		elect.Reason += "; approved by " + p.AnsweredBy
		return
	case p.Answer == cluster.ProposalRejected:
		e.withdraw(in, g, d, fmt.Sprintf("%s is not elected: rejected by %s: %s; %s elects it all the same", target,
			p.AnsweredBy, elect.Reason, command))
	default:
		if pending := *p; pending.ID <= in.Snapshot.Control.Record.Last {
			// else it has not been written, and may get another number
			d.Proposal = &pending
		}
		then := "it waits for as long as it takes"
		if p.For > 0 {
			then = fmt.Sprintf("without an answer it is elected %s after this was proposed", p.For)
		}
		e.withdraw(in, g, d, fmt.Sprintf("%s waits for approval: %s; %s elects it, and %s does not; %s",
			target, elect.Reason, command, cluster.InGroup("'zkelectd approve --reject'", e.opt.Group), then))
		d.Wake = cluster.Earliest(d.Wake, active.wake)
	}
	if why != "" {
		d.Note = join("; ", d.Note, why)
	}
	d.AwaitsApproval = true
	if in.takes() && in.Snapshot.Current.Exists { // so that nobody has to wait after the approval
		f := in.Snapshot.SilentFence(in.Leaderless, elect.Reason, in.Wall)
		d.Revoke, d.Take = &f, true
	}
}

// withdraw takes a decision back, and says why.
func (e *Elector) withdraw(in Input, g attemptEnd, d *Decision, why string) {
	if d.Elect = nil; g.ended {
		d.Note = why
		return
	}
	d.Blocked = Blocked{Reason: why}
	d.revokeIfDue(in)
}

// requested reports whether the cause is that an operator has requested the election.
func requested(c cluster.Cause) bool {
	return c == cluster.CauseMove || c == cluster.CauseDrain || c == cluster.CauseReelect
}

// approval returns a function that reports whether a person must approve that a member is elected. One that is
// elected already needs no second approval, such as when the holder before it falls silent.
func (b rankingInput) approval(c cluster.Circumstances, cause cluster.Cause,
) func(m *cluster.Member) (needed bool, why string) {
	pin, elected := b.input(), b.in.Snapshot.Elected.Record
	pin.Circumstances = c
	if cause == cluster.CauseLapsed || cause == cluster.CausePreempt { // these keep the circumstances
		pin.Circumstances = cluster.Circumstances{Cause: cause, Node: elected.Node, Site: elected.Site}
	}
	needs := b.in.Policy.Approval(pin)
	return func(m *cluster.Member) (bool, string) {
		if m.Name == elected.Incarnation {
			return false, ""
		}
		return needs(m)
	}
}

// choose returns who is elected in place of a leader: whom a person has approved, unless the leader need not go, else
// the best member for which nobody must be asked, which may be that leader, else the best one. There is always one.
func (b rankingInput) choose(r rankedMembers, cause cluster.Cause, active *activeRequests) cluster.Member {
	best, _ := r.Best()
	if b.in.Policy.Rules.Confirm == "" || active.Move != nil || cause == cluster.CauseFirst || requested(cause) {
		return best
	}
	eligible := make([]*cluster.Member, 0, len(r.Entries))
	for _, entry := range r.Entries {
		if entry.Eligible() {
			eligible = append(eligible, entry.Member)
		}
	}
	for _, m := range eligible {
		if p := active.proposalFor(m.ID, b.in.Snapshot.Elected.Record.Term); p != nil &&
			p.Answer == cluster.ProposalApproved && cause != cluster.CausePreempt {
			return *m
		}
	}
	needs := b.approval(b.circumstances, cause)
	for _, m := range eligible {
		if needed, _ := needs(m); !needed {
			return *m
		}
	}
	return best
}

// proposalFor returns the proposal to elect a node in place of the decision of a term; nil if there is none.
func (active *activeRequests) proposalFor(node string, term int64) *cluster.Proposal {
	for i := range active.Proposals {
		if p := &active.Proposals[i]; p.Term == term && p.Node == node {
			return p
		}
	}
	return nil
}

// proposal returns the proposal of a decision, after adding it unless it is there. It takes the place of one of
// another member, whose time goes on, and which may have been rejected. But to reject that a leader is replaced is not
// to reject that there is one: once it leads no more, a proposal from before is replaced as well, unless it was
// approved. The proposal is nil if there is none, and this is a deputy, or no room for one is left.
func (e *Elector) proposal(in Input, active *activeRequests, elect cluster.Elected) *cluster.Proposal {
	term := in.Snapshot.Elected.Record.Term
	after, err := cluster.ParseConfirmAfter(in.Policy.Rules.ConfirmAfter)
	if err != nil {
		after = 0 // such a policy does not compile
	}
	outlived := func(p *cluster.Proposal) bool { return p.Cause.StillLeads() && !elect.Cause.StillLeads() }
	p := active.proposalFor(elect.Node, term)
	if p != nil && (p.Answer == cluster.ProposalApproved || !outlived(p)) {
		if p.Answer == "" && time.Duration(p.For) != after { // the policy has changed since
			p.For, p.Remaining, p.Time, active.changed = cluster.Duration(after), cluster.Duration(after), in.Wall, true
		}
		return p
	}
	active.Continue(in.Snapshot.Elected.Record.Request)
	if in.Snapshot.Acting || in.Snapshot.Control.Err != nil || active.Exhausted() != nil {
		return nil
	}
	next := cluster.Proposal{
		Request: active.Next(cluster.Request{By: e.node(in), Reason: clip(elect.Reason), For: cluster.Duration(after),
			Time: in.Wall}),
		Term: term, Node: elect.Node, Site: elect.Site, Cause: elect.Cause,
	}
	next.Slot = active.slot
	for _, p := range active.Proposals {
		outcome := "replaced: " + elect.Node + " is better now"
		if outlived(&p) {
			outcome = "replaced: " + clip(elect.Reason)
		}
		switch {
		case p.Term != term || p.Answer == cluster.ProposalRejected && outlived(&p):
		case p.Answer == cluster.ProposalRejected:
			next.SetAnswer(p.Answer, p.AnsweredBy)
		case p.For > 0 && p.For == next.For:
			next.Remaining, next.Time = cluster.Duration(e.requests.left(p.Request, in.Now)), p.Time
		}
		active.end(p.Request, p.Describe(), outcome, in.Wall)
	}
	active.Proposals, active.changed = []cluster.Proposal{next}, true
	return &active.Proposals[0]
}

// node returns the id of this elector's node.
func (e *Elector) node(in Input) string { return in.Snapshot.Self.ID }

// maxProposalReason bounds the reason in a proposal, in bytes: every daemon keeps it in memory.
const maxProposalReason = 500

func clip(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxProposalReason)], "")
}

// endUnneeded ends the proposals while the elected member leads, and need not be replaced.
func (active *activeRequests) endUnneeded(leader string, wall time.Time) {
	for _, p := range active.Proposals {
		active.end(p.Request, p.Describe(), leader+" leads again", wall)
	}
	active.Proposals = nil
}

// endProposals ends the proposals for decisions that have been made, by whomever.
func (active *activeRequests) endProposals(s *cluster.Snapshot, wall time.Time) {
	if !s.Elected.Readable() {
		return
	}
	rec := s.Elected.Record
	active.Proposals = slices.DeleteFunc(active.Proposals, func(p cluster.Proposal) bool {
		if p.Term == rec.Term {
			return false
		}
		outcome := rec.Node + cluster.ElectedOutcome
		if p.Answer != "" {
			outcome = string(p.Answer) + " by " + p.AnsweredBy + "; " + outcome
		}
		active.end(p.Request, p.Describe(), outcome, wall)
		return true
	})
}
