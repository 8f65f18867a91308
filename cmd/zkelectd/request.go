package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator"
	"zkelectd/internal/procinfo"
	"zkelectd/internal/request"
)

// requestCommand is a command that submits an operator request.
type requestCommand struct {
	cmd      *cobra.Command
	reason   string
	duration time.Duration
	force    bool
	wait     bool
	timeout  time.Duration
	output   string
}

// newRequestCommand returns a command with the flags that all requests have.
func newRequestCommand(use, short, long string) *requestCommand {
	c := &requestCommand{cmd: &cobra.Command{Use: use, Short: short, Long: long, Args: cobra.NoArgs}}
	config.RegisterConnection(c.cmd.Flags())
	c.cmd.Flags().StringVar(&c.reason, "reason", "", fmt.Sprintf("the reason, shown by status and history; at most %d bytes", request.MaxReason))
	outputFlag(c.cmd, &c.output)
	return c
}

// withFor adds the flag --for.
func (c *requestCommand) withFor(value time.Duration, usage string) {
	c.cmd.Flags().DurationVar(&c.duration, "for", value, usage)
}

// withWait adds the flags --wait and --timeout.
func (c *requestCommand) withWait(usage string) {
	c.cmd.Flags().BoolVar(&c.wait, "wait", false, usage)
	c.cmd.Flags().DurationVar(&c.timeout, "timeout", 2*time.Minute, "how long to wait with --wait")
}

// withForce adds the flag --force.
func (c *requestCommand) withForce(usage string) {
	c.cmd.Flags().BoolVar(&c.force, "force", false, usage)
}

// submits returns the command, with the request that it submits. done reports when the request has taken effect; nil if
// the command has no --wait.
func (c *requestCommand) submits(build func(args []string) request.Request, done completion) *cobra.Command {
	c.cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if c.duration < 0 || (cmd.Flags().Changed("for") && c.duration == 0) {
			return errors.New("--for must be more than 0s; leave it out for a request that does not expire")
		}
		if err := checkOutput(c.output); err != nil {
			return err
		}
		req := build(args)
		req.Options = request.Options{By: whoami(), Reason: c.reason, For: c.duration, Force: c.force}
		if err := req.Check(); err != nil {
			return err
		}
		return withGroup(cmd, func(ctx context.Context, g group) error {
			plan, err := g.submitter().Submit(ctx, req.Plan)
			if err != nil {
				return err
			}
			r := report{Request: plan.ID, Messages: plan.Messages, out: cmd.OutOrStdout(), json: c.output == "json"}
			r.say(plan.Messages...)
			if c.wait && done != nil {
				err = await(ctx, g, plan, c.timeout, done, &r)
			}
			return errors.Join(err, r.finish())
		})
	}
	return c.cmd
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

	out  io.Writer
	json bool
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
	return operator.Submitter{Conn: g.session, Paths: g.paths, Config: g.cfg, Read: answerTimeout, Write: answerTimeout}
}

// whoami returns the user who runs this command, as user@host.
func whoami() string {
	return procinfo.AtHost(cmp.Or(os.Getenv("SUDO_USER"), procinfo.UserName(os.Getuid())))
}
