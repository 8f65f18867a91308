package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/config"
	"zkelectd/internal/status"
)

// leadership is a line of zkelectd watch.
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
		Short: "Print a line of JSON for each change of leadership, beginning with the present one",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var last leadership
			return withGroup(cmd, func(ctx context.Context, s *zkstore.Session, p cluster.Paths) error {
				return follow(ctx, s, p, func(g status.Group) error {
					now := leadership{Term: g.Term, Node: g.Leader, Site: g.Site, State: g.State, Reason: g.Reason}
					if now == last {
						return nil
					}
					last = now
					now.Time = time.Now()
					return printLine(cmd.OutOrStdout(), now)
				})
			})
		},
	}
	config.RegisterConnection(cmd.Flags())
	return cmd
}
