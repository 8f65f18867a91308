package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/guard"
	"zkelectd/internal/host"
	"zkelectd/internal/operator"
	"zkelectd/internal/store"
	"zkelectd/internal/sys/harden"
	"zkelectd/internal/web"
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
need not wait, and starts the daemon again, with the configuration that was in
force: changes of the file that need a restart stay pending.

SIGTERM and SIGINT stop the child, release leadership and exit; a second one
kills the child at once. SIGHUP reloads the configuration. The exit status is
that of the daemon.`,
		Args: childArgs,
	}
	config.RegisterFlags(cmd.Flags())
	noRespawn := cmd.Flags().Bool("no-respawn", false, "exit when the daemon dies, instead of starting it again")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		signals := guard.CatchReload()
		from, applied := sources(cmd, args), config.AppliedFile(os.Getenv)
		last, err := readApplied(applied)
		if err != nil {
			return err
		}
		if err := from.Read(); err != nil && last == nil {
			return err
		}
		own, err := readSettings(from, last)
		if err == nil {
			err = operator.Access(own.host.Config, os.Getenv).Check()
		}
		if err != nil && last != nil {
			err = fmt.Errorf("with the configuration that was in force when zkelectd was killed: %w; to start with the configuration files, remove %s", err, applied)
		}
		if err != nil {
			return err
		}
		cfg := own.host.Config
		log, _, flush := logger(cfg)
		defer flush()
		if err := harden.DisableCoreDumps(); err != nil {
			log.Warn("core dumps are not disabled: a core of the guard would contain its session's password", "err", err)
		}
		lock, err := takeSessionFile(cmd.Context(), cfg.SessionFile(os.Getenv), log)
		if err != nil {
			return err
		}
		defer lock.Close()
		if now, err := readApplied(applied); err != nil || !bytes.Equal(now, last) {
			return errors.Join(errors.New("another zkelectd has ended while this one started, and with it the configuration in force has changed: start it again"), err)
		}
		status, err := guard.Run(guard.Options{
			Path: "/proc/self/exe", Argv: daemonArgs(os.Args), Respawn: !*noRespawn, Config: from.Content, ConfigOnce: from.Once, LastConfig: last, SessionLock: lock,
			Containment: guard.Containment(cfg.Child.Containment), Realtime: cfg.Guard.Realtime, Close: closeSession,
			Signals: signals, Log: log.With("node", cfg.Node.ID, "process", "guard"),
		})
		// With status 1 the daemon has given up by itself, and a higher one is that of a stop that took too long.
		if stopped := status == 0 || status > 1 && !*noRespawn; err == nil && stopped && applied != "" {
			os.Remove(applied) // the next start reads the files
		}
		if status != 0 || err != nil {
			return exitError{status, err}
		}
		return nil
	}
	return cmd
}

// takeSessionFile locks a session file, and cleans up after a zkelectd that died here. It returns nil if there is no
// such file. An error means that another zkelectd uses it.
func takeSessionFile(ctx context.Context, file string, log *slog.Logger) (*os.File, error) {
	if file == "" {
		return nil, nil
	}
	lock, err := lockSessionFile(ctx, file)
	if err != nil {
		return nil, err
	}
	var result strings.Builder
	switch err := cleanUpLeftovers(ctx, file, &result); {
	case errors.Is(err, guard.ErrOwnersMayRun): // the lock was removed while they held it
		lock.Close()
		return nil, fmt.Errorf("%s: %w", file, err)
	case err != nil && !errors.Is(err, errNothingLeft):
		log.Error("cannot clean up after a zkelectd that died here", "file", file, "err", err)
	case err == nil:
		log.Warn("cleaned up after a zkelectd that died here", "file", file, "result", strings.TrimSpace(result.String()))
	}
	return lock, nil
}

// closeSession releases the leaderships that a session held, and closes the session. Its owner and its work are dead. It
// returns the outcome of the releases, "" if none was held.
func closeSession(ctx context.Context, c guard.Credentials) (leadership string, err error) {
	e := store.SessionHandle{Servers: c.Servers, Session: c.ID, Password: c.Password}
	if len(c.Access) > 0 {
		if err := json.Unmarshal(c.Access, &e.Access); err != nil {
			return "", fmt.Errorf("the stored access to ZooKeeper is damaged: %w", err)
		}
	}
	for _, tx := range c.Releases {
		release, damaged := cluster.DecodeTx(tx)
		e.Finals = append(e.Finals, &store.FinalTx{Ops: release, Err: damaged})
	}
	err = store.CloseSession(ctx, e)
	leadership = releaseOutcome(e.Finals)
	if errors.Is(err, store.ErrNoSuchSession) {
		return leadership, nil
	}
	return leadership, err
}

// releaseOutcome describes what became of the releases of a session; "" if there were none.
func releaseOutcome(releases []*store.FinalTx) string {
	var failed []error
	released := 0
	for _, r := range releases {
		if r.Applied {
			released++
		} else if r.Err != nil {
			failed = append(failed, r.Err)
		}
	}
	text := "released"
	if released > 1 {
		text = fmt.Sprintf("released in %d groups", released)
	}
	switch {
	case len(failed) == 0 && released == 0:
		return ""
	case len(failed) == 0:
		return text
	}
	failure := "not released, so that its successor may have to wait: " + errors.Join(failed...).Error()
	if released > 0 {
		return text + "; " + failure
	}
	return failure
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
		signals := make(chan os.Signal, 8)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1)
		defer signal.Stop(signals)
		given := guard.ReadStartConfig() // takes its variable out of the environment, which is read next
		from := sources(cmd, args)
		from.Content, from.Once = given.Main, given.Once
		own, err := readSettings(from, given.Last)
		if err != nil {
			return err
		}
		cfg := own.host.Config
		log, level, flush := logger(cfg)
		defer flush()
		own.warn(log)
		g, err := connectGuard(log)
		if err != nil {
			return err
		}
		defer g.Close()
		return own.run(cmd, g, log, level, signals)
	}
	cmd.RunE = finalStatus(cmd.RunE)
	return cmd
}

// run runs the daemon with its settings until it is stopped.
func (s *daemonSettings) run(
	cmd *cobra.Command, g *guard.Client, log *slog.Logger, level *slog.LevelVar, signals <-chan os.Signal,
) error {
	cfg := s.host.Config
	auth := web.NewAuthenticator(s.access.config, log)
	hosts := web.NewHosts(cfg.HTTP.Listen, cfg.Node.ID)
	var content []byte
	joined := s.restored
	save := func() {
		if !joined {
			return
		}
		if err := writeApplied(config.AppliedFile(os.Getenv), content); err != nil {
			log.Warn("cannot store the configuration in force: if guard and daemon are killed together, the next start reads the files", "err", err)
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
		Config: s.host, Refused: s.refusal, RefusedGroups: s.refusedGroups, Pending: s.pending, Log: log, Level: level, Version: version(), Guard: g, CheckFiles: checkFiles, Secure: s.access.config.TLSEnabled(),
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
	defer exitWithGuard(g)()
	listener := web.Endpoint{Addr: cfg.HTTP.Listen, Web: s.access.config, Log: log}
	api := web.New(apiOptions(h, auth, hosts))
	peers := web.Endpoint{Addr: cfg.Failsafe.Listen, Setting: "failsafe.listen", Log: log}
	if peers.Addr == "" {
		api = h.HandleFailsafe(api)
	}
	running := service{
		host: h, listener: listener, handler: api, peers: peers, files: s.watched, signals: signals, reload: true,
		reloads: func(ctx context.Context) { s.serveReloads(ctx, h, log) },
	}
	if s.restored { // what has become of the files does not keep the daemon from working
		running.unwatched = func(err error) {
			log.Error("changes of the configuration files are not noticed: run 'zkelectd reload' after each", "err", err)
		}
	}
	err := running.run(cmd.Context())
	switch {
	case errors.Is(err, guard.ErrLost):
		return exitError{statusLost, err}
	case errors.Is(err, host.ErrStuckLoops):
		return exitError{statusStuck, err}
	}
	return err
}

// connectGuard prepares this process for its work as a daemon, and connects it with its guard. It must handle signals
// by then.
func connectGuard(log *slog.Logger) (*guard.Client, error) {
	if err := harden.DisableCoreDumps(); err != nil {
		log.Warn("core dumps are not disabled: a core of the daemon would contain its passwords and keys", "err", err)
	}
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

// exitWithGuard makes this process exit some time after it has lost its guard. The work is dead by then, but no guard is left to kill
// a stuck daemon.
func exitWithGuard(g *guard.Client) (stop func() bool) {
	return context.AfterFunc(g.Context(), func() {
		time.AfterFunc(orphanTimeout, func() { os.Exit(statusLost) })
	})
}

// Resources that package harden reserves for the daemon, so that it can act if the guard fails.
const (
	daemonProcs   = 4
	daemonThreads = 16
	daemonHeap    = 2 << 20 // the first collection is due there, see daemonGC
	daemonGC      = 50      // percent; the first collection starts at this share of 4 MB
)

// apiOptions returns the options of the daemon's HTTP API.
func apiOptions(h *host.Host, auth *web.Authenticator, hosts *web.Hosts) web.Options {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return web.Options{
		Node: h.Node(), Groups: func() []*web.Group { return apiGroups(h) }, Totals: h.Totals, Authenticator: auth, Hosts: hosts, Version: version(),
		Registry: registry,
	}
}

// apiGroups returns the groups that the HTTP API shows.
func apiGroups(h *host.Host) []*web.Group {
	var all []*web.Group
	for _, g := range h.Groups() {
		all = append(all, &web.Group{
			Name: g.Name(), View: g.View, Totals: g.Totals, Feed: g.Feed(), Group: g.State, History: g.History, Explain: g.Explain, DryRun: g.DryRun, Submit: g.Submit,
		})
	}
	return all
}

// statusLost is the daemon's exit status if it loses its guard, and statusStuck if the guard is to start it again. orphanTimeout
// bounds how long it may take to release and exit after the loss of the guard.
const (
	statusLost    = 3
	statusStuck   = 4
	orphanTimeout = 15 * time.Second
)

// finalStatus makes a daemon that fails by itself exit with 1: its guard does not start it again then.
func finalStatus(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if err == nil || errors.As(err, new(exitError)) {
			return err
		}
		return exitError{1, err}
	}
}

// childArgs permits arguments after -- only.
func childArgs(cmd *cobra.Command, args []string) error {
	if at := cmd.ArgsLenAtDash(); len(args) > 0 && at != 0 {
		return fmt.Errorf("%q is not a flag; the child's command goes after --", args[0])
	}
	return nil
}

// service is a host with what it serves and watches.
type service struct {
	host     *host.Host
	listener web.Endpoint
	handler  http.Handler
	peers    web.Endpoint    // for the other daemons in failsafe mode; empty for none, or if the listener is for them, too
	files    <-chan []string // changes of the files in the last list cause a reload; nil for none
	signals  <-chan os.Signal
	reload   bool                      // SIGHUP and SIGUSR1 ask for a reload, not to stop
	reloads  func(ctx context.Context) // serves requests to reload; nil for none
	// unwatched is called if the files cannot be watched; nil if that is to end the service.
	unwatched func(error)
}

// run runs the host, its listener if it has an address, and the watch of its files if there are any, and handles signals.
func (s service) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	g.Go(func() error {
		defer close(done)
		return s.host.Run(ctx)
	})
	running, cancel := context.WithCancel(ctx) // ends with the daemon
	g.Go(func() error {
		defer cancel()
		<-done
		return nil
	})
	if s.listener.Addr != "" {
		g.Go(func() error { return s.listener.Serve(running, s.handler) })
	}
	if s.peers.Addr != "" {
		g.Go(func() error { return s.peers.Serve(running, s.host.HandleFailsafe(http.NotFoundHandler())) })
	}
	if s.reloads != nil {
		g.Go(func() error {
			s.reloads(running)
			return nil
		})
	}
	if s.files != nil {
		g.Go(func() error {
			err := config.Watch(running, s.files, s.host.Reload)
			if err != nil && s.unwatched != nil {
				s.unwatched(err)
				return nil
			}
			return err
		})
	}
	g.Go(func() error {
		for {
			select {
			case sig := <-s.signals:
				switch {
				case s.reload && sig == syscall.SIGHUP:
					s.host.Reload()
				case s.reload && sig == syscall.SIGUSR1:
					s.host.ReloadAllowingRemovals()
				default:
					s.host.Stop("stopped by " + sig.String())
				}
			case <-done:
				return nil
			}
		}
	})
	return g.Wait()
}
