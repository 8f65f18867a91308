package whatif

import (
	"fmt"
	"slices"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// heldByHysteresis says that another member would lead without policy.hysteresis; empty if that is not so, or not
// known.
func heldByHysteresis(q Question, out Outcome) string {
	percent := q.Policy.Rules.Hysteresis
	if percent == 0 || !out.HasLeader() || !measured(out.Last.Ranking) {
		return ""
	}
	rules := q.Policy.Rules
	rules.Hysteresis = 0
	var err error
	if q.Policy, err = policy.New(cluster.Policy{Revision: q.Policy.Revision, Rules: rules}); err != nil {
		return ""
	}
	without, _ := settle(q)
	difference := without.Last.Ranking.Difference(without.Leader.Name, out.Leader.Name)
	if !without.HasLeader() || without.Leader.Name == out.Leader.Name || difference == "" {
		return ""
	}
	return fmt.Sprintf("%s would be better than %s (%s), but not by the %d %% that policy.hysteresis demands; %s "+
		"moves leadership there",
		without.Leader.ID, out.Leader.ID, difference, percent, cluster.InGroup("'zkelectd move --to %s'",
			q.Options.Group, without.Leader.ID))
}

// measured reports whether a ranking uses measurements, to which the hysteresis applies.
func measured(r policy.Ranking) bool {
	return len(r.Entries) > 0 && slices.ContainsFunc(r.Entries[0].Scores, func(s policy.Score) bool {
		return s.Ranker == "latency" || s.Ranker == "score"
	})
}
