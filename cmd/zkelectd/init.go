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
		Short: "Create a new group in which nobody leads, so that its first leader need not wait",
		Long: `Init creates the znodes of a new group, with your word that nobody leads in it: its
first leader starts at once. It is optional. In a group that was not initialized
the first leader waits for a lease that might still run, some seconds: that nothing
is there does not prove that nobody leads, as the znodes may have been deleted
under a leader.

It refuses, with exit status 1, if anything shows that the group is in use or has
been: members, an election, a leader, a history. A group that is initialized
already is left as it is.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withConfig(cmd, func(ctx context.Context, g group) error {
				ctx, cancel := brief(ctx)
				defer cancel()
				if err := zkstore.Init(ctx, g.session, g.paths, whoami()); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "the group %s is initialized: its first leader need not wait\n", plain(g.paths.Root))
				return nil
			})
		},
	}
	config.RegisterConnection(cmd.Flags())
	return cmd
}
