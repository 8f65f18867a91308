package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/config"
	"zkelectd/internal/guard"
)

// unitEnd is how long a unit may take to die once it is killed.
const unitEnd = 5 * time.Second

func releaseCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "release [--session-file F]",
		Short: "Close the session that a dead zkelectd has left behind",
		Long: `Release closes the ZooKeeper session of a zkelectd that was killed together with
its guard, so that the next leader need not wait for the session to expire. It
is meant for ExecStopPost= in a systemd unit. It refuses while the guard, the
daemon or the leader-only work still runs; a unit (child.unit) it ends itself.
Without a file there is nothing to do.`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&file, "session-file", config.Config{}.SessionFile(os.Getenv), "where zkelectd keeps its session (zookeeper.session_file)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if file == "" {
			return errors.New("which session? Set --session-file to the zookeeper.session_file of the daemon")
		}
		f, err := guard.ReadSession(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // ended cleanly
		}
		if err != nil {
			return err
		}
		if p, alive := f.Alive(); alive {
			return fmt.Errorf("the session is not closed: its %s still runs as process %d; stop that first", p.Role, p.Pid)
		}
		if err := f.EndUnit(unitEnd); err != nil {
			return fmt.Errorf("the session is not closed: %w", err)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), max(f.Session.Timeout, time.Second))
		defer cancel()
		if err := closeSession(ctx, f.Session); err != nil {
			return err
		}
		guard.Forget(file)
		fmt.Fprintf(cmd.OutOrStdout(), "closed session 0x%x\n", f.Session.ID)
		return nil
	}
	return cmd
}
