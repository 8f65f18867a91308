package cli

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
)

func groupCommand() *cobra.Command {
	return parent(&cobra.Command{Use: "group", Short: "List the groups of zookeeper.root"}, groupListCommand())
}

// listedGroup is one group in the output of 'group list'.
type listedGroup struct {
	Group string            `json:"group"`
	Root  string            `json:"root,omitempty"`
	Kind  cluster.GroupKind `json:"kind,omitempty"`
	// Members is how many daemons are registered. Leader is the node that leads or is elected, empty if there is none; with slots,
	// Slots says how many there are, and Leader how many of them have one.
	Members int    `json:"members"`
	Slots   int    `json:"slots,omitempty"`
	Leader  string `json:"leader,omitempty"`
	Error   string `json:"error,omitempty"`
}

func groupListCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "list", Short: "List the groups with their roots, the number of their members, and their leaders", Args: cobra.NoArgs,
		Long: `List lists the groups of zookeeper.root: each has a znode with its name there, which
records its root.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			return withSelection(cmd, func(ctx context.Context, s selection) error {
				return s.list(ctx, cmd.OutOrStdout(), output)
			})
		},
	}
	config.RegisterConnection(cmd.Flags())
	outputFlag(cmd, &output)
	return cmd
}

func (s selection) list(ctx context.Context, w io.Writer, output string) error {
	all := make([]listedGroup, len(s.groups))
	s.each(ctx, func(ctx context.Context, i int, g group) {
		if g.manyLeaders() {
			all[i] = g.listSlots(ctx)
			return
		}
		view := g.summary(ctx)
		all[i] = listedGroup{Group: g.name, Root: g.paths.Root, Kind: g.kind, Members: len(view.Members), Leader: view.Leader, Error: view.Error}
	})
	if output == "json" {
		return printJSON(w, all)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "GROUP\tROOT\tKIND\tMEMBERS\tLEADER\tPROBLEM")
	for _, g := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\n", printable(g.Group), printable(g.Root), printable(string(g.Kind)), g.Members, printable(nobody(g.Leader)), printable(g.Error))
	}
	return t.Flush()
}
