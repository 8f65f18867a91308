package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/status"
)

func statusCommand(c *command) {
	var watch, check bool
	c.Use = "status"
	c.Short = "Show the group: the leader, why it leads, and every member"
	c.Long = `Status shows a group: its leader, why it leads, every member, and anything unusual. If
zookeeper.root has several groups and none is named with -g, it prints one line for
each: the leader, how many members are eligible, and anything unusual.

A group with slots has a line for each slot; -g NAME also shows which ones each member
leads, -g NAME/SLOT all about one slot.

With --check it prints one line, and exits as a monitoring plugin (Nagios, Icinga): 0 if each
group has a READY leader and an eligible standby, 1 for a warning (a takeover, a hard pause,
nobody could take over, any other problem), 2 if a group has no leader or each member that could
lead has failed, 3 if that is not known.`
	output := c.outputFlag(outputWide)
	c.Flags().BoolVar(&watch, "watch", false, "follow the status until interrupted: on a terminal it is drawn in place, elsewhere printed again whenever it changes")
	c.Flags().BoolVar(&check, "check", false, "print one line with figures, and exit as a monitoring plugin: 0 ok, 1 warning, 2 critical, 3 unknown")
	c.MarkFlagsMutuallyExclusive("check", "watch")
	c.MarkFlagsMutuallyExclusive("check", "output")
	c.endless = &watch
	c.runMany = func(ctx context.Context, s selection, _ []string) error {
		g, err := s.only()
		shown := screen{w: c.OutOrStdout(), output: *output}
		switch {
		case check:
			return s.checkStatus(ctx, c.OutOrStdout())
		case watch && err == nil:
			return followStatus(ctx, g, &shown)
		case watch:
			return err
		case err != nil || g.manyLeaders():
			return s.showGroups(ctx, c.OutOrStdout(), *output)
		}
		view, err := g.view(ctx)
		if err != nil {
			return err
		}
		return shown.show(view)
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		err := c.connectAndRun(allGroups, args)
		if err != nil && check && !errors.As(err, new(exitError)) {
			return checkFailed(c.OutOrStdout(), err)
		}
		return err
	}
}

// tabular is a view that people read as a table.
type tabular interface {
	Table() string
	WideTable() string
}

// followStatus shows the status of a group: on a terminal in place, else each one that differs from the one before. What it has read is
// viewed again each time: ages change.
func followStatus(ctx context.Context, g group, shown *screen) error {
	viewer := status.NewViewer(g.name, g.paths.Root)
	read := func(ctx context.Context, g group) (func() tabular, error) {
		all, err := g.readLeaders(ctx, true)
		if err != nil || !g.manyLeaders() {
			return func() tabular { return viewer.Group(all.Shared) }, err
		}
		return func() tabular { return groupsStatus{Root: g.paths.Root, Groups: g.views(all)} }, slotsError(all)
	}
	if terminal, ok := shown.w.(*os.File); ok && shown.output != "json" && os.Getenv("TERM") != "dumb" && isTerminal(terminal) {
		d := newRedraw(terminal, func(view func() tabular) string { return shown.table(view()) })
		defer d.end()
		return follow(ctx, g, time.Time{}, read, d)
	}
	return follow(ctx, g, time.Time{}, read, &statusDisplay{notices: notices{w: os.Stderr}, screen: shown})
}

// statusDisplay is the display of status --watch in a pipe or file.
type statusDisplay struct {
	notices
	screen *screen
}

func (d *statusDisplay) show(view func() tabular) error { return d.screen.show(view()) }

// resumed has the status follow even if it is that of before, in JSON after the gap.
func (d *statusDisplay) resumed(from, to time.Time) error {
	d.screen.last = ""
	err := d.notices.resumed(from, to)
	if d.screen.output == "json" {
		err = errors.Join(err, printJSON(d.screen.w, newGap(from, to)))
	}
	return err
}

// view returns the status of a group with one leader, with a forecast if the policy permits one, and with the lease of the leader.
func (g group) view(ctx context.Context) (status.Group, error) {
	q, err := g.submitter().Question(ctx)
	if err != nil {
		snap, err := g.read(ctx)
		return withLease(ctx, g.name, status.Of(g.name, g.paths.Root, snap)), err
	}
	q.Ask = nil // status must not start the ranking program
	return withLease(ctx, g.name, operator.WithForecast(status.Of(g.name, g.paths.Root, q.Snapshot), q)), nil
}

// screen prints views, each unless it equals the one before.
type screen struct {
	w      io.Writer
	output string
	last   string
}

// table returns the table that people have asked for.
func (s *screen) table(view tabular) string {
	if s.output == outputWide {
		return view.WideTable()
	}
	return view.Table()
}

func (s *screen) show(view tabular) error {
	var b strings.Builder
	if err := printJSON(&b, view); err != nil {
		return err
	}
	text := b.String() // a table also changes with the time
	if text == s.last {
		return nil
	}
	first := s.last == ""
	s.last = text
	if s.output != "json" {
		text = s.table(view)
	}
	if !first && s.output != "json" {
		fmt.Fprintln(s.w)
	}
	if terminal, ok := s.w.(*os.File); ok && s.output != "json" && isTerminal(terminal) {
		columns, _ := sizeOf(terminal)
		text = wrap(text, columns)
	}
	_, err := io.WriteString(s.w, colorize(s.w, text))
	return err
}

func leaderCommand(c *command) {
	var is, strict bool
	c.Use = "leader"
	c.Short = "Print the id of the READY leader; exit 0, 1 if there is none, or 2 on an error"
	c.Long = `Leader prints the id of the READY leader, and exits with 0, with 1 if there is none, and
with 2 on an error.

With --is it prints nothing, and exits with 0 if the node (--id, default this host) is the
READY leader, with 1 if not.

ZooKeeper names a leader whose daemon hangs until its session ends. With --strict the node's
own daemon must also confirm within a second that it leads this group, in this term and at this
root, and that its lease is not over; if it does not, the exit status is 1. Without --id or
--root it is asked at http.listen of this host's configuration, else at the address that it has
published, which must not use TLS.`
	config.RegisterNodeName(c.Flags())
	c.Flags().BoolVar(&is, "is", false, "exit 0 if the node is the READY leader, 1 if not")
	c.Flags().BoolVar(&strict, "strict", false, "with --is: ask the leading daemon itself, and exit 1 if it does not confirm its lease")
	c.check = func([]string) error {
		named := c.Flags().Changed("id")
		if !is && (named || strict) {
			return errors.New("--id and --strict are for --is")
		}
		if is && !named && os.Getenv("ZKELECTD_NODE_ID") == "" {
			concernsHost(c.Command, "zookeeper.servers") // its id is in the configuration of this host
		}
		return nil
	}
	c.run = func(ctx context.Context, g group, _ []string) error {
		leader, err := g.readyLeader(ctx)
		switch {
		case err != nil:
			return err
		case is && leader.Leader != g.host.Config.Node.ID, leader.Leader == "":
			return exitError{statusNo, nil}
		case strict:
			return confirmLeader(ctx, !c.Flags().Changed("id") && !c.Flags().Changed("root"), g, leader)
		case !is:
			fmt.Fprintln(c.OutOrStdout(), printable(leader.Leader))
		}
		return nil
	}
}

// readyLeader returns the status of the group if it has a READY leader, else a zero status.
func (g group) readyLeader(ctx context.Context) (leader status.Group, err error) {
	snap, err := g.read(ctx)
	if c := snap.Current; c.Readable() && c.Record.State == cluster.CurrentReady {
		leader = status.Of(g.name, g.paths.Root, snap)
	}
	// Without a record that can be read, the answer is not known. No other problem of the group matters.
	return leader, errors.Join(err, snap.Current.Err)
}
