package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
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
	c.Flags().StringVar(&c.reason, "reason", "", fmt.Sprintf("the reason, shown by status and history; at most %d bytes", request.MaxReason))
	c.output = c.outputFlag()
	return c
}

// inMany permits the request in all groups at once. moves is set if it can move leadership: then that is done in a few groups at
// a time.
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

// interactive reports whether a person can be asked.
func (c *requestCommand) interactive() bool {
	f, ok := c.InOrStdin().(*os.File)
	return ok && *c.output == "table" && isTerminal(f)
}

// withFor adds the flag --for.
func (c *requestCommand) withFor(usage string) { durationFlag(c.command, &c.duration, "for", 0, usage) }

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

// withForce adds the flag --force.
func (c *requestCommand) withForce(usage string) {
	c.Flags().BoolVar(&c.force, "force", false, usage)
}

// submits completes the command, with the request that it submits. done reports when the request has taken effect; nil if the command
// has no --wait.
func (c *requestCommand) submits(build func(args []string) request.Request, done completion) {
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
			all := rollout{command: c, request: req, done: done, out: c.OutOrStdout(), in: c.InOrStdin()}
			return all.run(ctx, s)
		}
		permit := wholeGroup
		if req.Kind.OfSlot() {
			permit = oneLeader
		}
		return s.withOnly(ctx, permit, func(ctx context.Context, g group) error { return c.submit(ctx, g, req, done) })
	}
}

// submit submits the request in one group.
func (c *requestCommand) submit(ctx context.Context, g group, req request.Request, done completion) error {
	waiting := ctx
	if c.wait {
		var stop context.CancelFunc
		waiting, stop = interruptible(ctx) // from here on: the request may be in force
		defer stop()
	}
	before := c.leadersTerm(ctx, g)
	plan, err := c.planOrSubmit(ctx, g, req)
	if done := nothingToDo(err); done != "" {
		plan, err = request.Plan{Messages: []string{done}}, nil
	} else if err != nil {
		return err
	}
	r := report{Request: plan.ID, Messages: plan.Messages, out: c.OutOrStdout(), json: *c.output == "json", before: before}
	r.say(plan.Messages...)
	if c.wait && done != nil && plan.ID != 0 {
		err = await(waiting, g, plan, c.timeout, done, &r)
	}
	return errors.Join(err, r.finish())
}

// leadersTerm returns the term of the READY leader for --wait: a request that leaves it in place has left no gap. It is 0 if there is
// none.
func (c *requestCommand) leadersTerm(ctx context.Context, g group) int64 {
	if !c.wait || c.dry || g.manyLeaders() {
		return 0
	}
	snap, err := g.read(ctx)
	if err != nil || !snap.Ready() {
		return 0 // submitting finds out why
	}
	return snap.Current.Record.Term
}

// planOrSubmit submits a request. With --dry-run it only returns the plan, with who would lead and what would hold a better member
// back; its number is 0 then.
func (c *requestCommand) planOrSubmit(ctx context.Context, g group, req request.Request) (request.Plan, error) {
	if !c.dry {
		return g.submitter().Submit(ctx, req.Plan)
	}
	q, err := g.submitter().Question(ctx)
	if err != nil {
		return request.Plan{}, err
	}
	lines, err := operator.DryRun(q, req)
	if err != nil {
		return request.Plan{}, err
	}
	return request.Plan{Messages: append(lines, "dry run: nothing was submitted")}, nil
}

// nothingToDo returns what to say if a request was not submitted because the group is already as requested; otherwise "".
func nothingToDo(err error) string {
	var none *request.NotAffectedError
	if !errors.As(err, &none) || !none.Done {
		return ""
	}
	return "nothing to do: " + none.Reason
}

// report shows the progress of a request: line by line as text, or at the end as JSON.
type report struct {
	Request    int64             `json:"request"`
	Messages   []string          `json:"messages"`
	Leader     string            `json:"leader,omitempty"`
	Site       string            `json:"site,omitempty"`
	Term       int64             `json:"term,omitempty"`
	Took       cluster.Duration  `json:"took,omitempty"`
	Leaderless *cluster.Duration `json:"leaderless,omitempty"`

	out    io.Writer
	json   bool
	before int64 // the term of the leader before the request; 0 if there was none, or that is not known
}

func (r *report) say(lines ...string) {
	for _, line := range lines {
		if !r.json {
			fmt.Fprintln(r.out, printable(line))
		}
	}
}

func (r *report) finish() error {
	if !r.json {
		return nil
	}
	return printJSON(r.out, r)
}

// submitter submits operator requests on the session of a command.
func (g group) submitter() operator.Submitter {
	return operator.Submitter{Conn: g.session, Paths: g.paths, Slots: g.manyLeaders(), Config: g.cfg, Neighbors: g.neighbors(), Read: operator.AnswerTimeout, Write: operator.AnswerTimeout}
}

// whoami returns the user who runs this command, as user@host.
func whoami() string {
	return procinfo.AtHost(cmp.Or(os.Getenv("SUDO_USER"), procinfo.UserName(os.Getuid())))
}
