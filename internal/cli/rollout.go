package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/request"
)

// groupChange is a request in one of several groups: first the plan, then the result.
type groupChange struct {
	Group string `json:"group"`
	// Now and Then are the nodes that led before, and would lead then.
	Now  string `json:"leader_before,omitempty"`
	Then string `json:"leader_planned,omitempty"`
	report
	// NotAffected is set if the request changes nothing in the group.
	NotAffected bool `json:"not_affected,omitempty"`
	// Error is why the request was refused, or has not taken effect.
	Error string `json:"error,omitempty"`

	err error // Error, with its exit status
	// done is why there is nothing to do: the group is already as requested.
	done string

	g         group
	placement elector.Placement // that the plan is based on
}

// rolloutResult is the output of a request in several groups.
type rolloutResult struct {
	// Nodes is how much each node leads before and after; only for rebalance.
	Nodes  []nodeBalance  `json:"nodes,omitempty"`
	Groups []*groupChange `json:"groups"`
}

func (c *groupChange) moves() bool { return c.Now != c.Then }

func (c *groupChange) fail(err error) { c.Error, c.err = err.Error(), err }

// rollout is a request in all groups.
type rollout struct {
	command *requestCommand
	request request.Request
	out     io.Writer

	mu      sync.Mutex // guards the output and finished
	changes []*groupChange
	nodes   []nodeBalance
	// finished counts the groups in which the request was carried out.
	finished int
}

// run shows what the request would do in each group, and submits it if that is confirmed.
func (r *rollout) run(ctx context.Context, s selection) error {
	if r.command.rebalance {
		r.planRebalance(ctx, s)
	} else {
		r.plan(ctx, s)
	}
	todo := r.todo()
	if err := r.showPlan(todo); err != nil {
		return err
	}
	if len(todo) > 0 && !r.command.dry {
		if err := r.command.confirm(len(todo)); err != nil {
			return err
		}
		r.submitAll(ctx, todo)
	}
	return r.finish(todo)
}

func (r *rollout) plan(ctx context.Context, s selection) {
	r.changes = make([]*groupChange, len(s.groups))
	s.each(ctx, func(ctx context.Context, i int, g group) {
		c := &groupChange{Group: g.name, g: g}
		r.changes[i] = c
		plan, err := operator.GroupPlan{}, g.err
		if err == nil {
			plan, err = g.submitter().Plan(ctx, r.request)
		}
		c.Now, c.Then, c.Messages = plan.Now, plan.Then, plan.Messages
		switch {
		case err == nil:
		case operator.NotAffected(err):
			c.NotAffected, c.Then, c.err = true, c.Now, err
			c.done = nothingToDo(err)
		default:
			c.Then = c.Now
			c.fail(err)
		}
	})
}

// todo returns the groups to submit the request in: first those whose leader stays.
func (r *rollout) todo() []*groupChange {
	var stay, move []*groupChange
	for _, c := range r.changes {
		switch {
		case c.NotAffected || c.Error != "":
		case c.moves():
			move = append(move, c)
		default:
			stay = append(stay, c)
		}
	}
	return append(stay, move...)
}

func (r *rollout) showPlan(todo []*groupChange) error {
	if r.json() {
		return nil
	}
	none, moving := 0, 0
	t := newTable(r.out, "GROUP", "LEADS NOW", "WOULD LEAD", "PLAN")
	for _, c := range r.changes {
		text := strings.Join(c.Messages, "; ")
		switch {
		case c.NotAffected:
			none++
			continue
		case c.Error != "":
			text = "refused: " + c.Error
		case c.moves():
			moving++
		}
		t.row(c.Group, nobody(c.Now), nobody(c.Then), text)
	}
	fmt.Fprintf(t, "\n%d of %d groups change, %d of them their leader; %d are not affected\n\n", len(todo),
		len(r.changes), moving, none)
	if err := t.Flush(); err != nil || !r.command.rebalance {
		return err
	}
	return r.showBalance()
}

func nobody(id string) string { return cmp.Or(id, "none") }

// submitAll submits the request in each group. Leadership moves in a limited number of groups at once. If it does not
// move in one, the groups that have not begun are left alone.
func (r *rollout) submitAll(ctx context.Context, todo []*groupChange) {
	var stuck atomic.Bool
	waiting, stop := interruptible(ctx)
	defer stop()
	var running errgroup.Group
	running.SetLimit(r.command.parallel)
	for i, c := range todo {
		// If there are groups left to begin, one must wait for this one.
		wait := c.moves() && (r.command.wait || i+r.command.parallel < len(todo))
		running.Go(func() error {
			if waiting.Err() != nil {
				c.fail(exitError{statusFailed, errors.New("not submitted, because this was interrupted")})
				return nil
			}
			if stuck.Load() {
				c.fail(exitError{statusFailed, errors.New("not submitted, because leadership has not moved in another group")})
				return nil
			}
			if err := r.submit(ctx, waiting, c, wait); err != nil {
				c.fail(err)
				if c.Request != 0 { // it is in force, but leadership has not moved
					stuck.Store(true)
				}
			}
			r.progress(c, len(todo))
			return nil
		})
	}
	_ = running.Wait() // each change has its own error
}

// submit submits the request in one group, and waits until waiting ends. It opens a session for the group, which writes
// with the ACL of the group's root.
func (r *rollout) submit(ctx, waiting context.Context, c *groupChange, wait bool) (err error) {
	g := c.g
	if g.session, err = connect(ctx, g.cfg, g.host.From); err != nil {
		return err
	}
	defer operator.Disconnect(ctx, g.session)
	if err := g.adoptACL(ctx); err != nil {
		return err
	}
	c.report.result = result{Messages: []string{}, json: true} // the steps of many groups would be mixed up
	return r.command.carryOut(ctx, waiting, g, wait, &c.report, func(q whatif.Question) (request.Plan, error) {
		if r.command.rebalance {
			q.Placement = c.placement
		}
		return r.request.Plan(q)
	})
}

// progress reports that a group is done.
func (r *rollout) progress(c *groupChange, of int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Error == "" {
		r.finished++
	}
	if r.json() {
		return
	}
	text := strings.Join(c.Messages, "; ")
	switch {
	case c.Error != "":
		text = "failed: " + c.Error
	case c.Leader != "":
		text = fmt.Sprintf("%s (%s) leads in term %d", c.Leader, c.Site, c.Term)
		if c.Leaderless != nil {
			text += fmt.Sprintf(", %s without a leader", c.Leaderless.Rounded())
		}
	}
	fmt.Fprintf(r.out, "%d of %d  %s: %s\n", r.finished, of, printable(c.Group), printable(text))
}

func (r *rollout) json() bool { return *r.command.output == "json" }

// finish prints the result as JSON, and returns an error if a group refused the request or has not carried it out.
func (r *rollout) finish(todo []*groupChange) error {
	var err error
	if r.json() {
		err = printJSON(r.out, rolloutResult{r.nodes, r.changes})
	}
	var bad []string
	for _, c := range r.changes {
		if c.Error != "" {
			bad = append(bad, c.Group+" ("+c.Error+")")
		}
	}
	slices.Sort(bad)
	switch {
	case len(bad) > 0:
		return errors.Join(err, exitError{r.failure(), fmt.Errorf("done in %d groups, not in %d: %s", r.finished,
			len(bad), some(bad))})
	case len(todo) == 0:
		return errors.Join(err, r.nothing())
	}
	return err
}

// failure returns the exit status if some groups have failed: that of all of them, or that of a request that was
// carried out in some groups only.
func (r *rollout) failure() int {
	status := 0
	for _, c := range r.changes {
		if c.Error == "" {
			continue
		}
		if now := exitStatus(c.err); status == 0 {
			status = now
		} else if now != status {
			return statusFailed
		}
	}
	if r.finished > 0 && status != statusTimedOut {
		return statusFailed
	}
	return status
}

// nothing returns an error if no group is affected, unless that is because a group is already as requested.
func (r *rollout) nothing() error {
	why := ""
	if r.command.rebalance {
		return nil // all is as it should be
	}
	for _, c := range r.changes {
		if c.done != "" {
			if !r.json() {
				fmt.Fprintln(r.out, printable(c.done))
			}
			return nil
		}
		if c.err != nil {
			why = ": " + c.err.Error()
		}
	}
	return refuse("no group is affected%s", why)
}

// nodeBalance is how many groups a node leads before and after the leaders of all groups are elected anew.
type nodeBalance struct {
	Node   string `json:"node"`
	Before int    `json:"leads_before"`
	After  int    `json:"leads_after"`
}

func reelectCommand(cmd *command) {
	c := newRequestCommand(cmd, "reelect", "Run the election again, by policy alone",
		`Reelect has the elector choose the best member now, regardless of failback and
policy.max_preemptions. It ends a move that is in force.

With --all it shows which of several groups would have another leader if each was elected
anew, and then has those elected, a few at a time. That is for policies that do not move a
healthy leader by themselves: fewest, and policy.failback manual, the default of most.
Under fewest, a group moves from a node above 1.1 times the mean to one that leads fewer.
Groups with slots are left as they are: their slots move by themselves to the nodes that
lead fewest, as failback permits.`)
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

// reelected is complete when the reelection was held and there is a READY leader.
func reelected(s cluster.Snapshot, plan request.Plan) (bool, error) {
	d, _ := s.Control.Record.Ended(plan.ID)
	if strings.HasSuffix(d.Outcome, cluster.ElectedOutcome) || strings.HasSuffix(d.Outcome, cluster.StaysOutcome) {
		return s.Ready(), nil
	}
	r := s.Control.Record.Reelect
	return false, checkEnded(s, plan, r != nil && r.ID == plan.ID)
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
	r.planReelections(questions)
}

// planReelections plans the reelection of each group in question. Those with slots are skipped.
func (r *rollout) planReelections(questions []whatif.Question) {
	var leaders []whatif.Question
	var of []*groupChange // by leader
	before := make(map[string]int)
	for i, c := range r.changes {
		if c.Error != "" {
			continue
		}
		if c.NotAffected = questions[i].Slots != nil; c.NotAffected {
			c.Messages = []string{"skipped, because it has slots: to move the first one, run " +
				cluster.InGroup("'zkelectd reelect'", c.Group+"/0")}
		}
		for _, m := range questions[i].Snapshot.Members {
			before[m.ID] += 0 // a node that leads nothing is shown, too
		}
		for _, q := range questions[i].Leaders() {
			leaders, of = append(leaders, q), append(of, c)
			if id := operator.Leader(q.Snapshot); id != "" {
				before[id]++
			}
		}
	}
	after := maps.Clone(before)
	whatif.InTurn(leaders, func(i int, q whatif.Question) string {
		c := of[i]
		if c.NotAffected {
			return operator.Leader(q.Snapshot)
		}
		c.planReelection(q, r.request)
		if c.moves() {
			after[c.Then]++
			after[c.Now]--
		}
		return c.Then
	})
	for _, id := range slices.SortedFunc(maps.Keys(before), cluster.CompareNodes) {
		r.nodes = append(r.nodes, nodeBalance{id, before[id], after[id]})
	}
}

// planReelection plans the reelection of a group without slots.
func (c *groupChange) planReelection(q whatif.Question, req request.Request) {
	c.placement = q.Placement
	plan, err := operator.PlanOf(q, req)
	switch {
	case err != nil:
		c.fail(err)
	case plan.Then == "" || plan.Then == c.Now:
		c.NotAffected = true
	default:
		c.Then, c.Messages = plan.Then, []string{plan.Reason}
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
		fmt.Fprintf(t, "\nthe most that a node leads is %.2f times the mean, and would be %.2f times\n\n",
			float64(now)/mean, float64(then)/mean)
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
