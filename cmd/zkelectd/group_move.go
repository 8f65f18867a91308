package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/config"
)

func groupMoveCommand() *cobra.Command {
	var to string
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "move NAME --to-root ROOT", Short: "Move a group that has no members to another root", Args: cobra.ExactArgs(1),
		Long: `Move gives a group another root, with its terms, policy, history and requests. No daemon
may be a member: stop the group's daemons, or take its file out of groups_dir on each host
and reload. Afterwards give all hosts the new zookeeper.root, and start them again.

In the old root a record names the new one, and no leader is elected there any more.
Daemons that still have the old root are refused. The first leader in the new root has a
higher term, and waits until a lease in the old root would be over.

A group that should only be served by another daemon needs no other root: see
docs/operations.md.`,
	}
	config.RegisterConnection(cmd.Flags())
	cmd.Flags().StringVar(&to, "to-root", "", "the new root")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the group has no members")
	durationFlag(cmd, &timeout, "timeout", 2*time.Minute, "how long to wait with --wait")
	if err := cmd.MarkFlagRequired("to-root"); err != nil {
		panic(err) // the flag exists
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if to = strings.TrimSuffix(to, "/"); !path.IsAbs(to) || path.Clean(to) != to {
			return fmt.Errorf("--to-root %q: must be the path of a znode", to)
		}
		h, err := loadHost(cmd, "")
		if err != nil {
			return err
		}
		h.Dir, h.Groups = "", nil // the files may already have the new root
		return withChoice(cmd, h, choice{name: args[0]}, func(ctx context.Context, s selection) error {
			return s.withOnly(ctx, wholeGroup, func(ctx context.Context, g group) error {
				fence, err := g.moveTo(ctx, cluster.IdentityPath(h.Config.ZooKeeper.Root, g.name), to, wait, timeout)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "the root of the group %s is %s now; its next leader has a term above %d, and waits for at least %s\n",
					printable(g.name), printable(to), fence.Term, fence.LeaseWait)
				return err
			})
		})
	}
	return cmd
}

// moveTo moves the group to another root. byName is the path of the record with the group's name.
func (g group) moveTo(ctx context.Context, byName, to string, wait bool, timeout time.Duration) (cluster.Fence, error) {
	if g.manyLeaders() {
		return cluster.Fence{}, fmt.Errorf("the group %s has slots, and cannot be moved to another root: end it, and start one with another name", g.name)
	}
	limit := answerTimeout
	if wait {
		limit = timeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if strings.HasPrefix(byName, g.paths.Root+"/") {
		byName = "" // zookeeper.root is the root of the group
	}
	for {
		fence, err := zkstore.RelocateGroup(ctx, g.session, g.paths, cluster.Paths{Root: to}, byName, whoami())
		var members *zkstore.MembersError
		if !wait || !errors.As(err, &members) {
			return fence, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fence, exitError{statusTimedOut, fmt.Errorf("not done after %s (--timeout): %w", timeout, err)}
		}
	}
}
