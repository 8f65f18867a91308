package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/request"
)

// GroupPlan is what a request would do in one of many groups.
type GroupPlan struct {
	// Now is the node that leads or is elected, Then the one that would lead; empty for none. With slots, they are the nodes in those
	// slots whose leaders would change.
	Now, Then string
	Messages  []string
	// Reason is that of the last election; empty if there is none, or with slots.
	Reason string
}

// Moves reports whether another node would lead.
func (p GroupPlan) Moves() bool { return p.Now != p.Then }

// Plan returns what a request would do, without submitting it. The error matches *[request.NotAffectedError] if that is nothing.
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

// DryRun says in lines what a request would do, who would lead then, and what would hold a better member back. The error is that of
// [request.Request.Plan].
func DryRun(q whatif.Question, r request.Request) ([]string, error) {
	plan, err := r.Plan(q)
	if err != nil {
		return nil, err
	}
	return append(plan.Messages, DescribeOutcome(request.WithControl(q, plan.Control))...), nil
}

// slotMoves returns the nodes that lead the slots whose leaders would change, and those that would lead them then, with the slots.
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
	if s.Current.Readable() {
		return s.Current.Record.Node
	}
	if _, alive := s.Member(s.Elected.Record.Incarnation); alive && s.Elected.Readable() && !s.Ended() {
		return s.Elected.Record.Node
	}
	return ""
}
