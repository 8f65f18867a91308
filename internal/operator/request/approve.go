package request

import (
	"cmp"
	"fmt"
	"slices"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// approve plans the answer to a proposal: the election of the node is approved or rejected. If node is empty, it is
// the proposed one.
func (d *draft) approve(node string, reject bool) (Plan, error) {
	i := slices.IndexFunc(d.next.Proposals, func(p cluster.Proposal) bool { return node == "" || p.Node == node })
	switch {
	case i < 0 && len(d.next.Proposals) > 0:
		return Plan{}, fmt.Errorf("%s is not proposed now, but %s: look at %s again", node,
			d.next.Proposals[0].Target(), d.inGroup("'zkelectd status'"))
	case i < 0:
		return Plan{}, &NotAffectedError{Reason: "no election waits for approval"}
	}
	p := &d.next.Proposals[i]
	by := d.options.By
	if d.options.Reason != "" {
		by += ": " + d.options.Reason
	}
	if p.Answer != "" {
		d.addMessage("replaces: %s by %s", p.Answer, p.AnsweredBy)
	}
	if reject {
		p.SetAnswer(cluster.ProposalRejected, by)
		d.addMessage("%s is not elected: %s", p.Target(), p.Reason)
		return d.finish("rejection of " + p.Node)
	}
	if err := d.checkNoHardPause(); err != nil {
		return Plan{}, err
	}
	p.SetAnswer(cluster.ProposalApproved, by)
	target, id, cause := p.Target(), p.Node, p.Cause
	out := d.forecast()
	eligible := func(e policy.Entry) bool { return e.Member.ID == id && e.Eligible() }
	unseen := cause == cluster.CauseOverdue || cause == cluster.CauseSilent // only the elector measures that
	if out.Leader.ID != id && !(unseen && slices.ContainsFunc(out.Last.Ranking.Entries, eligible)) {
		return Plan{}, fmt.Errorf("%s would not take over any more: %s", target,
			cmp.Or(out.WhyNoLeader(), out.Leader.ID+" leads"))
	}
	d.addMessage("%s takes over", target)
	return d.finish("approval of " + id)
}
