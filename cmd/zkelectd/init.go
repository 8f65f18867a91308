package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/config"
)

func initCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create a new group that has no leader, so that the first one need not wait",
		Long: `Init creates the znodes of a new group. Run it only if the group has no leader: its
first leader then starts at once. Init is optional: in a group that was not initialized
the first leader waits some seconds for a lease that might still run, because missing
znodes do not prove that there is no leader; they may have been deleted while one led.

It fails, with exit status 1, if anything shows that the group is or was in use:
members, an election, a leader, a history. A group that is already initialized is
left as it is.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withGroup(cmd, func(ctx context.Context, g group) error {
				ctx, cancel := withAnswerTimeout(ctx)
				defer cancel()
				if err := zkstore.Init(ctx, g.session, g.paths, whoami()); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "the group %s is initialized: its first leader need not wait\n", printable(g.paths.Root))
				return nil
			})
		},
	}
	config.RegisterConnection(cmd.Flags())
	return cmd
}
