package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/policy"
)

// WithForecast adds to the view of a group what the view alone does not know: who could lead, why nobody can, and what
// holds a better member back.
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
		view.Failing = f.Describe(view.State != status.StateNone)
		view.Problems = append(view.Problems, view.MayFailAgain())
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
	return view.Judged(time.Now())
}

// canLead returns yes, or why a member could not lead. out is the forecast for now, next the one for the loss of the
// leader.
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

// noStandby returns a problem if no member could take over from the leader, not even if a person approved, or only
// one that has failed.
func noStandby(view status.Group, next whatif.Outcome) []string {
	if slices.ContainsFunc(view.Members, func(m status.Member) bool {
		return m.Node != view.Leader && m.IsEligible()
	}) && (next.HasLeader() || next.Last.AwaitsApproval) {
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
	case (n == 0 || out.Leader.ID == Leader(q.Snapshot)) && !q.Snapshot.Ready():
		lines = []string{at + " stays elected, and does not lead yet"}
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

// GroupPlan is what a request would do in one of many groups.
type GroupPlan struct {
	// Now is the node that leads or is elected, Then the one that would lead; empty for none. With slots, they are the
	// nodes in those slots whose leaders would change.
	Now, Then string
	Messages  []string
	// Reason is that of the last election; empty if there is none, or with slots.
	Reason string
}

// Plan returns what a request would do, without submitting it. The error matches *[request.NotAffectedError] if that is
// nothing.
func (s Submitter) Plan(ctx context.Context, r request.Request) (GroupPlan, error) {
	q, err := s.Question(ctx)
	if err != nil {
		return GroupPlan{}, err
	}
	return PlanOf(q, r)
}

// PlanOf returns what a request would do in the group in question.
func PlanOf(q whatif.Question, r request.Request) (GroupPlan, error) {
	p := GroupPlan{Now: Leader(q.Snapshot)}
	plan, err := r.Plan(q)
	if err != nil {
		return p, err
	}
	q = request.WithControl(q, plan.Control)
	p.Messages = plan.Messages
	if q.Slots != nil {
		p.Now, p.Then = slotMoves(q.Slots)
		return p, nil
	}
	out := whatif.Run(q)
	p.Then = out.Leader.ID
	if n := len(out.Steps); n > 0 {
		p.Reason = out.Steps[n-1].Reason
	}
	return p, nil
}

// DryRun says in lines what a request would do, who would lead then, and what would hold a better member back. The
// error is that of [request.Request.Plan].
func DryRun(q whatif.Question, r request.Request) ([]string, error) {
	plan, err := r.Plan(q)
	if err != nil {
		return nil, err
	}
	return append(plan.Messages, DescribeOutcome(request.WithControl(q, plan.Control))...), nil
}

// slotMoves returns the nodes that lead the slots whose leaders would change, and those that would lead them then, with
// the slots.
func slotMoves(questions []whatif.Question) (now, then string) {
	var before, after []string
	for i, out := range whatif.RunSlots(questions) {
		s := questions[i].Snapshot
		if leader := Leader(s); leader != out.Leader.ID {
			before = append(before, fmt.Sprintf("%s (slot %s)", cmp.Or(leader, "none"), s.Slot))
			after = append(after, fmt.Sprintf("%s (slot %s)", cmp.Or(out.Leader.ID, "none"), s.Slot))
		}
	}
	return strings.Join(before, ", "), strings.Join(after, ", ")
}

// NotAffected reports whether err says that a request changes nothing in a group.
func NotAffected(err error) bool {
	var none *request.NotAffectedError
	return errors.As(err, &none)
}

// Leader returns the node that leads or is elected; empty if there is none.
func Leader(s cluster.Snapshot) string {
	node, _ := whatif.LeaderOf(s)
	return node
}
