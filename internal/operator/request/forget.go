package request

import (
	"fmt"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
)

// Forget plans to drop a node that is no longer a member from the roster, or all lost ones if node is empty.
func Forget(q whatif.Question, o Options, node string) (Plan, error) {
	d, err := newDraft(q, o)
	if err != nil {
		return Plan{}, err
	}
	for _, m := range q.Snapshot.Members {
		if node != "" && m.ID == node {
			return Plan{}, fmt.Errorf("%s is a member: only a node that has left can be forgotten; stop its daemon first", node)
		}
	}
	if err := q.Snapshot.Roster.Err; err != nil {
		return Plan{}, fmt.Errorf("the members that have left are not known: %w", err)
	}
	var left []string
	drop := make(map[string]bool)
	absent, _ := q.Snapshot.Absent()
	for _, n := range absent {
		left = append(left, n.ID)
		if n.ID == node || node == "" && n.Left.How == cluster.LeftLost {
			drop[n.ID] = true
			d.addMessage("forgotten: %s (site %s), %s", n.ID, n.Site, n.Left.How)
		}
	}
	switch {
	case len(drop) == 0 && node == "":
		return Plan{}, &NotAffectedError{Reason: "no member is lost", Done: true}
	case len(drop) == 0:
		return Plan{}, &NotAffectedError{Reason: fmt.Sprintf("no node %q has left the group", node) + didYouMean(node, left), Done: true}
	}
	next := q.Snapshot.Roster.Record.Without(func(n cluster.RosterNode) bool { return drop[n.ID] })
	d.plan.Roster = &next
	what := "forget " + node
	if node == "" {
		what = "forget all lost members"
	}
	r := d.newRequest()
	d.next.End(r.ID, what, "forgotten, requested "+r.String(), q.Wall)
	return d.finish(what)
}
