package elector

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// approve withdraws a decision that a person must confirm first, and proposes it (docs/policies.md, Approval). What operators request
// needs no other person, and before the first leader there is nothing to lose.
func (e *Elector) approve(in Input, g attemptEnd, active *activeRequests, d *Decision) {
	rules, elect := in.Policy.Rules, d.Elect
	if rules.Observe {
		e.withdraw(g, d, fmt.Sprintf("policy.observe is set: %s would be elected: %s", elect.Node, elect.Reason))
		return
	}
	best, known := in.Snapshot.Member(elect.Incarnation)
	if !known || elect.Circumstances.Node == "" || requested(elect, active.Move) {
		return
	}
	c := elect.Circumstances
	if elect.Cause == cluster.CauseLapsed || elect.Cause == cluster.CausePreempt { // these keep the circumstances
		c = cluster.Circumstances{Cause: elect.Cause, Node: elect.PreviousNode, Site: elect.PreviousSite}
	}
	needed, why := in.Policy.NeedsApproval(policy.Input{Members: in.Snapshot.Members, Circumstances: c}, &best)
	if !needed {
		return
	}
	target := cluster.Proposal{Node: elect.Node, Site: elect.Site}.Target()
	if elect.Cause == cluster.CausePreempt {
		e.withdraw(g, d, fmt.Sprintf("%s, but policy.confirm demands that a person decides", elect.Reason))
		d.Blocked.Remedy = cluster.InGroup("'zkelectd move %s'", e.opt.Group, elect.Node) + " moves leadership"
		return
	}
	p := e.proposal(in, active, *elect)
	switch hint := cluster.InGroup("'zkelectd approve'", e.opt.Group); {
	case p == nil: // a deputy writes none, the next elector will
		e.withdraw(g, d, fmt.Sprintf("a person must approve that %s is elected: %s", target, elect.Reason))
	case p.Answer == cluster.ProposalApproved:
		elect.Request, elect.RequestedBy = p.ID, p.AnsweredBy
		elect.Reason += "; approved by " + p.AnsweredBy
		return
	case p.Answer == cluster.ProposalRejected:
		e.withdraw(g, d, fmt.Sprintf("%s is not elected: rejected by %s: %s; %s elects it all the same", target, p.AnsweredBy, elect.Reason, hint))
	default:
		pending := *p
		d.Proposal = &pending
		then := "it waits for as long as it takes"
		if p.For > 0 {
			then = fmt.Sprintf("without an answer it is elected %s after this was proposed", p.For)
		}
		e.withdraw(g, d, fmt.Sprintf("%s waits for approval: %s; %s elects it, and %s does not; %s",
			target, elect.Reason, hint, cluster.InGroup("'zkelectd approve --reject'", e.opt.Group), then))
		d.Wake = cluster.Earliest(d.Wake, active.wake)
	}
	if why != "" {
		d.Note = join("; ", d.Note, why)
	}
	d.AwaitsApproval = true
}

// withdraw takes a decision back, and says why.
func (e *Elector) withdraw(g attemptEnd, d *Decision, why string) {
	if d.Elect = nil; g.ended {
		d.Note = why
		return
	}
	d.Blocked = Blocked{Reason: why}
}

// requested reports whether an operator has requested the decision.
func requested(elect *cluster.Elected, move *cluster.Move) bool {
	switch elect.Cause {
	case cluster.CauseMove, cluster.CauseDrain, cluster.CauseReelect:
		return true
	}
	return move != nil && move.Matches(elect.Node, elect.Site)
}

// proposal returns the proposal of a decision, after adding it unless it is there. It takes the place of one of another member, and its
// time goes on. It is nil if there is none, and this is a deputy, or no room for one is left.
func (e *Elector) proposal(in Input, active *activeRequests, elect cluster.Elected) *cluster.Proposal {
	term := in.Snapshot.Elected.Record.Term
	for i := range active.Proposals {
		if p := &active.Proposals[i]; p.Term == term && p.Node == elect.Node {
			return p
		}
	}
	active.Continue(in.Snapshot.Elected.Record.Request)
	if in.Snapshot.Acting || in.Snapshot.Control.Err != nil || active.Exhausted() != nil {
		return nil
	}
	after, err := cluster.ParseConfirmAfter(in.Policy.Rules.ConfirmAfter)
	if err != nil {
		after = 0 // such a policy does not compile
	}
	next := cluster.Proposal{
		Request: active.Next(cluster.Request{By: e.node(in), Reason: clip(elect.Reason), For: cluster.Duration(after), Time: in.Wall}),
		Term:    term, Node: elect.Node, Site: elect.Site, Cause: elect.Cause,
	}
	next.Slot = active.slot
	for _, p := range active.Proposals { // of another member
		if p.Term == term && p.For > 0 && next.For > 0 {
			next.For, next.Remaining, next.Time = p.For, p.Remaining, p.Time
		}
		active.end(p.Request, p.Describe(), "replaced: "+elect.Node+" is better now", in.Wall)
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
		outcome := rec.Node + " was elected"
		if p.Answer != "" {
			outcome = string(p.Answer) + " by " + p.AnsweredBy + "; " + outcome
		}
		active.end(p.Request, p.Describe(), outcome, wall)
		return true
	})
}
