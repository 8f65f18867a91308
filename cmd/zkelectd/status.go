package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

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
		Short: "Show the group: who leads and why, and every member",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			return withGroup(cmd, func(ctx context.Context, s *zkstore.Session, p cluster.Paths) error {
				return showStatus(ctx, cmd.OutOrStdout(), s, p, output, watch)
			})
		},
	}
	config.RegisterConnection(cmd.Flags())
	outputFlag(cmd, &output)
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again whenever it changes")
	return cmd
}

func showStatus(ctx context.Context, w io.Writer, s *zkstore.Session, p cluster.Paths, output string, watch bool) error {
	var last string
	show := func(g status.Group) error {
		text, err := render(g, output)
		if err != nil || text == last {
			return err
		}
		if last != "" && output == "table" {
			fmt.Fprintln(w)
		}
		last = text
		_, err = io.WriteString(w, paint(w, text))
		return err
	}
	if watch {
		return follow(ctx, s, p, show)
	}
	g, err := look(ctx, s, p)
	if err != nil {
		return err
	}
	return show(withLease(ctx, g))
}

func look(ctx context.Context, s *zkstore.Session, p cluster.Paths) (status.Group, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	snap, err := zkstore.ReadAll(ctx, s, p, false)
	return status.Of(p.Root, snap), err
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
		Short: "Print the READY leader's id; exit 0, or 1 if there is none, or 2 on an error",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withLeader(cmd, func(id string) error {
				if id == "" {
					return exitCode{1, nil}
				}
				fmt.Fprintln(cmd.OutOrStdout(), plain(id))
				return nil
			})
		},
	}
	config.RegisterConnection(cmd.Flags())
	slipsExit2(cmd)
	return cmd
}

func isLeaderCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "is-leader",
		Short: "Exit 0 if the node (--id, default this host) is the READY leader, 1 if not, 2 if that can't be told",
	}
	config.RegisterFlags(cmd.Flags())
	slipsExit2(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load(cmd, nil)
		if err != nil {
			return exitCode{2, err}
		}
		return withLeader(cmd, func(id string) error {
			if id != cfg.Node.ID {
				return exitCode{1, nil}
			}
			return nil
		})
	}
	return cmd
}

// slipsExit2 keeps a slip on the command line from passing for the answer no, which is exit status 1.
func slipsExit2(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitCode{2, err} })
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := cobra.NoArgs(cmd, args); err != nil {
			return exitCode{2, err}
		}
		return nil
	}
}

// withLeader reads who leads; "" if nobody does. What keeps it from knowing is exit status 2.
func withLeader(cmd *cobra.Command, f func(id string) error) error {
	var leader string
	err := withGroup(cmd, func(ctx context.Context, s *zkstore.Session, p cluster.Paths) error {
		g, err := look(ctx, s, p)
		if err == nil && len(g.Problems) > 0 && g.State != string(cluster.CurrentReady) {
			err = fmt.Errorf("%s", g.Problems[0])
		}
		if g.State == string(cluster.CurrentReady) {
			leader = g.Leader
		}
		return err
	})
	if err != nil {
		return exitCode{2, err}
	}
	return f(leader)
}

// follow calls f with the group as it is, and again whenever it changes, until ctx is over.
func follow(ctx context.Context, s *zkstore.Session, p cluster.Paths, f func(status.Group) error) error {
	viewer := status.NewViewer(p.Root)
	return zkstore.Follow(ctx, s, p, func(snap cluster.Snapshot) error { return f(viewer.Group(snap)) })
}
