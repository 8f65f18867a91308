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
	output := c.outputFlag()
	c.Flags().BoolVar(&yes, "yes", false, "do it without asking")
	c.Flags().BoolVar(&dry, "dry-run", false, "only ask the agents whether they could fence the node")
	c.run = func(ctx context.Context, g group, args []string) error {
		ctx, stop := signal.NotifyContext(ctx, guard.NotIgnored(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
		defer stop()
		f := operator.Fencing(g.cfg)
		if !f.Enabled() {
			return refuse("the configuration has no fencing: run this on a host of the group, or name its " +
				"configuration with --config")
		}
		if err := f.CanFence(args[0]); err != nil {
			return refuse("%w", err)
		}
		act := cluster.FencingAct{Node: args[0], By: whoami(), Time: time.Now().UTC()}
		n := fencedNode{result: c.result(output), Group: g.name, FencingAct: act}
		if dry {
			return n.finish(&n, monitorNode(ctx, &n, f))
		}
		return n.finish(&n, g.fenceNode(ctx, &n, f, yes))
	}
}

// fencedNode is the output of fence. With --dry-run, Result is reachable or unknown.
type fencedNode struct {
	result
	Group string `json:"group"`
	cluster.FencingAct
	Host string `json:"host,omitempty"`
}

// monitorNode asks the agents whether they could fence a node.
func monitorNode(ctx context.Context, n *fencedNode, f fencer.Config) error {
	if err := f.Monitor(ctx, n.Node, fencer.Run); err != nil {
		return err
	}
	agents := 0
	for _, l := range f.Levels {
		if _, known := l.Nodes[n.Node]; known {
			agents++
		}
	}
	if agents == 0 {
		n.Result = "unknown"
		n.say("not known: %s would be fenced by a command, which cannot be asked", n.Node)
		return nil
	}
	n.Result = "reachable"
	n.say("%s could be fenced", n.Node)
	return nil
}

// fence switches a node off for a person, and records that.
func (g group) fenceNode(ctx context.Context, n *fencedNode, f fencer.Config, yes bool) error {
	snap, err := g.read(ctx)
	if err != nil {
		return err
	}
	node := n.Node
	target := fencer.Target{Group: g.name, Node: node, By: n.By}
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
	n.Host = target.Host
	n.say("%s (host %s) %s. It will be switched off, which may take %s.", node, cmp.Or(target.Host, "not known"),
		role, f.Limit())
	if !yes {
		if err := n.confirm("the name of the node", node, "--yes"); err != nil {
			return err
		}
	}
	act := &n.FencingAct
	act.Time = time.Now().UTC()
	if err := g.recordFencing(ctx, *act); err != nil { // to fence matters more
		n.say("warning: not recorded: %s", err)
	}
	by, err := f.FenceNode(ctx, target, fencer.Run)
	act.Result, act.Level = cluster.FencingSucceeded, by
	if err != nil {
		act.Result, act.Error = cluster.FencingFailed, cluster.FencingText(err.Error())
		err = fmt.Errorf("it is not certain that %s is off: %w", node, err)
	} else {
		n.say("%s is off (%s)", node, by)
	}
	if recErr := g.recordFencing(context.WithoutCancel(ctx), *act); recErr != nil {
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
	output := c.outputFlag()
	c.Flags().StringVar(&f.confirm, "confirm", "", "the group's name and the term, as GROUP:TERM, instead of typing them")
	c.Flags().StringVar(&f.reason, "reason", "", fmt.Sprintf("the reason, shown by history; at most %d bytes",
		request.MaxReason))
	c.Flags().BoolVar(&f.dry, "dry-run", false, "only show what is known, and whether the group is stuck")
	c.check = func([]string) error {
		if len(f.reason) > request.MaxReason {
			return fmt.Errorf("--reason has %d bytes, more than %d", len(f.reason), request.MaxReason)
		}
		return nil
	}
	c.run = func(ctx context.Context, g group, _ []string) error {
		r := forcedGroup{result: c.result(output), Group: g.name}
		return r.finish(&r, f.run(ctx, g, &r))
	}
}

// forcedGroup is the output of force.
type forcedGroup struct {
	result
	Group string `json:"group"`
	// Leader is the last leader, which led in Term. Nodes are those that must be powered off.
	Leader string   `json:"leader"`
	Term   int64    `json:"term"`
	Nodes  []string `json:"nodes"`
	// Forced is set if the members may elect a leader now, and Wait is how long it waits.
	Forced bool             `json:"forced"`
	Wait   cluster.Duration `json:"wait,omitempty"`
}

// forcing is what the command force was given.
type forcing struct {
	confirm, reason string
	dry             bool
}

func (f forcing) run(ctx context.Context, g group, r *forcedGroup) error {
	snap, err := g.read(ctx)
	if err != nil {
		return err
	}
	if err := snap.CheckStuck(); err != nil {
		return refuse("%s is not stuck in failsafe mode, and nothing was changed: %w", g.name, err)
	}
	if showStuck(r, &snap); f.dry {
		return nil
	}
	want := fmt.Sprintf("%s:%d", g.name, snap.Fence.Record.Term)
	if f.confirm == "" {
		if err := r.confirm("the group's name and the term", want, "--confirm "+want); err != nil {
			return err
		}
	} else if f.confirm != want {
		return refuse("nothing was done: --confirm must be %s", want)
	}
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	noted, err := operator.Force(ctx, g.session, g.paths, snap, cluster.Forced{By: whoami(), Reason: f.reason,
		Time: time.Now().UTC()})
	if err != nil {
		return err
	}
	r.Forced, r.Wait = true, cluster.Duration(longestWait(&snap))
	r.say("done: the members of %s may elect a leader; it waits %s before its work", g.name, r.Wait)
	if !noted {
		r.say("The history has no entry of term %d, so only the fence says who has done this.", snap.Fence.Record.Term)
	}
	return nil
}

// longestWait returns how long the successor waits at most.
func longestWait(s *cluster.Snapshot) time.Duration {
	var known cluster.LastKnown
	return known.LeaseWait(s).Round(10 * time.Millisecond)
}

// showStuck shows what is known of a group that is stuck, and what must be true.
func showStuck(r *forcedGroup, s *cluster.Snapshot) {
	f := &s.Fence.Record
	r.Leader, r.Term, r.Nodes = f.Node, f.Term, f.FailsafeNodes()
	r.say("%s is stuck: %s led in term %d, has not released leadership, and may still work in failsafe mode.", r.Group,
		f.Node, f.Term)
	r.say("A successor has to wait until one of these nodes is back:")
	for _, id := range r.Nodes {
		r.say("  %s", describeLost(s, id))
	}
	if wait := f.CapWait(); wait > 0 {
		r.say("By failsafe.max, a member takes over by itself %s after it has seen that the leader's "+
			"session has ended.", wait.Round(time.Second))
	}
	r.say("")
	r.say("If one of them can start again with its state directory, start it instead: that is enough, and safe.")
	r.say("Otherwise these hosts must be powered off, and stay so until they have been installed anew: %s.",
		strings.Join(r.Nodes, ", "))
	r.say("If one of them still works, there will be two leaders. zkelectd cannot check that.")
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
	return text + ": registered again from host " + cmp.Or(s.Members[i].Node.Record.Host, "not known") +
		", without the state directory that it had"
}
