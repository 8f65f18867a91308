package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/daemon"
	"zkelectd/internal/forecast"
	"zkelectd/internal/operate"
)

// order is a command that asks the elector for something.
type order struct {
	cmd    *cobra.Command
	reason string
	lasts  time.Duration
	force  bool
	wait   bool
	limit  time.Duration
	output string
}

// newOrder returns a command with the flags that all orders have.
func newOrder(use, short, long string) *order {
	o := &order{cmd: &cobra.Command{Use: use, Short: short, Long: long, Args: cobra.NoArgs}}
	config.RegisterConnection(o.cmd.Flags())
	o.cmd.Flags().StringVar(&o.reason, "reason", "", "why, for the others: shown by status and history")
	outputFlag(o.cmd, &o.output)
	return o
}

func (o *order) lasting(usual time.Duration, usage string) {
	o.cmd.Flags().DurationVar(&o.lasts, "for", usual, usage)
}

func (o *order) waiting(usage string) {
	o.cmd.Flags().BoolVar(&o.wait, "wait", false, usage)
	o.cmd.Flags().DurationVar(&o.limit, "timeout", 2*time.Minute, "how long --wait waits")
}

func (o *order) forcing(usage string) { o.cmd.Flags().BoolVar(&o.force, "force", false, usage) }

// does sets what the command asks for, and when that has come about; arrived may be nil for what cannot be waited for.
func (o *order) does(ask func(q forecast.Question, by operate.Order, args []string) (operate.Given, error), arrived arrival) *cobra.Command {
	o.cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.lasts < 0 || (cmd.Flags().Changed("for") && o.lasts == 0) {
			return errors.New("--for must be more than 0s; leave it out for an order without end")
		}
		if err := checkOutput(o.output); err != nil {
			return err
		}
		return withConfig(cmd, func(ctx context.Context, g group) error {
			by := operate.Order{By: whoami(), Reason: o.reason, For: o.lasts, Force: o.force}
			given, err := give(ctx, g, func(q forecast.Question) (operate.Given, error) { return ask(q, by, args) })
			if err != nil {
				return err
			}
			r := report{Order: given.ID, Says: given.Says, out: cmd.OutOrStdout(), json: o.output == "json"}
			r.say(given.Says...)
			if o.wait && arrived != nil {
				err = await(ctx, g, given, o.limit, arrived, &r)
			}
			return errors.Join(err, r.finish())
		})
	}
	return o.cmd
}

// report tells how an order goes: line by line to people, at the end as JSON.
type report struct {
	Order      int64          `json:"order"`
	Says       []string       `json:"says"`
	Leader     string         `json:"leader,omitempty"`
	Site       string         `json:"site,omitempty"`
	Term       int64          `json:"term,omitempty"`
	Took       time.Duration  `json:"took_ns,omitempty"`
	Leaderless *time.Duration `json:"leaderless_ns,omitempty"`

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

// give has an order made out for the group as it is, and writes it. Of two operators at once one wins, and the other is
// told by whom.
func give(ctx context.Context, g group, ask func(forecast.Question) (operate.Given, error)) (operate.Given, error) {
	last := int64(-1)
	for {
		snap, err := g.read(ctx)
		if err != nil {
			return operate.Given{}, err
		}
		if c := snap.Control.Record; last >= 0 && c.Last != last {
			return operate.Given{}, fmt.Errorf("not done: there was another order at the same time, %s; see 'zkelectd status', and give yours again if it still holds", c.LastOrder)
		}
		last = snap.Control.Record.Last
		q, err := g.question(ctx, snap)
		if err != nil {
			return operate.Given{}, err
		}
		given, err := ask(q)
		if err != nil {
			return given, err
		}
		err = g.write(ctx, g.paths.ControlTx("", snap.Control, given.Control)...)
		switch {
		case err == nil:
			return given, nil
		case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNodeExists):
			// The elector keeps its time in it, or another operator was faster.
		case errors.Is(err, cluster.ErrUnknown):
			return given, fmt.Errorf("the connection broke while znode %s was written: see 'zkelectd status' whether it was: %w", g.paths.Control(), err)
		default:
			return given, fmt.Errorf("cannot write znode %s: %w", g.paths.Control(), err)
		}
	}
}

// question asks about the group as it is, under the policy in force.
func (g group) question(ctx context.Context, snap cluster.Snapshot) (forecast.Question, error) {
	q, err := daemon.Question(g.cfg, snap)
	q.Ask = daemon.Asker(ctx, g.cfg)
	return q, err
}

// whoami is user@host.
func whoami() string {
	name := os.Getenv("SUDO_USER")
	if u, err := user.Current(); name == "" && err == nil {
		name = u.Username
	}
	if name == "" {
		name = fmt.Sprintf("uid %d", os.Getuid())
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}
