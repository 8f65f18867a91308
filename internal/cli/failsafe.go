package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"zkelectd/internal/store"
)

func failsafeCommand() *cobra.Command {
	return parent(&cobra.Command{Use: "failsafe", Short: "Change the keys with which members authenticate the messages of failsafe mode"}, rotateKeysCommand())
}

func rotateKeysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rotate-keys", Short: "Make a new key for the messages of failsafe mode", Args: cobra.NoArgs,
		Long: `Rotate-keys makes a new key, with which members authenticate the messages of failsafe
mode from then on. They read it by themselves, and the last key stays valid beside it
until the next rotation. So rotate once to replace a key, and twice, some minutes apart,
to make one invalid that somebody may know.`,
	}
	groupFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withGroup(cmd, func(ctx context.Context, g group) error {
			ctx, cancel := withAnswerTimeout(ctx)
			defer cancel()
			if err := store.RotateFailsafeKeys(ctx, g.session, g.paths, whoami()); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s has a new key; the last one stays valid until the next rotation\n", printable(g.name))
			return err
		})
	}
	return cmd
}
