package cli

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"zkelectd/internal/daemon"
	"zkelectd/internal/guard"
)

func runCommand(c *command) {
	c.Use = "run [flags] [-- command args...]"
	c.Short = "Join the group, take part in elections, and lead when elected"
	c.Long = `Run joins the group and takes part in its elections until it is stopped.
When this daemon is elected, it starts the leader-only child; everything after
-- is its command.

Run has three processes: this one is the small guard, which starts the daemon
and the keeper. The daemon talks to ZooKeeper and decides. The keeper starts the
leader-only child. The guard kills the child when leadership may have ended,
even if the daemon hangs; if the guard fails, the daemon and the keeper kill the
child. When the daemon dies, the guard closes its session, so that the next leader
need not wait, and starts the daemon again, with the configuration that was in
force: changes of the file that need a restart stay pending.

SIGTERM and SIGINT stop the child, release leadership and exit; a second one
kills the child at once. SIGHUP reloads the configuration. The exit status is
that of the daemon.`
	c.Args = childArgs
	noRespawn := c.Flags().Bool("no-respawn", false, "exit when the daemon dies, instead of starting it again")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		signals := guard.CatchReload()
		return withStatus(daemon.RunGuard(cmd.Context(), daemon.GuardOptions{
			Sources: sources(cmd, args), Argv: daemonArgs(os.Args), Respawn: !*noRespawn, Signals: signals,
		}))
	}
}

// withStatus returns the end of a process as the error of its command.
func withStatus(status int, err error) error {
	if status == 0 {
		return err
	}
	return exitError{status, err}
}

// daemonArgs returns the arguments of this process with the command replaced.
func daemonArgs(own []string) []string {
	argv := slices.Clone(own)
	if i := slices.Index(argv[1:], "run"); i >= 0 {
		argv[1+i] = daemonCommandName
	}
	return argv
}

const daemonCommandName = "daemon"

// daemonCommand is the command that the guard starts, with the flags of run.
func daemonCommand(c *command) {
	c.Use = daemonCommandName
	c.Hidden = true
	c.Args = childArgs
	c.Flags().Bool("no-respawn", false, "") // used by the guard
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return withStatus(daemon.Main(cmd.Context(), sources(cmd, args), version()))
	}
}

// childArgs permits arguments after -- only.
func childArgs(cmd *cobra.Command, args []string) error {
	if at := cmd.ArgsLenAtDash(); len(args) > 0 && at != 0 {
		return fmt.Errorf("%q is not a flag; the child's command goes after --", args[0])
	}
	return nil
}
