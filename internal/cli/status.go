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

func statusCommand() *cobra.Command {
	var output string
	var watch, check bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the group: the leader, why it leads, and every member",
		Long: `Status shows a group: its leader, why it leads, every member, and anything unusual. If
zookeeper.root has several groups and none is named with -g, it prints one line for
each: the leader, how many members are eligible, and anything unusual.

A group with slots has a line for each slot; -g NAME also shows which ones each member
leads, -g NAME/SLOT all about one slot.

With --check it prints one line, and exits as a monitoring plugin (Nagios, Icinga): 0 if each
group has a READY leader and an eligible standby, 1 for a warning (a takeover, a hard pause,
nobody could take over, any other problem), 2 if a group has no leader or each member that could
lead has failed, 3 if that is not known.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if check {
				return runCheck(cmd)
			}
			show := func() error {
				return withSelection(cmd, func(ctx context.Context, s selection) error {
					g, err := s.only()
					shown := screen{w: cmd.OutOrStdout(), output: output}
					switch {
					case watch && err == nil:
						return followStatus(ctx, g, &shown)
					case watch:
						return err
					case err != nil || g.manyLeaders():
						return s.showGroups(ctx, cmd.OutOrStdout(), output)
					}
					view, err := g.view(ctx)
					if err != nil {
						return err
					}
					return shown.show(view)
				})
			}
			if watch {
				return untilInterrupted(cmd, show)
			}
			return show()
		},
	}
	groupFlags(cmd)
	outputFlag(cmd, &output, outputWide)
	cmd.Flags().BoolVar(&watch, "watch", false, "follow the status until interrupted: on a terminal it is drawn in place, elsewhere printed again whenever it changes")
	cmd.Flags().BoolVar(&check, "check", false, "print one line with figures, and exit as a monitoring plugin: 0 ok, 1 warning, 2 critical, 3 unknown")
	cmd.MarkFlagsMutuallyExclusive("check", "watch")
	cmd.MarkFlagsMutuallyExclusive("check", "output")
	return cmd
}

// runCheck runs status --check.
func runCheck(cmd *cobra.Command) error {
	var result error
	err := withSelection(cmd, func(ctx context.Context, s selection) error {
		result = s.checkStatus(ctx, cmd.OutOrStdout())
		return nil
	})
	if err != nil {
		return checkFailed(cmd.OutOrStdout(), err)
	}
	return result
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

func leaderCommand() *cobra.Command {
	var is, strict bool
	cmd := &cobra.Command{
		Use:   "leader",
		Short: "Print the id of the READY leader; exit 0, 1 if there is none, or 2 on an error",
		Long: `Leader prints the id of the READY leader, and exits with 0, with 1 if there is none, and
with 2 on an error.

With --is it prints nothing, and exits with 0 if the node (--id, default this host) is the
READY leader, with 1 if not.

ZooKeeper names a leader whose daemon hangs until its session ends. With --strict the node's
own daemon must also confirm within a second that it leads this group, in this term and at this
root, and that its lease is not over; if it does not, the exit status is 1. Without --id or
--root it is asked at http.listen of this host's configuration, else at the address that it has
published, which must not use TLS.`,
		Args: cobra.NoArgs,
	}
	groupFlags(cmd)
	config.RegisterNodeName(cmd.Flags())
	cmd.Flags().BoolVar(&is, "is", false, "exit 0 if the node is the READY leader, 1 if not")
	cmd.Flags().BoolVar(&strict, "strict", false, "with --is: ask the leading daemon itself, and exit 1 if it does not confirm its lease")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		named, rooted := cmd.Flags().Changed("id"), cmd.Flags().Changed("root")
		if !is && (named || strict) {
			return errors.New("--id and --strict are for --is")
		}
		if is && !named && os.Getenv("ZKELECTD_NODE_ID") == "" {
			concernsHost(cmd, "zookeeper.servers") // its id is in the configuration of this host
		}
		return withLeader(cmd, func(ctx context.Context, g group, leader status.Group) error {
			switch {
			case is && leader.Leader != g.host.Config.Node.ID, leader.Leader == "":
				return exitError{statusNo, nil}
			case strict:
				return confirmLeader(ctx, !named && !rooted, g, leader)
			case !is:
				fmt.Fprintln(cmd.OutOrStdout(), printable(leader.Leader))
			}
			return nil
		})
	}
	return cmd
}

// withLeader calls f with the group if it has a READY leader, else with a zero status. Errors exit with 2.
func withLeader(cmd *cobra.Command, f func(ctx context.Context, g group, leader status.Group) error) error {
	err := onGroup(cmd, oneLeader, func(ctx context.Context, g group) error {
		snap, err := g.read(ctx)
		var leader status.Group
		if c := snap.Current; c.Readable() && c.Record.State == cluster.CurrentReady {
			leader = status.Of(g.name, g.paths.Root, snap)
		}
		// Without a record that can be read, the answer is not known. No other problem of the group matters.
		if err := errors.Join(err, snap.Current.Err); err != nil {
			return err
		}
		return f(ctx, g, leader)
	})
	var known exitError
	if err != nil && !errors.As(err, &known) {
		return exitError{statusError, err}
	}
	return err
}
