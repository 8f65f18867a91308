package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/spf13/cobra"

	"zkelectd/internal/store"
)

func initCommand(c *command) {
	c.Use = "init"
	c.Short = "Create a new group that has no leader, so that the first one need not wait"
	c.Long = `Init creates the znodes of a new group. Run it only if the group has no leader: its
first leader then starts at once. Init is optional: in a group that was not initialized
the first leader waits some seconds for a lease that might still run, because missing
znodes do not prove that there is no leader; they may have been deleted while one led.

It fails, with exit status 1, if anything shows that the group is or was in use:
members, an election, a leader, a history. A group that is already initialized is
left as it is.`
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		h, err := loadHost(cmd)
		if err != nil {
			return err
		}
		by, err := chosen(cmd, os.Getenv)
		if err != nil {
			return err
		}
		by.create = true
		base := h.Config.ZooKeeper.Root
		if by.name == "" && h.Dir == "" {
			base = path.Dir(base) // the root of the only group
		}
		return withChoice(cmd, h, by, func(ctx context.Context, s selection) error {
			return s.withOnly(ctx, wholeGroup, func(ctx context.Context, g group) error { return g.initialize(ctx, cmd.OutOrStdout(), base) })
		})
	}
}

// initialize creates the group, whose name is recorded below base.
func (g group) initialize(ctx context.Context, w io.Writer, base string) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	if err := store.EnsureIdentity(ctx, g.session, base, g.name, g.paths.Root, g.kind); err != nil {
		return err
	}
	if g.manyLeaders() {
		return g.initializeSlots(ctx, w)
	}
	if err := store.Init(ctx, g.session, g.paths, whoami()); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "the group %s is initialized: its first leader need not wait\n", printable(g.paths.Root))
	return err
}
