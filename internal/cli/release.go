package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"zkelectd/internal/config"
	"zkelectd/internal/daemon"
	"zkelectd/internal/guard"
)

func releaseCommand(c *command) {
	var file string
	c.Use = "release [--session-file F]"
	c.Hidden = true
	c.Short = "Close the session that a dead zkelectd left behind"
	c.Long = `Release closes the ZooKeeper session of a zkelectd that was killed together with
its guard, so that the next leader need not wait for the session to expire. It
is meant for ExecStopPost= in a systemd unit. It kills what is left of the
leader-only work, and runs hooks.post_stop if it is pending. It refuses while the
guard or the daemon still runs, for which it waits for the kill margin at most, or
while it can't be proven that all of the work is dead. It says so if there is
nothing to release.`
	c.Flags().StringVar(&file, "session-file", config.Config{}.SessionFile(os.Getenv), "the session file of zkelectd (zookeeper.session_file)")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if file == "" {
			return errors.New("--session-file is not set: name the zookeeper.session_file of the daemon")
		}
		if !guard.SessionFileUsed(file) {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "nothing to release: zkelectd has never run with the session file %s\n", file)
			return err
		}
		lock, err := daemon.LockSessionFile(cmd.Context(), file)
		if err != nil {
			return err
		}
		defer lock.Close()
		err = daemon.CleanUp(cmd.Context(), file, cmd.OutOrStdout())
		if errors.Is(err, daemon.ErrNothingLeft) {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "nothing to release: there is no session file %s, so the last zkelectd has closed its session\n", file)
		}
		return err
	}
}
