package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/sys/procinfo"
)

// requestCommand is a command that submits an operator request.
type requestCommand struct {
	*command
	reason   string
	duration time.Duration
	force    bool
	wait     bool
	timeout  time.Duration
	dry      bool
	output   *string
	// done reports when the request has taken effect; nil if the command has no --wait for one group.
	done completion
	// many is set if it can be submitted in all groups at once; the fields below are for that.
	many bool
	// rebalance is set to plan the groups with regard to each other, and to leave alone those whose leader stays.
	rebalance bool
	yes       bool
	parallel  int
}

// newRequestCommand returns a command with the flags that all requests have.
func newRequestCommand(cmd *command, use, short, long string) *requestCommand {
	c := &requestCommand{command: cmd}
	c.Use, c.Short, c.Long = use, short, long
	c.Flags().StringVar(&c.reason, "reason", "", fmt.Sprintf("the reason, shown by status and history; "+
		"at most %d bytes", request.MaxReason))
	c.output = c.outputFlag()
	return c
}

// inMany permits the request in all groups at once. moves is set if it can move leadership: then that is done in a few
// groups at a time.
func (c *requestCommand) inMany(moves bool) {
	c.many, c.parallel = true, 10
	c.Long = strings.TrimSpace(c.Long + `

If zookeeper.root has several groups and none is named with -g, it is done in all of them,
after the plan for each has been shown.`)
	f := c.Flags()
	f.BoolVar(&c.yes, "yes", false, "with several groups: do it without asking")
	if !moves {
		return
	}
	f.IntVar(&c.parallel, "parallel", c.parallel, "with several groups: in how many of them leadership may move at once")
	if f.Lookup("wait") == nil {
		c.withWait("with several groups: wait until leadership has moved in all of them")
	}
}

// confirm asks the person at the terminal, unless --yes says that there is no need.
func (c *requestCommand) confirm(groups int) error {
	if c.yes {
		return nil
	}
	asked := c.result(c.output)
	return asked.ask(fmt.Sprintf("Do this in %d groups?", groups), "--yes, or name one group with -g")
}

// withWait adds the flags --wait and --timeout.
func (c *requestCommand) withWait(usage string) {
	c.Flags().BoolVar(&c.wait, "wait", false, usage)
	durationFlag(c.command, &c.timeout, "timeout", 2*time.Minute, "how long to wait with --wait")
}

// needsTarget makes the command refuse a command line that names no target.
func (c *requestCommand) needsTarget(flags ...string) {
	c.Args = func(cmd *cobra.Command, args []string) error {
		for _, name := range flags {
			if cmd.Flags().Changed(name) {
				return cobra.MaximumNArgs(1)(cmd, args)
			}
		}
		return cobra.ExactArgs(1)(cmd, args)
	}
}

// submits completes the command, with the request that it submits, and done.
func (c *requestCommand) submits(build func(args []string) request.Request, done completion) {
	c.done = done
	c.Flags().BoolVar(&c.dry, "dry-run", false, "print what would happen, without submitting the request")
	refuse, req := c.check, request.Request{}
	c.check = func(args []string) error {
		if refuse != nil {
			if err := refuse(args); err != nil {
				return err
			}
		}
		if c.duration < 0 || (c.Flags().Changed("for") && c.duration == 0) {
			return errors.New("--for must be more than 0s; leave it out for a request that does not expire")
		}
		req = build(args)
		req.Options = request.Options{By: whoami(), Reason: c.reason, For: c.duration, Force: c.force}
		if c.many && c.parallel < 1 {
			return errors.Join(req.Check(), fmt.Errorf("--parallel %d: must be 1 or more", c.parallel))
		}
		return req.Check()
	}
	c.runMany = func(ctx context.Context, s selection, _ []string) error {
		if s.base == "" && c.rebalance {
			return errors.New("--all is for several groups: leave it out to elect the leader of this one anew")
		}
		if s.base != "" && c.many {
			all := rollout{command: c, request: req, out: c.OutOrStdout()}
			return all.run(ctx, s)
		}
		permit := wholeGroup
		if req.Kind.OfSlot() {
			permit = oneLeader
		}
		return s.withOnly(ctx, permit, func(ctx context.Context, g group) error { return c.submit(ctx, g, req) })
	}
}

// submit submits the request in one group. With --dry-run it only prints the plan, with who would lead and what would
// hold a better member back.
func (c *requestCommand) submit(ctx context.Context, g group, req request.Request) (err error) {
	r := report{result: c.result(c.output)}
	waiting := ctx
	if c.wait {
		var stop context.CancelFunc
		waiting, stop = interruptible(ctx) // from here on: the request may be in force
		defer stop()
	}
	if c.dry {
		err = r.dryRun(ctx, g, req)
	} else {
		err = c.carryOut(ctx, waiting, g, c.wait && c.done != nil, &r, req.Plan)
	}
	if done := nothingToDo(err); done != "" {
		r.say("%s", done)
		err = nil
	}
	return r.finish(&r, err)
}

// carryOut submits a request in one group, and with wait follows it, while waiting is not done, until it has taken
// effect.
func (c *requestCommand) carryOut(ctx, waiting context.Context, g group, wait bool, r *report,
	planner func(whatif.Question) (request.Plan, error)) error {
	var before cluster.Current
	if wait && !g.manyLeaders() {
		snap, err := g.read(ctx)
		if err != nil {
			return err
		}
		if before = snap.Current.Record; snap.Ready() {
			r.before = before.Term
		}
	}
	plan, err := g.submitter().Submit(ctx, planner)
	if err != nil {
		return err
	}
	r.Request = plan.ID
	r.sayLines(plan.Messages)
	if !wait {
		return nil
	}
	done := c.done
	if done == nil {
		done = func(s cluster.Snapshot, _ request.Plan) (bool, error) {
			return s.Ready() && s.Current.Record.Term > before.Term, nil
		}
	}
	return await(waiting, g, plan, c.timeout, done, r)
}

// dryRun says what a request would do.
func (r *report) dryRun(ctx context.Context, g group, req request.Request) error {
	q, err := g.submitter().Question(ctx)
	if err != nil {
		return err
	}
	lines, err := operator.DryRun(q, req)
	if err != nil {
		return err
	}
	r.sayLines(append(lines, "dry run: nothing was submitted"))
	return nil
}

// nothingToDo returns what to say if a request was not submitted because the group is already as requested; otherwise
// "".
func nothingToDo(err error) string {
	var none *request.NotAffectedError
	if !errors.As(err, &none) || !none.Done {
		return ""
	}
	return "nothing to do: " + none.Reason
}

// report is the output of a request. As text, it also has the steps on the way.
type report struct {
	result
	Request    int64            `json:"request"`
	Leader     string           `json:"leader,omitempty"`
	Site       string           `json:"site,omitempty"`
	Term       int64            `json:"term,omitempty"`
	Took       cluster.Duration `json:"took,omitempty"`
	Leaderless *cluster.Gap     `json:"leaderless,omitempty"`

	before int64 // the term of the leader before the request; 0 if there was none, or that is not known
}

// step says what happens.
func (r *report) step(format string, args ...any) {
	if !r.json {
		r.say(format, args...)
	}
}

// submitter submits operator requests on the session of a command.
func (g group) submitter() operator.Submitter {
	return operator.Submitter{Conn: g.session, Paths: g.paths, Slots: g.manyLeaders(), Config: g.cfg,
		Neighbors: g.neighbors(), Read: operator.AnswerTimeout, Write: operator.AnswerTimeout}
}

// whoami returns the user who runs this command, as user@host.
func whoami() string {
	return procinfo.AtHost(cmp.Or(os.Getenv("SUDO_USER"), procinfo.UserName(os.Getuid())))
}

// operation describes a command that submits a request. It has flags for the fields that requests of its kind take.
type operation struct {
	kind             request.Kind
	use, short, long string
	// many is set if it can be submitted in all groups at once, moves if it can then move leadership.
	many, moves bool
	// The usage of the flags; all is called --lost for forget.
	all, lasts, force, wait string
	done                    completion
	examples                []string
}

const lasts = "how long it stays in force (default: without end)"

// operations are the commands that submit a request, apart from move and reelect.
var operations = []operation{
	{
		kind: request.KindCordon, use: "cordon NODE | SITE", short: "Keep a node or site from being elected",
		long: `A cordoned node is not elected. If it leads, it keeps leading; see drain.`,
		many: true, lasts: lasts, examples: []string{"cordon n1 --for 2d", `cordon dc1 --reason "power works"`},
	},
	{
		kind: request.KindUncordon, use: "uncordon NODE | SITE | --all", short: "End a cordon or a drain",
		many: true, moves: true, all: "end all of them", examples: []string{"uncordon n1", "uncordon --all --yes"},
	},
	{
		kind: request.KindDrain, use: "drain NODE | SITE", short: "Cordon a node or site, and move leadership away from it",
		long: `Drain keeps a node or site from being elected, and replaces a leader there. An uncordon
of the same node or site ends it.`,
		many: true, moves: true, lasts: lasts, force: "cordon it even if no other member is eligible",
		wait: "wait until another leader is READY, and show the progress", done: ledElsewhere,
		examples: []string{`drain n1 --wait --reason "new disks"`, "drain dc1 --wait"},
	},
	{
		kind: request.KindPause, use: "pause", short: "Keep policy from replacing the leader",
		long: `While the group is paused, no reload, better member or failback replaces the leader. A
leader that dies, or fails its health probe, is still replaced, unless the pause is
--hard. Operator requests (move, drain, ...) still take effect, except in a hard pause.`,
		many: true, lasts: "how long it stays in force (default: until 'zkelectd resume')",
		examples: []string{`pause --for 1h --reason "change freeze"`, "pause --hard -g billing"},
	},
	{
		kind: request.KindResume, use: "resume", short: "End a pause", many: true, moves: true,
		examples: []string{"resume", "resume -g billing"},
	},
	{
		kind: request.KindClearStrikes, use: "clear-strikes NODE | --all", short: "Clear the strikes of a node, or of all",
		all: "clear the strikes of all nodes", examples: []string{"clear-strikes n1", "clear-strikes --all"},
	},
	{
		kind: request.KindApprove, use: "approve [NODE]", short: "Approve an election that waits for a person, or reject it",
		long: `With policy.confirm, the elector proposes an election instead of holding it: status shows
who would lead, and why. Approve has it held; with NODE only if that node is still the
one that is proposed. After --reject nobody is elected, until somebody approves it after
all, or there is a member that needs no approval.`,
		many: true, moves: true, wait: "wait until a leader is READY, and show the progress", done: approved,
		examples: []string{`approve n3 --wait --reason "dc1 has no power"`, "approve --reject -g billing"},
	},
	{
		kind: request.KindForget, use: "forget NODE | --lost", short: "Forget a node that is no longer a member",
		long: `The group remembers each node that has been a member: status shows it as LOST, or as
STOPPED or REMOVED if it left on purpose, and expects it to come back. Forget drops a
node that does not. It is refused while the node is a member.`,
		many: true, all: "forget all nodes that are lost", examples: []string{"forget n4", "forget --lost"},
	},
}

func (o operation) define(cmd *command) {
	r := request.Request{Kind: o.kind}
	c := newRequestCommand(cmd, o.use, o.short, o.long)
	f := c.Flags()
	targets := []string{}
	if o.kind.Takes(request.FieldSite) {
		f.StringVar(&r.Node, "node", "", "the node; like NODE, but never a site")
		f.StringVar(&r.Site, "site", "", "the site; like SITE, but never a node")
		targets = append(targets, "node", "site")
	}
	if o.kind.Takes(request.FieldAll) {
		name := "all"
		if o.kind == request.KindForget {
			name = "lost"
		}
		f.BoolVar(&r.All, name, false, o.all)
		targets = append(targets, name)
	}
	if o.kind.Takes(request.FieldHard) {
		f.BoolVar(&r.Hard, "hard", false, "elect no leader at all, not even when the leader dies")
	}
	if o.kind.Takes(request.FieldReject) {
		f.BoolVar(&r.Reject, "reject", false, "do not elect it")
	}
	if o.kind.Takes(request.FieldFor) {
		durationFlag(c.command, &c.duration, "for", 0, o.lasts)
	}
	if o.wait != "" {
		c.withWait(o.wait)
	}
	if o.kind.Takes(request.FieldForce) {
		f.BoolVar(&c.force, "force", false, o.force)
	}
	switch {
	case len(targets) > 0:
		c.needsTarget(targets...)
	case o.kind == request.KindApprove:
		c.Args = cobra.MaximumNArgs(1)
	}
	if o.many {
		c.inMany(o.moves)
	}
	c.submits(func(args []string) request.Request {
		if o.kind.Takes(request.FieldSite) {
			r.Target = optional(args)
		} else if len(args) > 0 {
			r.Node = args[0]
		}
		return r
	}, o.done)
}

// approved is complete when there is a READY leader of a later term than that of the proposal, or it was rejected. It
// fails if the proposal has ended without an election.
func approved(s cluster.Snapshot, plan request.Plan) (bool, error) {
	for _, p := range plan.Control.Proposals {
		if p.Answer == cluster.ProposalRejected || s.Ready() && s.Current.Record.Term > p.Term {
			return true, nil
		}
		// The decision is read first: it may be the one before that which has ended the proposal.
		d, over := s.Control.Record.Ended(p.ID)
		if over && s.Elected.Record.Term == p.Term && !strings.HasSuffix(d.Outcome, cluster.ElectedOutcome) {
			return false, exitError{statusFailed, fmt.Errorf("the proposal has ended: %s: %s", d.What, d.Outcome)}
		}
	}
	return false, nil
}

// ledElsewhere is complete when there is a READY leader that the request's cordon does not apply to.
func ledElsewhere(s cluster.Snapshot, plan request.Plan) (bool, error) {
	inForce := false
	for _, cordon := range plan.Control.Cordons {
		if cordon.ID == plan.ID && s.Ready() && !cordon.Matches(s.Current.Record.Node, s.Current.Record.Site) {
			return true, nil
		}
	}
	for _, cordon := range s.Control.Record.Cordons {
		inForce = inForce || cordon.ID == plan.ID
	}
	return false, checkEnded(s, plan, inForce)
}

// optional returns the only argument, "" if there is none.
func optional(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
