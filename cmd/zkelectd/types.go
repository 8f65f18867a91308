package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"zkelectd/internal/policy"
)

func policyTypesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "types", Short: "List the values of policy.type, and how each ranks", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "TYPE\tRANKS BY")
			for _, name := range policy.Types() {
				fmt.Fprintf(t, "%s\t%s\n", name, policy.Describe(name))
			}
			return t.Flush()
		},
	}
}
