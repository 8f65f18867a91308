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

// requestCommand is a command that asks the elector for something.
type requestCommand struct {
	cmd    *cobra.Command
	reason string
	lasts  time.Duration
	force  bool
	wait   bool
	limit  time.Duration
	output string
}

// newRequestCommand returns a command with the flags that all requests have.
func newRequestCommand(use, short, long string) *requestCommand {
	o := &requestCommand{cmd: &cobra.Command{Use: use, Short: short, Long: long, Args: cobra.NoArgs}}
	config.RegisterConnection(o.cmd.Flags())
	o.cmd.Flags().StringVar(&o.reason, "reason", "", fmt.Sprintf("why, for the others: shown by status and history; at most %d bytes", request.MaxReason))
	outputFlag(o.cmd, &o.output)
	return o
}

func (o *requestCommand) lasting(usual time.Duration, usage string) {
	o.cmd.Flags().DurationVar(&o.lasts, "for", usual, usage)
}

func (o *requestCommand) waiting(usage string) {
	o.cmd.Flags().BoolVar(&o.wait, "wait", false, usage)
	o.cmd.Flags().DurationVar(&o.limit, "timeout", 2*time.Minute, "how long --wait waits")
}

func (o *requestCommand) forcing(usage string) {
	o.cmd.Flags().BoolVar(&o.force, "force", false, usage)
}

// does sets what the command asks for, and when that has come about; arrived may be nil for what cannot be waited for.
func (o *requestCommand) does(ask func(args []string) request.Request, arrived arrival) *cobra.Command {
	o.cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.lasts < 0 || (cmd.Flags().Changed("for") && o.lasts == 0) {
			return errors.New("--for must be more than 0s; leave it out for a request without end")
		}
		if err := checkOutput(o.output); err != nil {
			return err
		}
		req := ask(args)
		req.Options = request.Options{By: whoami(), Reason: o.reason, For: o.lasts, Force: o.force}
		if err := req.Check(); err != nil {
			return err
		}
		return withConfig(cmd, func(ctx context.Context, g group) error {
			plan, err := g.submitter().Submit(ctx, req.Plan)
			if err != nil {
				return err
			}
			r := report{Request: plan.ID, Messages: plan.Messages, out: cmd.OutOrStdout(), json: o.output == "json"}
			r.say(plan.Messages...)
			if o.wait && arrived != nil {
				err = await(ctx, g, plan, o.limit, arrived, &r)
			}
			return errors.Join(err, r.finish())
		})
	}
	return o.cmd
}

// report tells how a request goes: line by line to people, at the end as JSON.
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
			fmt.Fprintln(r.out, plain(line))
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
	return operator.Submitter{Conn: g.session, Paths: g.paths, Config: g.cfg, Read: answerLimit, Write: answerLimit}
}

// whoami returns the user who runs this command, as user@host.
func whoami() string {
	return procinfo.AtHost(cmp.Or(os.Getenv("SUDO_USER"), procinfo.UserName(os.Getuid())))
}
