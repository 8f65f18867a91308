package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
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
			if output != "table" && output != "json" {
				return fmt.Errorf("-o %s: want table or json", output)
			}
			return withGroup(cmd, func(ctx context.Context, s *zkstore.Session, p cluster.Paths) error {
				return showStatus(ctx, cmd.OutOrStdout(), s, p, output, watch)
			})
		},
	}
	config.RegisterFlags(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
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
		_, err = io.WriteString(w, text)
		return err
	}
	if watch {
		return follow(ctx, s, p, show)
	}
	g, err := group(ctx, s, p)
	if err != nil {
		return err
	}
	return show(g)
}

func group(ctx context.Context, s *zkstore.Session, p cluster.Paths) (status.Group, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	snap, err := zkstore.ReadAll(ctx, s, p)
	return status.Of(p.Root, snap), err
}

func render(g status.Group, output string) (string, error) {
	var b strings.Builder
	if output == "json" {
		e := json.NewEncoder(&b)
		e.SetIndent("", "  ")
		err := e.Encode(g)
		return b.String(), err
	}
	fmt.Fprintf(&b, "Group    %s\n", g.Root)
	switch g.State {
	case status.StateNone:
		fmt.Fprintln(&b, "Leader   none")
	case string(cluster.CurrentReady):
		fmt.Fprintf(&b, "Leader   %s (site %s), term %d, ready since %s\n", quoted(g.Leader), quoted(g.Site), g.Term, since(g.Since))
	case string(cluster.CurrentProgress):
		fmt.Fprintf(&b, "Leader   %s (site %s), term %d, taking over since %s\n", quoted(g.Leader), quoted(g.Site), g.Term, since(g.Since))
	default:
		fmt.Fprintf(&b, "Leader   %s (site %s) elected, term %d, has not taken over yet\n", quoted(g.Leader), quoted(g.Site), g.Term)
	}
	if g.Reason != "" {
		fmt.Fprintf(&b, "Why      %s: %s\n", g.Cause, quoted(g.Reason))
	}
	if g.Policy != "" {
		fmt.Fprintf(&b, "Policy   %s\n", quoted(g.Policy))
	}
	for _, p := range g.Problems {
		fmt.Fprintf(&b, "Problem  %s\n", quoted(p))
	}
	fmt.Fprintln(&b)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tSITE\tPRIORITY\tROLE\tHEALTH\tHOST\tPID\tVERDICT OF THE LAST ELECTION")
	for _, m := range g.Members {
		role := strings.Join(m.Roles, ", ")
		if role == "" {
			role = "standby"
		}
		why := m.Why
		if why == "" {
			why = "joined since"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%d\t%s\n", quoted(m.Node), quoted(m.Site), m.Priority, role, quoted(m.Health), quoted(m.Host), m.PID, quoted(why))
	}
	t.Flush()
	if len(g.Members) == 0 {
		fmt.Fprintln(&b, "no daemon is registered")
	}
	return b.String(), nil
}

// quoted keeps what others wrote into ZooKeeper from steering the terminal.
func quoted(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return '?'
		}
		return r
	}, s)
}

func since(t *time.Time) string {
	if t == nil {
		return "an unknown time"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func leaderCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "leader",
		Short: "Print the READY leader's id; exit 0, or 1 if there is none, or 2 on an error",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withLeader(cmd, func(id string) error {
				if id == "" {
					return exitCode{1, nil}
				}
				fmt.Fprintln(cmd.OutOrStdout(), id)
				return nil
			})
		},
	}
	config.RegisterFlags(cmd.Flags())
	return cmd
}

func isLeaderCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "is-leader",
		Short: "Exit 0 if the node (--id, default this host) is the READY leader, 1 if not, 2 if that can't be told",
		Args:  cobra.NoArgs,
	}
	config.RegisterFlags(cmd.Flags())
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

// withLeader reads who leads; "" if nobody does. What keeps it from knowing is exit status 2.
func withLeader(cmd *cobra.Command, f func(id string) error) error {
	var leader string
	err := withGroup(cmd, func(ctx context.Context, s *zkstore.Session, p cluster.Paths) error {
		g, err := group(ctx, s, p)
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
	for {
		// Watch first, then read: what changes in between is seen next time.
		for _, path := range []string{p.Elected(), p.Leader(), p.Current(), p.Policy()} {
			s.Get(ctx, path, true) // for the watch only
		}
		names, _, err := s.Children(ctx, p.Election(), true)
		if err == nil {
			in, _ := cluster.ParseIncarnations(names)
			for _, i := range slices.Compact(in) {
				s.Get(ctx, p.Node(i.ID), true)
			}
		}
		g, err := group(ctx, s, p)
		if err == nil {
			err = f(g)
		}
		if err != nil && s.Err() == nil && s.Connected() {
			return err
		}
		select {
		case <-s.Wake():
			s.TakeHints()
		case <-s.Done():
			return s.Err()
		case <-ctx.Done():
			return nil
		}
	}
}
