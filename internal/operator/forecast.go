package operator

import (
	"cmp"
	"fmt"
	"slices"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/policy"
)

// WithForecast adds to the view of a group what the view alone does not know: who could lead, why nobody can, and what holds a better
// member back.
func WithForecast(view status.Group, q whatif.Question) status.Group {
	out := whatif.Run(q)
	next := out
	if view.State != status.StateNone {
		next = whatif.Succession(q, view.Leader)
	}
	view.Members = slices.Clone(view.Members)
	for i := range view.Members {
		m := &view.Members[i]
		m.Eligible = canLead(*m, view.Leader, out, next)
	}
	if f := out.Last.Failing; f != nil {
		view.Failing = f.String()
		view.Problems = append(view.Problems, view.Failing)
	}
	switch {
	case view.State == status.StateNone && len(view.Members) == 0:
		view.Problems = append(view.Problems, "nobody leads: no daemon is registered")
	case view.State == status.StateNone && !out.HasLeader():
		view.NoLeader = out.WhyNoLeader()
		view.Problems = append(view.Problems, "nobody leads: "+view.NoLeader)
	case view.State == string(cluster.CurrentReady) && !out.Last.Ranking.Unanswered:
		view.Problems = append(view.Problems, noStandby(view, next)...)
	}
	view.Blocked = blocked(q, out)
	return view
}

// canLead returns yes, or why a member could not lead. out is the forecast for now, next the one for the loss of the leader.
func canLead(m status.Member, leader string, out, next whatif.Outcome) string {
	now, known := out.Last.Ranking.Find(m.Incarnation)
	switch then, remains := next.Last.Ranking.Find(m.Incarnation); {
	case !known:
		return m.Eligible
	case remains && !then.Eligible():
		return then.RefusalReason()
	case now.Eligible():
		return status.CanLead
	case remains:
		return fmt.Sprintf("only if %s is lost: %s", leader, now.RefusalReason())
	}
	return now.RefusalReason()
}

// noStandby returns a problem if no member could take over from the leader, or only one that has failed.
func noStandby(view status.Group, next whatif.Outcome) []string {
	if slices.ContainsFunc(view.Members, func(m status.Member) bool { return m.Node != view.Leader && m.IsEligible() }) && next.HasLeader() {
		return nil
	}
	if !next.HasLeader() {
		why := "there is no other member"
		if r := next.Last.Ranking; len(r.Entries) > 0 {
			why = cmp.Or(r.Refusals(), next.WhyNoLeader())
		}
		return []string{fmt.Sprintf("nobody could take over from %s: %s", view.Leader, why)}
	}
	i := slices.IndexFunc(view.Members, func(m status.Member) bool { return m.Incarnation == next.Leader.Name })
	if i < 0 {
		return nil
	}
	return []string{fmt.Sprintf("no other member is eligible: %s: %s", next.Leader.ID, view.Members[i].Eligible)}
}

// blocked returns what holds a better member back; empty if the forecast does not know which member is better.
func blocked(q whatif.Question, out whatif.Outcome) string {
	r := policy.RelationsOf(q.Policy.Rules)
	alone := q.Placement.Peers == nil && len(r.Peers()) > 0
	if alone || out.Last.Ranking.Unanswered {
		return ""
	}
	return out.Blocked
}

// UnderPolicy returns the question as it would be with another policy in force.
func UnderPolicy(q whatif.Question, rec cluster.Policy) (whatif.Question, error) {
	compiled, err := policy.New(rec)
	if err != nil {
		return q, err
	}
	put := func(q *whatif.Question) {
		q.Policy = compiled
		q.Snapshot.Policy.Exists, q.Snapshot.Policy.Err, q.Snapshot.Policy.Record = true, nil, rec
	}
	put(&q)
	q.Slots = slices.Clone(q.Slots)
	for i := range q.Slots {
		put(&q.Slots[i])
	}
	return q, nil
}

// DescribeBlocked says in lines what holds better members back.
func DescribeBlocked(q whatif.Question) []string {
	var lines []string
	for i, out := range q.Outcomes() {
		if held := blocked(q.Leaders()[i], out); held != "" {
			lines = append(lines, inSlot(q.Leaders()[i], held))
		}
	}
	return lines
}

// inSlot puts the slot of a question, if it is about one, before a line.
func inSlot(q whatif.Question, line string) string {
	if q.Snapshot.Slot == "" {
		return line
	}
	return fmt.Sprintf("slot %s: %s", q.Snapshot.Slot, line)
}

// DescribeOutcome says in lines who will lead, and what holds a better member back.
func DescribeOutcome(q whatif.Question) []string {
	var lines []string
	for i, out := range q.Outcomes() {
		for _, line := range describeOutcome(q.Leaders()[i], out) {
			lines = append(lines, inSlot(q.Leaders()[i], line))
		}
	}
	return lines
}

func describeOutcome(q whatif.Question, out whatif.Outcome) []string {
	at := fmt.Sprintf("%s (%s)", out.Leader.ID, out.Leader.Node.Record.Site)
	var lines []string
	switch n := len(out.Steps); {
	case !out.HasLeader():
		return []string{"no member leads: " + out.WhyNoLeader()}
	case n == 0 || out.Leader.ID == Leader(q.Snapshot):
		lines = []string{at + " continues to lead"}
	default:
		lines = []string{fmt.Sprintf("%s takes over: %s: %s", at, out.Steps[n-1].Cause, out.Steps[n-1].Reason)}
	}
	if held := blocked(q, out); held != "" {
		lines = append(lines, held)
	}
	return lines
}
