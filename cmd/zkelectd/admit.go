package main

import (
	"github.com/spf13/cobra"

	"zkelectd/internal/guard"
)

// statusRefused fails a unit; any other status of ExecCondition= would merely skip it.
const statusRefused = 255

func admitCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "admit PERMIT",
		Short: "Let a leader-only unit start, if this host leads",
		Long: `Admit is for ExecCondition=+ in the drop-in of a unit that is a group's
leader-only work (child.unit). It refuses unless PERMIT is that of a guard that
is alive, and entrusts the unit's control group to that guard, which kills it
when leadership may have ended.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := guard.Admit(args[0]); err != nil {
				return exitCode{statusRefused, err}
			}
			return nil
		},
	}
}
