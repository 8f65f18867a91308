package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"zkelectd/internal/config"
	"zkelectd/internal/daemon"
	"zkelectd/internal/httpapi"
)

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags] [-- command args...]",
		Short: "Join the group, elect, and lead when elected",
		Long: `Run joins the group and takes part in its elections until it is stopped.
When this daemon is elected it starts the leader-only child; everything after
-- is its command.

SIGTERM and SIGINT stop the child, release leadership and end; a second one
kills the child at once. SIGHUP reads the configuration again.`,
		Args: childArgs,
	}
	config.RegisterFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := load(cmd, args)
		if err != nil {
			return err
		}
		log, level := logger(cfg)
		d := daemon.New(daemon.Options{
			Config: cfg, Log: log, Level: level, Version: version(),
			Reload: func() (config.Config, error) { return load(cmd, args) },
		})
		return serve(cmd.Context(), d, cfg.HTTP.Listen, httpapi.New(httpapi.Options{View: d.View, Version: version()}))
	}
	return cmd
}

// childArgs takes only what follows --: a word before it is a slip.
func childArgs(cmd *cobra.Command, args []string) error {
	if at := cmd.ArgsLenAtDash(); len(args) > 0 && at != 0 {
		return fmt.Errorf("%q is not a flag; the child's command goes after --", args[0])
	}
	return nil
}

// serve runs the daemon, and its listener if it has an address, and turns signals into what they ask for.
func serve(ctx context.Context, d *daemon.Daemon, listen string, handler http.Handler) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	g, ctx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	g.Go(func() error {
		defer close(done)
		return d.Run(ctx)
	})
	if listen != "" {
		g.Go(func() error {
			serving, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() { // ends with the daemon
				<-done
				cancel()
			}()
			return httpapi.Serve(serving, listen, handler)
		})
	}
	g.Go(func() error {
		for {
			select {
			case sig := <-signals:
				if sig == syscall.SIGHUP {
					d.Reload()
				} else {
					d.Stop("stopped by " + sig.String())
				}
			case <-done:
				return nil
			}
		}
	})
	return g.Wait()
}
