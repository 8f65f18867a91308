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
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/config"
	"zkelectd/internal/guard"
	"zkelectd/internal/harden"
	"zkelectd/internal/host"
	"zkelectd/internal/httpapi"
)

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags] [-- command args...]",
		Short: "Join the group, take part in elections, and lead when elected",
		Long: `Run joins the group and takes part in its elections until it is stopped.
When this daemon is elected, it starts the leader-only child; everything after
-- is its command.

Run has three processes: this one is the small guard, which starts the daemon
and the keeper. The daemon talks to ZooKeeper and decides. The keeper starts the
leader-only child. The guard kills the child when leadership may have ended,
even if the daemon hangs; if the guard fails, the daemon and the keeper kill the
child. When the daemon dies, the guard closes its session, so that the next leader
need not wait, and starts the daemon again, with the last good configuration if the
file is invalid.

SIGTERM and SIGINT stop the child, release leadership and exit; a second one
kills the child at once. SIGHUP reloads the configuration. The exit status is
that of the daemon.`,
		Args: childArgs,
	}
	config.RegisterFlags(cmd.Flags())
	noRespawn := cmd.Flags().Bool("no-respawn", false, "exit when the daemon dies, instead of starting it again")
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
		if err := harden.DisableCoreDumps(); err != nil {
			log.Warn("core dumps are not disabled: a core of the guard would contain its session's password", "err", err)
		}
		if file := cfg.SessionFile(os.Getenv); file != "" {
			var result strings.Builder
			if err := cleanUpLeftovers(cmd.Context(), file, &result); err != nil {
				log.Error("cannot clean up after a zkelectd that died here", "file", file, "err", err)
			} else if result.Len() > 0 {
				log.Warn("cleaned up after a zkelectd that died here", "file", file, "result", strings.TrimSpace(result.String()))
			}
		}
		status, err := guard.Run(guard.Options{
			Path: "/proc/self/exe", Argv: daemonArgs(os.Args), Respawn: !*noRespawn,
			Containment: guard.Containment(cfg.Child.Containment), Realtime: cfg.Guard.Realtime, Close: closeSession,
			Log: log.With("node", cfg.Node.ID, "process", "guard"),
		})
		if status != 0 || err != nil {
			return exitError{status, err}
		}
		return nil
	}
	return cmd
}

// closeSession releases the leadership that a session held, and closes the session. Its owner and its work are dead. It
// returns the outcome of releasing leadership, "" if none was held.
func closeSession(ctx context.Context, c guard.Credentials) (leadership string, err error) {
	e := zkstore.SessionHandle{Servers: c.Servers, Session: c.ID, Password: c.Password}
	if len(c.Access) > 0 {
		if err := json.Unmarshal(c.Access, &e.Access); err != nil {
			return "", fmt.Errorf("the stored access to ZooKeeper is damaged: %w", err)
		}
	}
	leave, damaged := cluster.DecodeTx(c.Release)
	e.Final = &zkstore.FinalTx{Ops: leave, Err: damaged}
	err = zkstore.CloseSession(ctx, e)
	switch {
	case e.Final.Applied:
		leadership = "released"
	case e.Final.Err != nil:
		leadership = "not released, so that its successor may have to wait: " + e.Final.Err.Error()
	}
	if errors.Is(err, zkstore.ErrNoSuchSession) {
		return leadership, nil
	}
	return leadership, err
}

// daemonArgs returns the arguments of this process with the command replaced.
func daemonArgs(own []string) []string {
	argv := slices.Clone(own)
	if i := slices.Index(argv[1:], "run"); i >= 0 {
		argv[1+i] = daemonCommandName
	}
	return argv
}

const daemonCommandName = "daemon"

// daemonCommand is the command that the guard starts, with the flags of run.
func daemonCommand() *cobra.Command {
	cmd := &cobra.Command{Use: daemonCommandName, Hidden: true, Args: childArgs}
	config.RegisterFlags(cmd.Flags())
	cmd.Flags().Bool("no-respawn", false, "") // used by the guard
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		last := guard.LastConfig() // takes its variable out of the environment, which is read next
		own, err := readSettings(sources(cmd, args), last)
		if err != nil {
			return err
		}
		cfg := own.cfg
		log, level, flush := logger(cfg)
		defer flush()
		own.warn(log)
		if err := harden.DisableCoreDumps(); err != nil {
			log.Warn("core dumps are not disabled: a core of the daemon would contain its passwords and keys", "err", err)
		}
		harden.Protect(harden.Options{
			OOMScore: harden.OOMScoreDaemon, Procs: daemonProcs, Threads: daemonThreads, Heap: daemonHeap,
			Log: log.With("process", "daemon"),
		})
		g, err := guard.Connect(guard.SocketFD, log)
		if err != nil {
			return err
		}
		defer g.Close()
		auth := httpapi.NewAuthenticator(own.access.web, log)
		hosts := httpapi.NewHosts(cfg.HTTP.Listen, cfg.Node.ID)
		commit := func() { // called by one goroutine at a time
			auth.SetTokens(own.access.tokens)
			hosts.SetAllowed(own.access.hosts)
			own.access.warn(log)
			if own.content != nil {
				g.SetLastConfig(own.content)
			}
		}
		commit()
		h := host.New(host.Options{
			Config: cfg, Refused: own.refusal, Log: log, Level: level, Version: version(), Guard: g, Secure: own.access.web.TLSEnabled(),
			Reload: func() (host.Reloaded, error) { return own.reload(commit) },
		})
		detach := context.AfterFunc(g.Context(), func() {
			// The work is dead by then, but no guard is left to kill a stuck daemon.
			time.AfterFunc(orphanTimeout, func() { os.Exit(statusLost) })
		})
		defer detach()
		listener := httpapi.Endpoint{Addr: cfg.HTTP.Listen, Web: own.access.web, Log: log}
		err = serve(cmd.Context(), h, listener, httpapi.New(apiOptions(h, auth, hosts)), watchedFiles(cmd, cfg))
		if errors.Is(err, guard.ErrLost) {
			return exitError{statusLost, err}
		}
		return err
	}
	return cmd
}

// Resources that package harden reserves for the daemon, so that it can act if the guard fails.
const (
	daemonProcs   = 4
	daemonThreads = 16
	daemonHeap    = 4 << 20 // the first collection is due there
)

// apiOptions returns the options of the daemon's HTTP API.
func apiOptions(h *host.Host, auth *httpapi.Authenticator, hosts *httpapi.Hosts) httpapi.Options {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return httpapi.Options{
		View: h.View, Totals: h.Totals, Feed: h.Feed(), Group: h.Group, History: h.History, Explain: h.Explain, Submit: h.Submit, Authenticator: auth, Hosts: hosts,
		Version: version(), Registry: registry,
	}
}

// watchedFiles returns the files whose changes cause a reload.
func watchedFiles(cmd *cobra.Command, cfg config.Config) []string {
	if !cfg.Reload.Watch {
		return nil
	}
	return cfg.WatchedFiles(configFile(cmd), os.Getenv)
}

// statusLost is the daemon's exit status if it loses its guard; orphanTimeout bounds how long it may then take to
// release and exit.
const (
	statusLost    = 3
	orphanTimeout = 15 * time.Second
)

// childArgs permits arguments after -- only.
func childArgs(cmd *cobra.Command, args []string) error {
	if at := cmd.ArgsLenAtDash(); len(args) > 0 && at != 0 {
		return fmt.Errorf("%q is not a flag; the child's command goes after --", args[0])
	}
	return nil
}

// serve runs the daemon, its listener if it has an address, and the watch of its files if there are any, and handles signals.
func serve(ctx context.Context, h *host.Host, listener httpapi.Endpoint, handler http.Handler, files []string) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	g, ctx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	g.Go(func() error {
		defer close(done)
		return h.Run(ctx)
	})
	running, cancel := context.WithCancel(ctx) // ends with the daemon
	g.Go(func() error {
		defer cancel()
		<-done
		return nil
	})
	if listener.Addr != "" {
		g.Go(func() error { return listener.Serve(running, handler) })
	}
	if len(files) > 0 {
		g.Go(func() error { return config.Watch(running, files, h.Reload) })
	}
	g.Go(func() error {
		for {
			select {
			case sig := <-signals:
				if sig == syscall.SIGHUP {
					h.Reload()
				} else {
					h.Stop("stopped by " + sig.String())
				}
			case <-done:
				return nil
			}
		}
	})
	return g.Wait()
}
