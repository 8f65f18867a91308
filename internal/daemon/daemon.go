// Package daemon puts together what runs on a host. [RunGuard] is the process that a user starts: the guard, which
// starts [Main], the daemon: the guard's client, the host with its groups, the HTTP API, reloads and signals. [RunJob]
// and [MainJob] are the same for a job that runs once.
package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"zkelectd/internal/config"
	"zkelectd/internal/guard"
	"zkelectd/internal/host"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/asynclog"
	"zkelectd/internal/sys/harden"
	"zkelectd/internal/web"
)

// The exit statuses of the daemon. With the first two its guard does not start it again.
const (
	StatusStopped = 0
	StatusFailed  = 1 // it has given up
	StatusLost    = 3 // it has lost its guard
	StatusStuck   = 4 // a part of it cannot be ended
)

// Main is the daemon's process, which the guard has started, until it is stopped. It returns the exit status, and why
// it is not 0. It creates groups that this host has never been in only if create is set.
func Main(ctx context.Context, from config.Sources, version string, create bool) (exit int, err error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1)
	defer signal.Stop(signals)
	given := guard.ReadStartConfig() // takes its variable out of the environment, which is read next
	from.Env = os.Environ()
	from.Content, from.Once = given.Main, given.Once
	own, err := readSettings(from, given.Last)
	if err != nil {
		return StatusFailed, err
	}
	log, level, flush := NewLogger(own.host.Config.Log)
	defer flush()
	own.warn(log)
	g, err := connectGuard(log)
	if err != nil {
		return StatusFailed, err
	}
	defer g.Close()
	defer exitWithGuard(g)()
	own.create = create
	err = own.newDaemon(version, g, log, level, signals).Run(ctx)
	switch {
	case err == nil:
		return StatusStopped, nil
	case errors.Is(err, guard.ErrLost):
		return StatusLost, err
	case errors.Is(err, host.ErrStuckLoops):
		return StatusStuck, err
	}
	return StatusFailed, err
}

// newDaemon returns the daemon that runs with the settings.
func (s *settings) newDaemon(version string, g *guard.Client, log *slog.Logger, level *slog.LevelVar,
	signals <-chan os.Signal) *Daemon {
	cfg := s.host.Config
	address := cfg.HTTP.Address(os.Getenv)
	auth := web.NewAuthenticator(s.access.config, log)
	hosts := web.NewHosts(address, cfg.Node.ID)
	var content []byte
	joined := s.restored
	save := func() {
		if !joined {
			return
		}
		if err := writeApplied(config.AppliedFile(os.Getenv), content); err != nil {
			log.Warn("cannot store the configuration in force: if guard and daemon are killed together, the next "+
				"start reads the files", "err", err)
		}
	}
	commit := func(inForce config.Host) { // called by one goroutine at a time
		auth.SetTokens(s.access.tokens)
		hosts.SetAllowed(s.access.hosts)
		s.access.warn(log)
		s.watch(inForce.Config)
		content = s.bundle(inForce)
		g.SetLastConfig(content)
		save()
	}
	commit(s.host)
	h := host.New(host.Options{
		Config: s.host, Refused: s.refusal, RefusedGroups: s.refusedGroups, Pending: s.pending, Log: log, Level: level,
		Version: version, Guard: g, ConfigFile: s.namedFile(), Create: s.create, CheckFiles: CheckFiles,
		StateDir: config.StateDirectory(os.Getenv), Secure: s.access.config.TLSEnabled(),
		Reload: func(running config.Host, allowRemovals bool) (host.Reloaded, error) {
			return s.reload(running, allowRemovals, commit)
		},
		Joined: func() { // not before: a first start that fails must not keep a corrected file from being read
			joined = true
			save()
		},
	})
	if s.restored && cfg.Reload.Watch {
		h.Reload() // the files may have changed before the crash, or since
	}
	listener := web.Endpoint{Addr: address, Web: s.access.config, Log: log}
	api := web.New(apiOptions(h, version, auth, hosts))
	peers := web.Endpoint{Addr: cfg.Failsafe.Listen, Setting: "failsafe.listen", Log: log}
	if peers.Addr == "" {
		api = h.HandleFailsafe(api)
	}
	return &Daemon{
		host: h, listener: listener, handler: api, peers: peers, files: s.watched, signals: signals, reload: true,
		reloads: func(ctx context.Context) { s.serveReloads(ctx, h, log) },
	}
}

// Daemon is a host with what it serves and watches.
type Daemon struct {
	host     *host.Host
	listener web.Endpoint
	handler  http.Handler
	peers    web.Endpoint    // for the other daemons in failsafe mode; empty for none, or if the listener is for them, too
	files    <-chan []string // changes of the files in the last list cause a reload; nil for none
	signals  <-chan os.Signal
	reload   bool                      // SIGHUP and SIGUSR1 ask for a reload, not to stop
	reloads  func(ctx context.Context) // serves requests to reload; nil for none
}

// Run runs the host, its listener if it has an address, and the watch of its files if there are any, and handles
// signals.
func (d *Daemon) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	g.Go(func() error {
		defer close(done)
		return d.host.Run(ctx)
	})
	running, cancel := context.WithCancel(ctx) // ends with the daemon
	g.Go(func() error {
		defer cancel()
		<-done
		return nil
	})
	if d.listener.Addr != "" {
		g.Go(func() error { return d.listener.Serve(running, d.handler) })
	}
	if d.peers.Addr != "" {
		g.Go(func() error { return d.peers.Serve(running, d.host.HandleFailsafe(http.NotFoundHandler())) })
	}
	if d.reloads != nil {
		g.Go(func() error {
			d.reloads(running)
			return nil
		})
	}
	if d.files != nil {
		g.Go(func() error {
			config.Watch(running, d.files, config.WatchInterval, d.host.Reload)
			return nil
		})
	}
	g.Go(func() error {
		for {
			select {
			case sig := <-d.signals:
				switch {
				case d.reload && sig == syscall.SIGHUP:
					d.host.Reload()
				case d.reload && sig == syscall.SIGUSR1:
					d.host.ReloadAllowingRemovals()
				default:
					d.host.Stop("stopped by " + sig.String())
				}
			case <-done:
				return nil
			}
		}
	})
	return g.Wait()
}

// connectGuard prepares this process for its work as a daemon, and connects it with its guard. It must handle signals
// by then.
func connectGuard(log *slog.Logger) (*guard.Client, error) {
	disableCoreDumps(log, "daemon")
	debug.SetGCPercent(daemonGC)
	harden.Protect(harden.Options{
		OOMScore: harden.OOMScoreDaemon, Procs: daemonProcs, Threads: daemonThreads, Heap: daemonHeap,
		Log: log.With("process", "daemon"),
	})
	g, err := guard.Connect(guard.SocketFD, log)
	if err == nil {
		g.ReportAlive() // it handles signals
	}
	return g, err
}

// exitWithGuard makes this process exit some time after it has lost its guard. The work is dead by then, but no guard
// is left to kill a stuck daemon.
func exitWithGuard(g *guard.Client) (stop func() bool) {
	return context.AfterFunc(g.Context(), func() {
		time.AfterFunc(orphanTimeout, func() { os.Exit(StatusLost) })
	})
}

// Resources that package harden reserves for the daemon, so that it can act if the guard fails.
const (
	daemonProcs   = 4
	daemonThreads = 16
	daemonHeap    = 2 << 20 // the first collection is due there, see daemonGC
	daemonGC      = 50      // percent; the first collection starts at this share of 4 MB
)

// orphanTimeout bounds how long it may take to release and exit after the loss of the guard.
const orphanTimeout = 15 * time.Second

// apiOptions returns the options of the daemon's HTTP API.
func apiOptions(h *host.Host, version string, auth *web.Authenticator, hosts *web.Hosts) web.Options {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return web.Options{
		Node: h.Node(), Groups: func() []*web.Group { return apiGroups(h) }, Totals: h.Totals, Authenticator: auth,
		Hosts: hosts, Version: version,
		Registry: registry,
	}
}

// apiGroups returns the groups that the HTTP API shows.
func apiGroups(h *host.Host) []*web.Group {
	var all []*web.Group
	for _, g := range h.Groups() {
		all = append(all, &web.Group{
			Name: g.Name(), View: g.View, Totals: g.Totals, Feed: g.Feed(), Group: g.State, History: g.History,
			Explain: g.Explain, DryRun: g.DryRun, Submit: g.Submit,
			ApplicationLease: g.ApplicationLease, ReturnApplicationLease: g.ReturnApplicationLease, PublishValue: g.PublishValue,
		})
	}
	return all
}

// NewLogger returns a logger to standard error, with a level that a reload can change. It never waits for a reader of
// its output, except in flush at the end.
func NewLogger(cfg config.Log) (log *slog.Logger, level *slog.LevelVar, flush func()) {
	level = new(slog.LevelVar)
	level.UnmarshalText([]byte(cfg.Level)) // checked with the configuration
	opt := &slog.HandlerOptions{Level: level}
	out := asynclog.New(os.Stderr,
		func(lost int64) { log.Warn("log lines dropped: standard error is not read fast enough", "lines", lost) })
	log = slog.New(slog.NewTextHandler(out, opt))
	if cfg.Format == "json" {
		log = slog.New(slog.NewJSONHandler(printableJSON{out}, opt))
	}
	return log, level, func() { out.Close(time.Second) }
}

// printableJSON is a writer for a log in JSON that escapes terminal control sequences. Each line comes in one Write.
type printableJSON struct{ io.Writer }

func (w printableJSON) Write(line []byte) (int, error) {
	if _, err := w.Writer.Write(status.PrintableJSON(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}
