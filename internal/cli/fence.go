package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/guard"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/work/fencer"
)

func fenceCommand(c *command) {
	var yes, dry bool
	c.Use = "fence NODE"
	c.Short = "Switch a node off, with the fencing of this host's configuration"
	c.Long = `Fence switches off the host of a node, as a candidate does when it takes over from a lost
leader: with the command, the agent or the levels of fencing in the configuration, on a
host that has it. It asks you to type the name of the node first.

It changes nothing in the group: a node that leads is replaced once its session has
ended, after the lease wait or as fencing.skip_wait says.

With --dry-run it only asks the agents whether they could fence the node. A command
cannot be asked. 'zkelectd history --fencing' lists what people have fenced.

The exit status is 0 if the node is certainly off, and 1 if that is not certain.`
	c.Args = cobra.ExactArgs(1)
	c.Flags().BoolVar(&yes, "yes", false, "do it without asking")
	c.Flags().BoolVar(&dry, "dry-run", false, "only ask the agents whether they could fence the node")
	c.run = func(ctx context.Context, g group, args []string) error {
		ctx, stop := signal.NotifyContext(ctx, guard.NotIgnored(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
		defer stop()
		f := operator.Fencing(g.cfg)
		if !f.Enabled() {
			return refuse("the configuration has no fencing: run this on a host of the group, or name its configuration with --config")
		}
		if err := f.Fences(args[0]); err != nil {
			return refuse("%w", err)
		}
		if dry {
			return monitorNode(ctx, c.OutOrStdout(), f, args[0])
		}
		return g.fence(ctx, c.InOrStdin(), c.OutOrStdout(), f, args[0], yes)
	}
}

// monitorNode asks the agents whether they could fence a node.
func monitorNode(ctx context.Context, w io.Writer, f fencer.Config, node string) error {
	if err := f.Monitor(ctx, node, fencer.Run); err != nil {
		return err
	}
	agents := 0
	for _, l := range f.Levels {
		if _, known := l.Nodes[node]; known {
			agents++
		}
	}
	if agents == 0 {
		_, err := fmt.Fprintf(w, "not known: %s would be fenced by a command, which cannot be asked\n", printable(node))
		return err
	}
	_, err := fmt.Fprintf(w, "%s could be fenced\n", printable(node))
	return err
}

// fence switches a node off for a person, and records that.
func (g group) fence(ctx context.Context, in io.Reader, w io.Writer, f fencer.Config, node string, yes bool) error {
	snap, err := g.read(ctx)
	if err != nil {
		return err
	}
	target := fencer.Target{Group: g.name, Node: node, By: whoami()}
	role := "is not a member"
	for _, m := range snap.Members {
		if m.ID == node && !m.Superseded {
			rec := m.Node.Record
			target.Host, target.Site, target.Address, role = rec.Host, rec.Site, rec.API, "is a member"
		}
	}
	if last := snap.Fence.Record; last.Node == node {
		target.Term, target.Host = last.Term, cmp.Or(target.Host, last.Host)
		target.Site, target.Address = cmp.Or(target.Site, last.Site), cmp.Or(target.Address, last.API)
		if status.Of(g.name, g.paths.Root, snap).Leader == node {
			role = fmt.Sprintf("LEADS %s in term %d", g.name, last.Term)
		}
	}
	fmt.Fprintf(w, "%s (host %s) %s. It will be switched off, which may take %s.\n", printable(node), printable(cmp.Or(target.Host, "not known")), printable(role), f.Limit())
	if !yes {
		if err := confirmTyped(in, w, "the name of the node", node, "--yes"); err != nil {
			return err
		}
	}
	act := cluster.FencingAct{Node: node, By: target.By, Time: time.Now().UTC()}
	if err := g.recordFencing(ctx, act); err != nil { // to fence matters more
		fmt.Fprintln(w, "warning: not recorded:", printable(err.Error()))
	}
	by, err := f.Fence(ctx, target, fencer.Run)
	act.Result, act.Level = cluster.FencingSucceeded, by
	if err != nil {
		act.Result, act.Error = cluster.FencingFailed, cluster.FencingText(err.Error())
		err = fmt.Errorf("it is not certain that %s is off: %w", node, err)
	} else {
		fmt.Fprintf(w, "%s is off (%s)\n", printable(node), printable(by))
	}
	if recErr := g.recordFencing(context.WithoutCancel(ctx), act); recErr != nil {
		err = errors.Join(err, fmt.Errorf("the outcome was not recorded: %w", recErr))
	}
	return err
}

func (g group) recordFencing(ctx context.Context, act cluster.FencingAct) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	return operator.RecordFencing(ctx, g.session, g.paths, act)
}

// showFencings lists what people have fenced.
func showFencings(ctx context.Context, w io.Writer, g group, n int, output string) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	read, err := operator.ReadFencings(ctx, g.session, g.paths)
	if err != nil {
		return err
	}
	if read.Err != nil {
		return fmt.Errorf("%w; the command fence replaces it the next time", read.Err)
	}
	acts := append([]cluster.FencingAct{}, read.Record.Acts...)
	acts = acts[max(0, len(acts)-n):]
	if output == "json" {
		return printJSON(w, acts)
	}
	t := newTable(w, "TIME", "NODE", "BY", "RESULT", "DETAILS")
	for _, a := range acts {
		t.row(a.Time.Local().Format(time.DateTime), a.Node, a.By, cmp.Or(a.Result, "no outcome"), cmp.Or(a.Error, a.Level))
	}
	return t.Flush()
}
