package cli

import (
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/request"
)

// A proposal that has ended by an election has not failed, although the decision was read before.
func TestAnEndedProposalMayHaveElected(t *testing.T) {
	t.Parallel()
	var plan request.Plan
	plan.Control.Proposals = []cluster.Proposal{{Request: cluster.Request{ID: 7}, Term: 3, Answer: cluster.ProposalApproved}}
	for outcome, failed := range map[string]bool{"approved by ann; n2" + cluster.ElectedOutcome: false, "n1 leads again": true} {
		var s cluster.Snapshot
		s.Elected.Exists, s.Elected.Record.Term = true, 3
		s.Control.Record.Done = []cluster.Done{{ID: 7, Outcome: outcome}}
		if done, err := approved(s, plan); done || (err != nil) != failed {
			t.Errorf("%s: %t, %v", outcome, done, err)
		}
	}
}
