package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/gameday"
	"zkelectd/internal/guard"
	"zkelectd/internal/operator"
	"zkelectd/internal/status"
	"zkelectd/internal/whatif"
)

// gamedayOptions are the flags of gameday.
type gamedayOptions struct {
	yes, despite  bool
	cut, takeover time.Duration
	output        string
}

func gamedayCommand() *cobra.Command {
	var opt gamedayOptions
	cmd := &cobra.Command{
		Use:   "gameday DRILL",
		Short: "Practice a failure of the leader, and compare what happens with what is promised",
		Long: `Gameday has the leader fail on purpose, after you have confirmed it, watches the group, and
compares what happens with the promised figures. The drills:

  move     moves leadership to the next best member, and back
  daemon   kills the daemon on this host, which leads; its guard starts it again
  child    kills the child on this host, which leads
  network  cuts this host, which leads, off from the ZooKeeper servers for --for (root, nft)

It is refused without a READY leader, without another eligible member, while the group is
paused, during a handover or another drill, and while the status shows a problem that needs
somebody to act. It gives up, and undoes the cut, if nobody is READY for twice as long as
promised, and when it is interrupted.

The promised figures are those of the lease, plus --takeover: how long your child may need
until it is ready. 'zkelectd history --gamedays' lists the reports.

The exit status is 0 if all promises were kept, 1 if not, 2 if the drill was given up, and
3 if it was refused.`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: gameday.Drills(),
	}
	groupFlags(cmd)
	outputFlag(cmd, &opt.output)
	cmd.Flags().BoolVar(&opt.yes, "yes", false, "do it without asking")
	cmd.Flags().BoolVar(&opt.despite, "despite-problems", false, "do it although the status shows a problem")
	durationFlag(cmd, &opt.cut, "for", 10*time.Second, "with network: how long the path is cut; at most 10m")
	durationFlag(cmd, &opt.takeover, "takeover", 5*time.Second, "how long the work of the next leader may need until it is ready")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		kind := gameday.Drill(args[0])
		switch err := checkOutput(opt.output); {
		case err != nil:
			return err
		case cmd.Flags().Changed("for") && kind != gameday.Network:
			return errors.New("--for is for the drill network only")
		case opt.cut < time.Second || opt.cut > 10*time.Minute:
			return errors.New("--for must be from 1s to 10m")
		case opt.takeover <= 0:
			return errors.New("--takeover must be more than 0s")
		}
		return withOneLeader(cmd, func(ctx context.Context, g group) error {
			d, err := planDrill(ctx, g, kind, opt)
			if err != nil {
				return err
			}
			d.out, d.notices.w = cmd.OutOrStdout(), cmd.ErrOrStderr()
			d.describe()
			if err := d.confirm(cmd.InOrStdin()); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(ctx, guard.NotIgnored(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
			defer stop()
			return d.run(ctx)
		})
	}
	return cmd
}

// planDrill returns a drill for the group as it is, or why there must be none.
func planDrill(ctx context.Context, g group, kind gameday.Drill, opt gamedayOptions) (*drill, error) {
	q, err := g.submitter().Question(ctx)
	if err != nil {
		return nil, err
	}
	past, err := operator.ReadGameDays(ctx, g.session, g.paths)
	if err == nil {
		err = past.Newer()
	}
	if err != nil {
		return nil, err
	}
	view := operator.WithForecast(status.Of(g.name, g.paths.Root, q.Snapshot), q)
	if why := gameday.Refusals(kind, view, past.Record, time.Now()); len(why) > 0 {
		return nil, refuse("nothing was done: %s", strings.Join(why, "; "))
	}
	if problems := gameday.Problems(view); len(problems) > 0 && !opt.despite {
		return nil, refuse("nothing was done, as the group has problems; solve them, or add --despite-problems: %s", strings.Join(problems, "; "))
	}
	d := &drill{group: g, opt: opt, before: q.Snapshot}
	d.outcome = gameday.Outcome{Drill: kind, Leader: view.Leader, Term: view.Term, Observer: new(gameday.Observer)}
	d.outcome.Promise, d.outcome.Terms = gameday.LimitsOf(q.Snapshot, g.cfg.Election.TrustSessionEnd, opt.takeover).Promise(kind)
	if kind != gameday.Network {
		d.opt.cut = 0
	}
	if kind.OnLeader() {
		if d.local, err = newLocalLeader(q.Snapshot, g); err == nil {
			err = d.checkTarget(ctx)
		}
		if err != nil {
			return nil, refuse("nothing was done: %w", err)
		}
	}
	q.Change.Without = []string{view.Leader}
	d.outcome.Successor = whatif.Run(q).Leader.ID
	return d, nil
}

// checkTarget returns an error if there is nothing that the drill could break.
func (d *drill) checkTarget(ctx context.Context) (err error) {
	switch d.outcome.Drill {
	case gameday.Daemon:
		_, err = d.local.daemon()
	case gameday.Child:
		_, _, err = d.local.child()
	case gameday.Network:
		d.network, err = newNetworkCut(ctx, d.group.cfg.ZooKeeper.Servers)
	}
	return err
}

// describe prints what the drill will do.
func (d *drill) describe() {
	o := d.outcome
	leader := fmt.Sprintf("%s, which leads %s in term %d", o.Leader, d.group.name, o.Term)
	does := map[gameday.Drill]string{
		gameday.Move:    fmt.Sprintf("moves leadership away from %s, and back", leader),
		gameday.Daemon:  fmt.Sprintf("kills the daemon of %s; the guard ends the work and starts the daemon again", leader),
		gameday.Child:   fmt.Sprintf("kills the child of %s; it is started again there (child.restart.max), or another member takes over", leader),
		gameday.Network: fmt.Sprintf("cuts the host of %s, off from the ZooKeeper servers for %s", leader, d.opt.cut),
	}
	d.say("This drill %s.", does[o.Drill])
	d.say("Promised: %s takes over; no READY leader for at most %s (%s).", o.Successor, o.Promise.Round(time.Millisecond), o.Terms)
	d.say("It is given up if nobody is READY for %s.", (2 * o.Promise).Round(time.Millisecond))
	if d.network != nil {
		d.say("To undo the cut by hand: %s", gameday.Undo)
	}
}

// say prints a line for people.
func (d *drill) say(format string, args ...any) {
	if d.opt.output != "json" {
		fmt.Fprintln(d.out, printable(fmt.Sprintf(format, args...)))
	}
}

// confirm asks the person at the terminal, unless --yes says that there is no need.
func (d *drill) confirm(in io.Reader) error {
	if d.opt.yes {
		return nil
	}
	if f, ok := in.(*os.File); !ok || d.opt.output != "table" || !isTerminal(f) {
		return refuse("nothing was done: add --yes, or confirm it at a terminal")
	}
	fmt.Fprintf(d.out, "Type the group's name (%s) to go on: ", printable(d.group.name))
	answer, _ := bufio.NewReader(in).ReadString('\n') // an error is no confirmation
	if strings.TrimSpace(answer) != d.group.name {
		return refuse("nothing was done")
	}
	return nil
}

// printGameDay prints the result of a drill.
func printGameDay(w io.Writer, g cluster.GameDay) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CHECK\tPROMISED\tSEEN\tRESULT")
	for _, c := range g.Checks {
		kept := "ok"
		if !c.Kept {
			kept = "NOT KEPT"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", printable(c.What), printable(c.Promised), printable(c.Seen), kept)
	}
	fmt.Fprintf(t, "\nresult: %s\n", g.Result)
	return t.Flush()
}

// showGameDays prints the last drills, the oldest first.
func showGameDays(ctx context.Context, w io.Writer, g group, n int, output string) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	read, err := operator.ReadGameDays(ctx, g.session, g.paths)
	if err != nil {
		return err
	}
	if read.Err != nil {
		return fmt.Errorf("%w; the next drill replaces it", read.Err)
	}
	all := []cluster.GameDay{}
	for _, d := range read.Record.Drills {
		if d.Slot == g.paths.Slot {
			all = append(all, d)
		}
	}
	all = all[max(0, len(all)-n):]
	if output == "json" {
		return printJSON(w, all)
	}
	t := tabwriter.NewWriter(w, 5, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TIME\tDRILL\tLEADER\tTERM\tBY\tRESULT\tCHECKS")
	for _, d := range all {
		result := d.Result
		switch {
		case result == "" && time.Now().Before(d.Until):
			result = "under way"
		case result == "":
			result = "broken off"
		}
		var checks []string
		for _, c := range d.Checks {
			checks = append(checks, c.What+": "+c.Seen)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", d.Time.Local().Format("2006-01-02 15:04:05"), printable(d.Drill), printable(d.Node), d.Term, printable(d.By), printable(result), printable(strings.Join(checks, "; ")))
	}
	return t.Flush()
}
