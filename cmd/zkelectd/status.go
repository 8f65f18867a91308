package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/config"
	"zkelectd/internal/status"
)

func statusCommand() *cobra.Command {
	var output string
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the group: the leader, why it leads, and every member",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			return withGroup(cmd, func(ctx context.Context, g group) error {
				return showStatus(ctx, cmd.OutOrStdout(), g, output, watch)
			})
		},
	}
	config.RegisterConnection(cmd.Flags())
	outputFlag(cmd, &output)
	cmd.Flags().BoolVar(&watch, "watch", false, "print the status again whenever it changes")
	return cmd
}

func showStatus(ctx context.Context, w io.Writer, g group, output string, watch bool) error {
	var last string
	show := func(view status.Group) error {
		text, err := render(view, output)
		if err != nil || text == last {
			return err
		}
		if last != "" && output == "table" {
			fmt.Fprintln(w)
		}
		last = text
		_, err = io.WriteString(w, colorize(w, text))
		return err
	}
	if watch {
		return g.follow(ctx, show)
	}
	view, err := g.view(ctx)
	if err != nil {
		return err
	}
	return show(withLease(ctx, view))
}

// view returns the group's status.
func (g group) view(ctx context.Context) (status.Group, error) {
	snap, err := g.read(ctx)
	return status.Of(g.paths.Root, snap), err
}

func render(g status.Group, output string) (string, error) {
	if output == "table" {
		return g.Table(), nil
	}
	var b strings.Builder
	err := printJSON(&b, g)
	return b.String(), err
}

func leaderCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "leader",
		Short: "Print the id of the READY leader; exit 0, 1 if there is none, or 2 on an error",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withLeader(cmd, func(id string) error {
				if id == "" {
					return exitError{1, nil}
				}
				fmt.Fprintln(cmd.OutOrStdout(), printable(id))
				return nil
			})
		},
	}
	config.RegisterConnection(cmd.Flags())
	usageErrorsExit2(cmd)
	return cmd
}

func isLeaderCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "is-leader",
		Short: "Exit 0 if the node (--id, default this host) is the READY leader, 1 if not, 2 on an error",
	}
	config.RegisterFlags(cmd.Flags())
	usageErrorsExit2(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load(cmd, nil)
		if err != nil {
			return exitError{2, err}
		}
		return withLeader(cmd, func(id string) error {
			if id != cfg.Node.ID {
				return exitError{1, nil}
			}
			return nil
		})
	}
	return cmd
}

// usageErrorsExit2 makes usage errors exit with 2, since exit status 1 is the answer no.
func usageErrorsExit2(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitError{2, err} })
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := cobra.NoArgs(cmd, args); err != nil {
			return exitError{2, err}
		}
		return nil
	}
}

// withLeader calls f with the id of the READY leader, "" if there is none. Errors exit with 2.
func withLeader(cmd *cobra.Command, f func(id string) error) error {
	var leader string
	err := withGroup(cmd, func(ctx context.Context, g group) error {
		view, err := g.view(ctx)
		switch {
		case view.State == string(cluster.CurrentReady):
			leader = view.Leader
		case err == nil && len(view.Problems) > 0:
			err = errors.New(view.Problems[0])
		}
		return err
	})
	if err != nil {
		return exitError{2, err}
	}
	return f(leader)
}

// follow calls f with the status of the group, and again whenever it changes, until ctx ends.
func (g group) follow(ctx context.Context, f func(status.Group) error) error {
	viewer := status.NewViewer(g.paths.Root)
	return zkstore.Follow(ctx, g.session, g.paths, func(snap cluster.Snapshot) error { return f(viewer.Group(snap)) })
}
