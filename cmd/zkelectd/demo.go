package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"zkelectd/internal/demo"
	"zkelectd/internal/guard"
)

func demoCommand() *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch four daemons at two sites elect, hand over, fail and recover, with their own ZooKeeper server",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			binary, err := os.Executable()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), guard.NotIgnored(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
			defer stop()
			err = demo.Run(ctx, demo.Options{Binary: binary, Once: once, Out: cmd.OutOrStdout()})
			if err != nil && ctx.Err() != nil {
				return exitError{130, nil} // interrupted, and cleaned up
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "exit after the tour: 0, or 1 if a step failed")
	return cmd
}

// demoChildCommand is the leader-only child of the demo's daemons.
func demoChildCommand() *cobra.Command {
	var opt demo.ChildOptions
	cmd := &cobra.Command{
		Use: "demo-child", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), guard.NotIgnored(os.Interrupt, syscall.SIGTERM)...)
			defer stop()
			opt.Out = cmd.OutOrStdout()
			return demo.Child(ctx, opt)
		},
	}
	cmd.Flags().StringVar(&opt.Dir, "dir", "", "serve HTTP, and write the address to this directory")
	cmd.Flags().DurationVar(&opt.Every, "every", 0, "print a line with node and term this often")
	return cmd
}
