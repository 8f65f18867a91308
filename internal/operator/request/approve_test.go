package request

import (
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// proposed returns a group whose leader is lost, and which waits for the approval of b1.
func proposed(t *testing.T) *testGroup {
	h := group(t, cluster.Rules{Confirm: "member.site != previous.site"}).leads("a1")
	h.q.Snapshot = h.q.Snapshot.Without(func(m cluster.Member) bool { return m.Node.Record.Site == "dc1" })
	h.q.Snapshot.Elector, h.q.Snapshot.HolderRead = true, true
	h.q.Snapshot.Self = h.q.Snapshot.Members[0].Incarnation
	h.control().Last = 3
	h.control().Proposals = []cluster.Proposal{{
		Request: cluster.Request{ID: 3, By: "b1", Reason: "a1 is gone", For: 60, Remaining: 50},
		Term:    h.q.Snapshot.Elected.Record.Term, Node: "b1", Site: "dc2", Cause: cluster.CauseFailure,
	}}
	return h
}

func TestApprove(t *testing.T) {
	for name, c := range map[string]struct {
		node   string
		reject bool
		answer cluster.ProposalAnswer
		want   string
	}{
		"whoever is proposed": {"", false, cluster.ProposalApproved, "b1 (dc2) takes over"},
		"the node":            {"b1", false, cluster.ProposalApproved, "b1 (dc2) takes over"},
		"rejected":            {"", true, cluster.ProposalRejected, "b1 (dc2) is not elected: a1 is gone"},
		"another node":        {"b2", false, "", "b2 is not proposed now, but b1 (dc2): look at 'zkelectd status' again"},
	} {
		h := proposed(t)
		plan, err := Request{Kind: KindApprove, Node: c.node, Reject: c.reject, Options: bob()}.Plan(h.q)
		if c.answer == "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || strings.Join(plan.Messages, "; ") != c.want {
			t.Errorf("%s: %v, %q", name, err, plan.Messages)
			continue
		}
		p := plan.Control.Proposals[0]
		if p.Answer != c.answer || p.AnsweredBy != "bob@host: test" || p.For != 0 || p.Remaining != 0 || p.ID != 3 || plan.ID != 4 {
			t.Errorf("%s: %+v, request %d", name, p, plan.ID)
		}
		if got := h.after(plan).Leader.ID; (got == "b1") == c.reject {
			t.Errorf("%s: then %q leads", name, got)
		}
	}
	// The answer can be changed.
	h := proposed(t)
	h.control().Proposals[0].SetAnswer(cluster.ProposalRejected, "ann")
	plan, err := Request{Kind: KindApprove, Options: bob()}.Plan(h.q)
	if err != nil || plan.Messages[0] != "replaces: rejected by ann" {
		t.Errorf("%v, %q", err, plan.Messages)
	}
	// Who is no longer eligible does not take over.
	h = proposed(t)
	h.node("b1").Ineligible = "full"
	if _, err := (Request{Kind: KindApprove, Options: bob()}).Plan(h.q); err == nil || !strings.Contains(err.Error(), "b1 (dc2) would not take over any more") {
		t.Error(err)
	}
	// Only the elector sees that a member is overdue or silent: here it seems to lead on.
	for _, cause := range []cluster.Cause{cluster.CauseOverdue, cluster.CauseSilent, cluster.CauseUnhealthy} {
		h := group(t, cluster.Rules{Confirm: "member.site != previous.site"}).leads("a1")
		h.control().Last, h.control().Proposals = 3, []cluster.Proposal{{
			Request: cluster.Request{ID: 3}, Term: h.q.Snapshot.Elected.Record.Term, Node: "b1", Site: "dc2", Cause: cause,
		}}
		_, err := Request{Kind: KindApprove, Options: bob()}.Plan(h.q)
		if seen := cause == cluster.CauseUnhealthy; seen != (err != nil) || seen && !strings.HasSuffix(err.Error(), "any more: a1 leads") {
			t.Errorf("%s: %v", cause, err)
		}
		h.control().Pause = &cluster.Pause{Hard: true}
		if _, err := (Request{Kind: KindApprove, Options: bob()}).Plan(h.q); err == nil || !strings.Contains(err.Error(), "paused hard") {
			t.Errorf("%s: paused hard: %v", cause, err)
		}
	}
}
