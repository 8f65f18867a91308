package cli

import (
	"github.com/spf13/cobra"

	"zkelectd/internal/work/admission"
)

// statusNotAdmitted makes the unit fail; another exit status of ExecCondition= would only skip its start.
const statusNotAdmitted = 255

func admitCommand(c *command) {
	c.Use, c.Short = "admit SOCKET", "Let a leader-only unit start only if this host leads"
	c.Hidden, c.Args = true, cobra.ExactArgs(1)
	c.Long = `Admit is for ExecCondition=+ in the drop-in of a unit that is a group's
leader-only work (child.unit). It runs as root and asks the daemon at SOCKET. It
refuses the start unless zkelectd leads with this unit. The kernel must confirm
that the processes that answer are a daemon and its guard, run this program, and
run as the owner of the socket's directory. Then it writes the fencing token and
the other ZKELECTD_ variables into ` + admission.EnvDir + `/UNIT.env, and grants
the guard the right to kill the unit's control group when leadership may have
ended.

It opens no file that the daemon's user can write, and takes no longer than
` + admission.Timeout.String() + `.`
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := admission.Admit(cmd.Context(), args[0], admission.EnvDir); err != nil {
			return exitError{statusNotAdmitted, err}
		}
		return nil
	}
}
