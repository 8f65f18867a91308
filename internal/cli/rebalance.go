package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/policy"
)

// nodeBalance is how many groups a node leads before and after the leaders of all groups are elected anew.
type nodeBalance struct {
	Node   string `json:"node"`
	Before int    `json:"leads_before"`
	After  int    `json:"leads_after"`
}

func reelectCommand(cmd *command) {
	c := newRequestCommand(cmd, "reelect", "Run the election again, by policy alone", `Reelect has the elector choose the best member now, regardless of failback and
policy.max_preemptions. It ends a move that is in force.

With --all it shows which of several groups would have another leader if each was elected
anew, and then has those elected, a few at a time. That is for policies that do not move a
healthy leader by themselves: fewest, and policy.failback manual. Under fewest, a
group moves from a node above 1.1 times the mean to one that leads fewer. Groups with slots
are left as they are: their slots move by themselves to the nodes that lead fewest, as
failback permits.`)
	c.withWait("wait until the leader is READY, and show the progress")
	c.parallel = 10
	f := c.Flags()
	f.BoolVar(&c.rebalance, "all", false, "elect the leaders of all groups anew where policy prefers another node")
	f.BoolVar(&c.yes, "yes", false, "with --all: do it without asking")
	f.IntVar(&c.parallel, "parallel", c.parallel, "with --all: in how many groups leadership may move at once")
	reelect := func([]string) request.Request { return request.Request{Kind: request.KindReelect} }
	c.check = func([]string) error {
		if c.many = c.rebalance; !c.many && (f.Changed("yes") || f.Changed("parallel")) {
			return errors.New("--yes and --parallel are for --all")
		}
		return nil
	}
	c.submits(reelect, reelected)
}

// reelected is complete when the reelection is over and there is a READY leader.
func reelected(s cluster.Snapshot, plan request.Plan) (bool, error) {
	_, over := s.Control.Record.Ended(plan.ID)
	return over && s.Ready(), nil
}

// planRebalance plans the groups one after the other, each with the leaders that the ones before it would have.
func (r *rollout) planRebalance(ctx context.Context, s selection) {
	r.changes = make([]*groupChange, len(s.groups))
	questions := make([]whatif.Question, len(s.groups))
	s.each(ctx, func(ctx context.Context, i int, g group) {
		c := &groupChange{Group: g.name, g: g}
		r.changes[i] = c
		err := g.err
		if err == nil {
			questions[i], err = g.submitter().Question(ctx)
		}
		if err != nil {
			c.fail(err)
			return
		}
		c.Now = operator.Leader(questions[i].Snapshot)
		c.Then = c.Now
	})
	b := newBalance(r.changes, questions)
	before := maps.Clone(b.leads)
	for i, c := range r.changes {
		if c.Error == "" {
			b.plan(c, questions[i], r.request)
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(b.leads), cluster.CompareNodes) {
		r.nodes = append(r.nodes, nodeBalance{id, before[id], b.leads[id]})
	}
}

// balance is who leads what while that is planned.
type balance struct {
	leads     map[string]int    // by node
	elected   map[string]string // by group
	relations policy.Graph
}

func newBalance(changes []*groupChange, questions []whatif.Question) balance {
	b := balance{leads: make(map[string]int), elected: make(map[string]string), relations: make(policy.Graph)}
	for i, c := range changes {
		q := questions[i]
		if c.Error != "" {
			continue
		}
		for _, m := range q.Snapshot.Members {
			b.leads[m.ID] += 0 // a node that leads nothing is shown, too
		}
		for _, leader := range q.Leaders() {
			if id := operator.Leader(leader.Snapshot); id != "" {
				b.leads[id]++
			}
		}
		b.elected[c.Group] = c.Now
		if related := policy.RelationsOf(q.Policy.Rules); len(related.Peers()) > 0 {
			b.relations[c.Group] = related
		}
	}
	return b
}

// plan plans the reelection of one group.
func (b balance) plan(c *groupChange, q whatif.Question, req request.Request) {
	if q.Slots != nil {
		c.NotAffected, c.Messages = true, []string{"skipped, because it has slots: to move the first one, run " + cluster.InGroup("'zkelectd reelect'", c.Group+"/0")}
		return
	}
	c.placement = elector.Placement{Load: make(map[string]policy.NodeLoad), Peers: maps.Clone(b.elected), Relations: b.relations}
	for node, n := range b.leads {
		if node == c.Now {
			n--
		}
		c.placement.Load[node] = policy.NodeLoad{Leaders: n}
	}
	q.Options.Group, q.Placement = c.Group, c.placement
	plan, err := operator.PlanOf(q, req)
	switch {
	case err != nil:
		c.fail(err)
		return
	case plan.Then == "" || plan.Then == c.Now:
		c.NotAffected = true
		return
	}
	c.Then, c.Messages = plan.Then, []string{plan.Reason}
	b.elected[c.Group] = c.Then
	b.leads[c.Then]++
	if c.Now != "" {
		b.leads[c.Now]--
	}
}

// showBalance prints how evenly the nodes lead before and after.
func (r *rollout) showBalance() error {
	t := newTable(r.out, "NODE", "LEADS NOW", "WOULD LEAD")
	total, now, then := 0, 0, 0
	for _, n := range r.nodes {
		t.row(n.Node, n.Before, n.After)
		total, now, then = total+n.Before, max(now, n.Before), max(then, n.After)
	}
	if mean := float64(total) / float64(max(1, len(r.nodes))); mean > 0 {
		fmt.Fprintf(t, "\nthe most that a node leads is %.2f times the mean, and would be %.2f times\n\n", float64(now)/mean, float64(then)/mean)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range r.changes {
		if c.NotAffected && len(c.Messages) > 0 {
			fmt.Fprintf(r.out, "%s: %s\n", printable(c.Group), printable(c.Messages[0]))
		}
	}
	return nil
}
