package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/config"
	"zkelectd/internal/coredump"
	"zkelectd/internal/daemon"
	"zkelectd/internal/guard"
	"zkelectd/internal/httpapi"
)

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags] [-- command args...]",
		Short: "Join the group, elect, and lead when elected",
		Long: `Run joins the group and takes part in its elections until it is stopped.
When this daemon is elected it starts the leader-only child; everything after
-- is its command.

Run is two processes: a small guard, which this is, and the daemon, its child.
The guard runs the leader-only child and kills it when leadership may have
ended, whatever the daemon does. When the daemon dies, the guard closes its
session, so that the next leader need not wait, and starts it again.

SIGTERM and SIGINT stop the child, release leadership and end; a second one
kills the child at once. SIGHUP reads the configuration again. The exit status
is the daemon's.`,
		Args: childArgs,
	}
	config.RegisterFlags(cmd.Flags())
	noRespawn := cmd.Flags().Bool("no-respawn", false, "end when the daemon dies, instead of starting it again")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := load(cmd, args)
		if err != nil {
			return err
		}
		if err := checkFiles(cfg); err != nil {
			return err
		}
		log, _, flush := logger(cfg)
		defer flush()
		if err := coredump.Forbid(); err != nil {
			log.Warn("a core of the guard could show how to close its session", "err", err)
		}
		status, err := guard.Run(guard.Options{
			Path: "/proc/self/exe", Argv: daemonArgs(os.Args), Respawn: !*noRespawn,
			Close: closeSession, Log: log.With("node", cfg.Node.ID, "process", "guard"),
		})
		if status != 0 || err != nil {
			return exitCode{status, err}
		}
		return nil
	}
	return cmd
}

// closeSession ends a session whose owner is dead, and so is its work.
func closeSession(ctx context.Context, c guard.Credentials) error {
	e := zkstore.Ended{Servers: c.Servers, Session: c.ID, Password: c.Password}
	if len(c.Access) > 0 {
		if err := json.Unmarshal(c.Access, &e.Access); err != nil {
			return fmt.Errorf("what was kept of the way to ZooKeeper is damaged: %w", err)
		}
	}
	err := zkstore.CloseSession(ctx, e)
	if errors.Is(err, zkstore.ErrNoSuchSession) {
		return nil
	}
	return err
}

// daemonArgs are this process' arguments with the command exchanged.
func daemonArgs(own []string) []string {
	argv := slices.Clone(own)
	if i := slices.Index(argv[1:], "run"); i >= 0 {
		argv[1+i] = daemonCommandName
	}
	return argv
}

const daemonCommandName = "daemon"

// daemonCommand is what the guard starts, with the flags of run.
func daemonCommand() *cobra.Command {
	cmd := &cobra.Command{Use: daemonCommandName, Hidden: true, Args: childArgs}
	config.RegisterFlags(cmd.Flags())
	cmd.Flags().Bool("no-respawn", false, "") // the guard's
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := load(cmd, args)
		if err != nil {
			return err
		}
		log, level, flush := logger(cfg)
		defer flush()
		if err := coredump.Forbid(); err != nil {
			log.Warn("a core of the daemon could show its passwords and keys", "err", err)
		}
		g, err := guard.Connect(guard.SocketFD, log)
		if err != nil {
			return err
		}
		defer g.Close()
		at, err := readAPIAccess(cfg)
		if err != nil {
			return err
		}
		gate := httpapi.NewGate(at.web, log)
		admit := func() { // the loop's, once that runs
			gate.Use(at.tokens)
			at.warn(log)
		}
		admit()
		d := daemon.New(daemon.Options{
			Config: cfg, Log: log, Level: level, Version: version(), Guard: g, Secure: at.web.Secure(),
			Reload: func() (config.Config, error) {
				next, err := load(cmd, args)
				if err != nil {
					return next, err
				}
				again, err := readAPIAccess(next)
				if err == nil {
					at.tokens, at.named = again.tokens, again.named
				}
				return next, err
			},
			Taken: admit,
		})
		detach := context.AfterFunc(g.Life(), func() {
			// The work is dead by then; nobody is left to end a daemon that is stuck.
			time.AfterFunc(orphaned, func() { os.Exit(statusLost) })
		})
		defer detach()
		listener := httpapi.Listener{Addr: cfg.HTTP.Listen, Web: at.web, Log: log}
		err = serve(cmd.Context(), d, listener, httpapi.New(shown(d, gate)), watched(cmd, cfg))
		if errors.Is(err, guard.ErrLost) {
			return exitCode{statusLost, err}
		}
		return err
	}
	return cmd
}

// shown is what the daemon shows, and takes orders by, over HTTP.
func shown(d *daemon.Daemon, gate *httpapi.Gate) httpapi.Options {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return httpapi.Options{
		View: d.View, Totals: d.Totals, Feed: d.Feed(), Group: d.Group, History: d.History, Explain: d.Explain, Order: d.Order, Gate: gate,
		Version: version(), Registry: registry,
	}
}

// watched is the file whose changes are taken over, "" for none.
func watched(cmd *cobra.Command, cfg config.Config) string {
	if !cfg.Reload.Watch {
		return ""
	}
	return cmd.Flags().Lookup("config").Value.String()
}

// statusLost is the daemon's exit status without a guard, orphaned how long it may take to release and end.
const (
	statusLost = 3
	orphaned   = 15 * time.Second
)

// childArgs takes only what follows --: a word before it is a slip.
func childArgs(cmd *cobra.Command, args []string) error {
	if at := cmd.ArgsLenAtDash(); len(args) > 0 && at != 0 {
		return fmt.Errorf("%q is not a flag; the child's command goes after --", args[0])
	}
	return nil
}

// serve runs the daemon, its listener if it has an address, the watch of its file if that is asked for, and turns signals
// into what they ask for.
func serve(ctx context.Context, d *daemon.Daemon, listener httpapi.Listener, handler http.Handler, file string) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	g, ctx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	g.Go(func() error {
		defer close(done)
		return d.Run(ctx)
	})
	beside, cancel := context.WithCancel(ctx) // ends with the daemon
	g.Go(func() error {
		defer cancel()
		<-done
		return nil
	})
	if listener.Addr != "" {
		g.Go(func() error { return listener.Serve(beside, handler) })
	}
	if file != "" {
		g.Go(func() error { return config.Watch(beside, file, d.Reload) })
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
