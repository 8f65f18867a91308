// The command demo runs a small fleet on this host with a real ZooKeeper server: four daemons on two sites, first with
// one group, then with twelve, and a scripted tour through their elections with measured times. It is also the child of
// these daemons.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"zkelectd/internal/guard"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), guard.NotIgnored(os.Interrupt, syscall.SIGTERM,
		syscall.SIGHUP)...)
	err := run(ctx, os.Args[1:])
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case interrupted:
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "child" {
		return runChild(ctx, args[1:])
	}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	once := flags.Bool("once", false, "exit after the tour: 0, or 1 if a step failed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return runTour(ctx, options{zkelectd: filepath.Join(filepath.Dir(self), "zkelectd"), child: self, once: *once,
		out: os.Stdout})
}
