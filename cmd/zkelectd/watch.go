package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/config"
	"zkelectd/internal/status"
)

// leadership is a line of the output of zkelectd watch.
type leadership struct {
	Time   time.Time `json:"time"`
	Term   int64     `json:"term"`
	Node   string    `json:"node"`
	Site   string    `json:"site"`
	State  string    `json:"state"`
	Reason string    `json:"reason"`
}

func watchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print a line of JSON for the current leadership, and for each change",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var last leadership
			return withGroup(cmd, func(ctx context.Context, g group) error {
				return g.follow(ctx, func(view status.Group) error {
					now := leadership{Term: view.Term, Node: view.Leader, Site: view.Site, State: view.State, Reason: view.Reason}
					if now == last {
						return nil
					}
					last = now
					now.Time = time.Now()
					return printJSONLine(cmd.OutOrStdout(), now)
				})
			})
		},
	}
	config.RegisterConnection(cmd.Flags())
	return cmd
}
