package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/losses"
	"zkelectd/internal/operator/status"
)

// The drills.
const (
	drillDaemon  = "daemon"
	drillNetwork = "network"
)

// gameday are the flags of the command gameday, and what is known before the leader fails.
type gameday struct {
	yes, despite  bool
	cut, takeover time.Duration

	drill    string
	group    group
	leader   string
	term     int64
	promise  losses.Loss
	limit    time.Duration // of the promise and takeover
	fail     func(context.Context) error
	in       io.Reader
	out, err io.Writer
}

func gamedayCommand(c *command) {
	var d gameday
	c.Use = "gameday DRILL"
	c.Short = "Practice a failure of the leader, and compare the history with what is promised"
	c.Long = `Gameday has the leader on this host fail on purpose, after you have confirmed it, and
compares what the history then says with the times that 'zkelectd check' promises for the
loss. The drills:

  daemon   kills the daemon of this configuration; its guard starts it again
  network  cuts this host off from the ZooKeeper servers for --for (root, nft)

It is refused unless this host leads, without another eligible member, while the group is
paused, during a handover, and while the status shows a problem that needs somebody to act.
Another leader must be READY within the promised time plus --takeover.

The exit status is 0 if the promise was kept, 1 if not, and 3 if the drill was refused.`
	c.Args = cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)
	c.ValidArgs = []string{drillDaemon, drillNetwork}
	c.Flags().BoolVar(&d.yes, "yes", false, "do it without asking")
	c.Flags().BoolVar(&d.despite, "despite-problems", false, "do it although the status shows a problem")
	durationFlag(c, &d.cut, "for", 0,
		"with network: how long the path is cut; at most 10m (default: as long as promised, with --takeover)")
	durationFlag(c, &d.takeover, "takeover", 5*time.Second,
		"how long the work of the next leader may need until it is ready")
	c.check = func(args []string) error {
		d.drill, d.in, d.out, d.err = args[0], c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr()
		switch {
		case c.Flags().Changed("for") && d.drill != drillNetwork:
			return errors.New("--for is for the drill network only")
		case c.Flags().Changed("for") && (d.cut < time.Second || d.cut > 10*time.Minute):
			return errors.New("--for must be from 1s to 10m")
		case d.takeover <= 0:
			return errors.New("--takeover must be more than 0s")
		}
		return nil
	}
	c.run = func(ctx context.Context, g group, _ []string) error {
		d.group = g
		if err := d.plan(ctx, cmp.Or(configFile(c.Command), hostFile)); err != nil {
			return err
		}
		if !d.yes {
			if err := confirmTyped(d.in, d.out, "the group's name", g.name, "--yes"); err != nil {
				return err
			}
		}
		ctx, stop := interruptible(ctx)
		defer stop()
		return d.run(ctx)
	}
}

// plan looks at the group and at this host, and prints what the drill will do. It returns an error if there must be
// none. file is the configuration file of the daemon.
func (d *gameday) plan(ctx context.Context, file string) error {
	q, err := d.group.submitter().Question(ctx)
	if err != nil {
		return err
	}
	view := operator.WithForecast(status.Of(d.group.name, d.group.paths.Root, q.Snapshot), q)
	reasons := refusals(view)
	problems := slices.DeleteFunc(view.Problems, func(p string) bool { return slices.Contains(view.Passing, p) })
	if len(problems) > 0 && !d.despite {
		reasons = append(reasons, "solve these problems, or add --despite-problems: "+strings.Join(problems, "; "))
	}
	if len(reasons) > 0 {
		return refuse("nothing was done: %s", strings.Join(reasons, "; "))
	}
	if err := d.promised(); err != nil {
		return err
	}
	d.leader, d.term = view.Leader, view.Term
	leading, err := leadingDaemon(ctx, q.Snapshot, file)
	if err != nil {
		return refuse("nothing was done: %w", err)
	}
	d.fail = leading.kill
	does := "kills the daemon of %s; the guard ends the work and starts the daemon again"
	if d.drill == drillNetwork {
		cut, err := newNetworkCut(ctx, d.group.cfg.ZooKeeper.Servers)
		if err != nil {
			return refuse("nothing was done: %w", err)
		}
		d.fail = func(ctx context.Context) error { return cut.hold(ctx, d.cut) }
		does = "cuts the host of %s off from the ZooKeeper servers for " + d.cut.String() +
			"; to undo that by hand: " + undoCut
	}
	leader := fmt.Sprintf("%s (leader of %s in term %d)", d.leader, d.group.name, d.term)
	fmt.Fprintf(d.out, "This drill "+does+".\n", printable(leader))
	q.Change.Without = []string{d.leader}
	fmt.Fprintf(d.out, "Promised: the next leader, by policy %s, starts its work within %s (%s).\n",
		printable(whatif.Run(q).Leader.ID), d.promise.Time(), d.promise.Sum())
	return nil
}

// refusals returns why no leader may fail on purpose in a group.
func refusals(g status.Group) []string {
	var all []string
	switch {
	case g.State != string(cluster.CurrentReady):
		all = append(all, "there is no READY leader")
	case g.Next != "":
		all = append(all, "a handover is under way, to "+g.Next)
	case !slices.ContainsFunc(g.Members, func(m status.Member) bool { return m.Node != g.Leader && m.IsEligible() }):
		all = append(all, "no other member is eligible, so nobody could take over from "+g.Leader)
	}
	for _, r := range g.Requests {
		if strings.HasSuffix(r.Kind, "pause") {
			all = append(all, "the group is paused: run "+cluster.InGroup("'zkelectd resume'", g.Name)+" first")
		}
	}
	return all
}

// promised finds what the configuration promises for the loss.
func (d *gameday) promised() error {
	kind := map[string]losses.Kind{drillDaemon: losses.Daemon, drillNetwork: losses.Partition}[d.drill]
	checked, err := checkedOf(config.Group{Name: d.group.name, Config: d.group.cfg}, false)
	if err != nil {
		return err
	}
	for _, l := range checked.Losses {
		if l.Kind == kind {
			d.promise = l
		}
	}
	if !d.promise.Survived() {
		return refuse("nothing was done: the configuration does not survive this loss: %s", d.promise.Why)
	}
	d.limit = time.Duration(d.promise.Within) + d.takeover
	d.cut = cmp.Or(d.cut, d.limit)
	return nil
}

// settleTime is how long the drill waits beyond what is promised, to show what happened instead.
const settleTime = 30 * time.Second

// run has the leader fail, and shows what the history says of it.
func (d *gameday) run(ctx context.Context) error {
	began := time.Now()
	if err := d.fail(ctx); err != nil {
		return err
	}
	g := d.group
	session, err := connect(ctx, g.cfg, g.host.From) // the one before may have ended with the cut
	if err != nil {
		return err
	}
	defer operator.Disconnect(ctx, session)
	g.session = session
	next := nextTerm{notices: notices{w: d.err}, after: d.term, ends: time.Now().Add(2*d.limit + settleTime)}
	read := func(ctx context.Context, g group) (cluster.History, error) { return g.history(ctx, true) }
	if err := follow(ctx, g, time.Time{}, read, &next); !errors.Is(err, errDone) {
		return cmp.Or(err, errors.New("interrupted: see "+cluster.InGroup("'zkelectd history'", d.group.name)))
	}
	if next.found == nil {
		fmt.Fprintf(d.out, "NOT KEPT: the history has no new leader after %s\n", 2*d.limit+settleTime)
		return exitError{statusNo, nil}
	}
	if err := printTerms(d.out, []cluster.PastTerm{*next.found}, "table", true); err != nil {
		return err
	}
	result, took := "NOT KEPT", next.tookSince(began)
	kept := took != nil && time.Duration(*took) <= d.limit
	if kept {
		result = "kept"
	}
	fmt.Fprintf(d.out, "%s: %s from the failure until READY; promised were %s, and --takeover %s\n",
		result, formatDuration(took), d.promise.Time(), d.takeover)
	if !kept {
		return exitError{statusNo, nil}
	}
	return nil
}

// nextTerm waits for a READY leader after a term.
type nextTerm struct {
	notices
	after int64
	ends  time.Time
	found *cluster.PastTerm
}

func (n *nextTerm) show(h cluster.History) error {
	for _, t := range h.Terms {
		if t.Term > n.after && t.Outcome == string(cluster.CurrentReady) {
			n.found = &t
			return errDone
		}
	}
	return nil
}

// tookSince returns the time from a failure until the new leader was READY, as far as the clocks of this host and the
// elector's agree; nil if no elector has measured it.
func (n *nextTerm) tookSince(failure time.Time) *cluster.Duration {
	if n.found.ToReady == nil {
		return nil
	}
	took := cluster.Duration(max(0, n.found.Time.Add(time.Duration(*n.found.ToReady)).Sub(failure)))
	return &took
}

func (n *nextTerm) refresh() error {
	if time.Now().After(n.ends) {
		return errDone
	}
	return nil
}
