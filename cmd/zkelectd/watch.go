package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
)

// leadership is a line of the output of zkelectd watch.
type leadership struct {
	Time   time.Time `json:"time"`
	Term   int64     `json:"term"`
	Node   string    `json:"node"`
	Site   string    `json:"site"`
	State  string    `json:"state"`
	Reason string    `json:"reason"`
}

func watchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print a line of JSON for the current leadership, and for each change",
		Long: `Watch prints a line of JSON for the current leadership, and for each change, until it is
interrupted. If ZooKeeper does not answer, it says so on standard error and goes on; when
it is back, a line {"event":"gap","from":...,"to":...} marks the time in which changes may
have been missed, and the current leadership follows.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return untilInterrupted(cmd, func() error {
				return withOneLeader(cmd, func(ctx context.Context, g group) error {
					return follow(ctx, g, readWatched, &leadershipLines{out: cmd.OutOrStdout(), notices: notices{w: cmd.ErrOrStderr()}})
				})
			})
		},
	}
	groupFlags(cmd)
	return cmd
}

// leadershipLines is the display of watch.
type leadershipLines struct {
	notices
	out  io.Writer
	last leadership
}

func (l *leadershipLines) show(s cluster.Snapshot) error {
	view := status.Of("", "", s)
	now := leadership{Term: view.Term, Node: view.Leader, Site: view.Site, State: view.State, Reason: view.Reason}
	if now == l.last {
		return nil
	}
	l.last = now
	now.Time = time.Now().UTC()
	return printJSONLine(l.out, now)
}

// resumed prints the gap, and has the current state follow even if it is that of before.
func (l *leadershipLines) resumed(from, to time.Time) error {
	l.last = leadership{}
	return errors.Join(l.notices.resumed(from, to), printJSONLine(l.out, newGap(from, to)))
}
