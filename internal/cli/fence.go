package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/guard"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/request"
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

The exit status is 0 only if the node is certainly off.`
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

func forceCommand(c *command) {
	var f forcing
	c.Use = "force"
	c.Short = "Let a group elect a leader again after all hosts of failsafe mode were lost for good"
	c.Long = `Force is for one case: in failsafe mode the last leader and all members that had promised
to let nobody take over are lost for good, with their state directories. Then the group
has no leader, because one of them might still work.

It shows what is known, and asks you to type the group's name and the term. With that you
declare that the hosts it lists are powered off: IF ONE OF THEM STILL WORKS, THERE ARE TWO
LEADERS. Then the members elect one, which first waits as after any lost leader.

It refuses while the group has a leader, and while one of those nodes is registered: that
node ends the standstill by itself. So bring one back instead, if you can. A script gives
--confirm GROUP:TERM. See docs/failsafe.md.`
	c.Flags().StringVar(&f.confirm, "confirm", "", "the group's name and the term, as GROUP:TERM, instead of typing them")
	c.Flags().StringVar(&f.reason, "reason", "", fmt.Sprintf("the reason, shown by history; at most %d bytes", request.MaxReason))
	c.Flags().BoolVar(&f.dry, "dry-run", false, "only show what is known, and whether the group is stuck")
	c.check = func([]string) error {
		if len(f.reason) > request.MaxReason {
			return fmt.Errorf("--reason has %d bytes, more than %d", len(f.reason), request.MaxReason)
		}
		return nil
	}
	c.run = func(ctx context.Context, g group, _ []string) error {
		return f.run(ctx, g, c.InOrStdin(), c.OutOrStdout())
	}
}

// forcing is what the command force was given.
type forcing struct {
	confirm, reason string
	dry             bool
}

func (f forcing) run(ctx context.Context, g group, in io.Reader, w io.Writer) error {
	snap, err := g.read(ctx)
	if err != nil {
		return err
	}
	if err := snap.CheckStuck(); err != nil {
		return refuse("%s is not stuck in failsafe mode, and nothing was changed: %w", g.name, err)
	}
	if err := showStuck(w, g.name, &snap); err != nil || f.dry {
		return err
	}
	want := fmt.Sprintf("%s:%d", g.name, snap.Fence.Record.Term)
	if f.confirm == "" {
		if err := confirmTyped(in, w, "the group's name and the term", want, "--confirm "+want); err != nil {
			return err
		}
	} else if f.confirm != want {
		return refuse("nothing was done: --confirm must be %s", want)
	}
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	noted, err := operator.Force(ctx, g.session, g.paths, snap, cluster.Forced{By: whoami(), Reason: f.reason, Time: time.Now().UTC()})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "done: the members of %s may elect a leader; it waits %s before its work\n", printable(g.name), longestWait(&snap))
	if !noted {
		fmt.Fprintf(w, "The history has no entry of term %d, so only the fence says who has done this.\n", snap.Fence.Record.Term)
	}
	return nil
}

// longestWait returns how long the successor waits at most.
func longestWait(s *cluster.Snapshot) time.Duration {
	var known cluster.LastKnown
	return known.LeaseWait(s).Round(10 * time.Millisecond)
}

// showStuck shows what is known of a group that is stuck, and what must be true.
func showStuck(w io.Writer, name string, s *cluster.Snapshot) error {
	f := &s.Fence.Record
	ids := f.FailsafeNodes()
	p := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	p("%s is stuck: %s led in term %d, has not released leadership, and may still work in failsafe mode.", printable(name), printable(f.Node), f.Term)
	p("A successor has to wait until one of these nodes is back:")
	for _, id := range ids {
		p("  %s", printable(describeLost(s, id)))
	}
	if wait := f.CapWait(); wait > 0 {
		p("By failsafe.max, a member takes over by itself %s after it has seen that the leader's session has ended.", wait.Round(time.Second))
	}
	p("")
	p("If one of them can start again with its state directory, start it instead: that is enough, and safe.")
	p("Otherwise these hosts must be powered off, and stay so until they have been installed anew: %s.", printable(strings.Join(ids, ", ")))
	_, err := fmt.Fprintln(w, "If one of them still works, there will be two leaders. zkelectd cannot check that.")
	return err
}

// describeLost says what is known of a node that can no longer say whether its work has ended.
func describeLost(s *cluster.Snapshot, id string) string {
	f := &s.Fence.Record
	text, host := id, ""
	if id == f.Node {
		text, host = id+", the leader", f.Host
	}
	for _, h := range f.Earlier {
		if h.Node == id {
			host = cmp.Or(host, h.Host)
		}
	}
	if host != "" {
		text += " (host " + host + ")"
	}
	i := slices.IndexFunc(s.Members, func(m cluster.Member) bool { return m.ID == id })
	if i < 0 {
		return text + ": not registered"
	}
	return text + ": registered again from host " + cmp.Or(s.Members[i].Node.Record.Host, "not known") + ", without the state directory that it had"
}
