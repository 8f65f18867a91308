// Package host runs zkelectd on one host. It opens one ZooKeeper session after another, and runs the host's member of the group
// on each of them. It passes the session to the guard, reloads the configuration on request, measures the host's health, submits
// operator requests, and reports to the service manager.
package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/config"
	"zkelectd/internal/group"
	"zkelectd/internal/guard"
	"zkelectd/internal/hook"
	"zkelectd/internal/operator"
	"zkelectd/internal/status"
	"zkelectd/internal/workenv"
)

// Guard is the subset of the guard's methods that a host uses; *guard.Client implements it.
type Guard interface {
	group.Guard
	// GuardPid returns the guard's process ID.
	GuardPid() int
	// Context returns a context that ends when the guard is lost.
	Context() context.Context
	// SetSession sets the session that the guard closes if this daemon dies, and SetAccess the credentials and TLS files for
	// that.
	SetSession(guard.Credentials)
	SetAccess(json.RawMessage)
	ClearSession()
	// ReportAlive reports to the service manager's watchdog that this daemon is alive, and Notify sends the service manager a
	// message.
	ReportAlive()
	Notify(state string)
}

// Options configures a Host.
type Options struct {
	Config config.Config
	// Refused is the error that the configuration file was refused with, if Config is an older configuration.
	Refused error
	// Reload reads the configuration again; nil if that is not possible.
	Reload func() (Reloaded, error)
	// Secure reports whether the HTTP API uses TLS.
	Secure bool
	Log    *slog.Logger
	// Level is the log level that a reload of log.level sets; may be nil.
	Level   *slog.LevelVar
	Version string
	Guard   Guard
}

// Host is a running zkelectd.
type Host struct {
	opt        Options
	inForce    atomic.Pointer[config.Config] // never changed, only replaced
	log        *slog.Logger
	paths      cluster.Paths
	group      *group.Group
	health     *health
	counters   *group.Counters
	service    *service
	hooks      *hook.Queue           // runs hooks.on_change
	cache      *operator.GroupCache  // answers HTTP clients, in their goroutines
	requests   chan submission       // from operators
	grants     grants                // session timeouts that servers granted
	unclosed   zkstore.SessionHandle // the last session, if the servers did not confirm that it was closed
	lastReload atomic.Pointer[reloadResult]
	reloads    chan struct{}
	quit       context.Context // ends at the first Stop
	cancel     context.CancelFunc
}

// New returns a host; Run runs it.
func New(opt Options) *Host {
	h := &Host{
		opt: opt, log: opt.Log.With("node", opt.Config.Node.ID), paths: cluster.Paths{Root: opt.Config.ZooKeeper.Root},
		counters: group.NewCounters(), service: &service{notify: opt.Guard.Notify},
		requests: make(chan submission), reloads: make(chan struct{}, 1),
	}
	h.inForce.Store(&opt.Config)
	h.lastReload.Store(&reloadResult{})
	if opt.Refused != nil {
		h.lastReload.Store(&reloadResult{refused: opt.Refused.Error()})
		h.counters.Update(func(t *status.Totals) { t.ReloadFailed = true })
	}
	h.cache = operator.NewGroupCache(h.paths.Root)
	h.health = newHealth(opt.Config, h.log)
	h.quit, h.cancel = context.WithCancel(context.Background())
	h.group = group.New(h.groupOptions())
	h.health.onChange = h.group.NodeChanged
	return h
}

// config returns the configuration in force. A reload may replace it at any time, so settings that belong together must be read
// from one copy.
func (h *Host) config() config.Config { return *h.inForce.Load() }

// View returns the daemon's current view.
func (h *Host) View() status.Daemon { return h.group.View() }

// Feed returns the feed of changes to the view.
func (h *Host) Feed() *status.Feed { return h.group.Feed() }

// Totals returns the counters for the metrics.
func (h *Host) Totals() status.Totals { return h.counters.Totals() }

// Stop makes the host release leadership, close its session and end. A second call kills its work at once.
func (h *Host) Stop(reason string) {
	h.group.Stop(reason)
	h.cancel()
}

// Reload makes the host reload its configuration.
func (h *Host) Reload() {
	select {
	case h.reloads <- struct{}{}:
	default:
	}
}

// Run runs the host until Stop or a permanent failure. The end of ctx has the same effect as Stop.
func (h *Host) Run(ctx context.Context) error {
	detach := context.AfterFunc(ctx, func() { h.Stop("asked to stop") })
	defer detach()
	defer h.cancel()
	abandoned := context.AfterFunc(h.opt.Guard.Context(), func() { h.Stop("the guard is lost") })
	defer abandoned()
	h.hooks = hook.NewQueue(hook.Hook{
		Setting: "hooks.on_change", Argv: h.config().Hooks.OnChange, Env: workenv.Clean(os.Environ()), Timeout: h.config().Hooks.Timeout,
	}, h.log)
	defer func() {
		limited, cancel := context.WithTimeout(context.Background(), h.config().Hooks.Timeout)
		defer cancel()
		h.hooks.Close(limited)
	}()
	var probes sync.WaitGroup
	defer probes.Wait()
	probing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	probes.Go(func() { h.health.probe(probing, h.config()) })
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		began := time.Now()
		err := h.session(ctx)
		var permanent *group.PermanentError
		switch {
		case errors.As(err, &permanent):
			return permanent.Err
		case h.opt.Guard.Err() != nil:
			return h.opt.Guard.Err()
		case h.quit.Err() != nil:
			h.log.Info("stopped")
			return nil
		case err != nil:
			h.log.Warn("session ended; opening a new one", "reason", err)
		}
		if time.Since(began) > 10*time.Second {
			pause = 100 * time.Millisecond
		}
		stopWaiting := h.keepAlive("waiting to begin a new session")
		// Jitter, so that a fleet that lost its sessions together does not reconnect at the same time.
		t := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-t.C:
		case <-h.quit.Done():
			t.Stop()
		}
		stopWaiting()
	}
}

// closeTimeout bounds the closing of a session.
const closeTimeout = 5 * time.Second

// session opens a session, runs the host's member of the group on it, and closes it.
func (h *Host) session(ctx context.Context) error {
	c := h.config()
	opening, cancel := h.quit, context.CancelFunc(func() {})
	if limit := c.ZooKeeper.ConnectTimeout; limit > 0 {
		opening, cancel = context.WithTimeout(h.quit, limit)
	}
	defer cancel()
	stopWaiting := sync.OnceFunc(h.keepAlive("waiting for ZooKeeper at " + strings.Join(c.ZooKeeper.Servers, ", ")))
	defer stopWaiting()
	access := operator.Access(c, os.Getenv)
	s, err := zkstore.Open(opening, zkstore.Options{
		Servers: c.ZooKeeper.Servers, Timeout: c.ZooKeeper.SessionTimeout, Access: access, Log: h.log,
	})
	if err != nil {
		if h.quit.Err() == nil && opening.Err() != nil {
			return &group.PermanentError{Err: err}
		}
		return err
	}
	defer h.closeSession(ctx, s)
	h.opt.Guard.SetSession(guard.Credentials{
		Servers: c.ZooKeeper.Servers, ID: s.SessionID(), Password: s.Password(), Timeout: s.Timeout(), File: c.SessionFile(os.Getenv),
		Access: operator.EncodeAccess(access),
	})
	budget, base, err := h.budget(s.Timeout())
	if err != nil {
		return &group.PermanentError{Err: err}
	}
	m, err := h.group.Register(h.quit, s, h.settings(), budget)
	if err != nil {
		return err
	}
	h.log.Info(budget.Text(c.Election.TrustSessionEnd))
	h.log.Info("registered", "incarnation", m.Incarnation(), "root", h.paths.Root)
	stopWaiting()
	h.counters.Update(func(t *status.Totals) { t.Sessions++ })
	s.OnShrink(base, func(g zkstore.Grant) { h.cutLease(m, g) })
	h.service.ready(h.line(m.View()))
	err = h.serve(ctx, s, m, budget)
	if h.quit.Err() == nil {
		h.counters.Update(func(t *status.Totals) { t.SessionsLost++ })
	}
	return err
}

// serve runs the member, and serves operator requests and reloads on its session until the member ends.
func (h *Host) serve(ctx context.Context, s *zkstore.Session, m *group.Member, budget cluster.Budget) error {
	h.cache.SetSource(&operator.Source{Session: s, Paths: h.paths, Config: h.config()})
	defer h.cache.SetSnapshot(nil)
	defer h.cache.SetSource(nil)
	var beside sync.WaitGroup
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		cancel()
		// If a reload hangs on a disk, the guard ends the daemon, so that the next session does not have to wait.
		h.opt.Guard.Heartbeat(boottime.Now() + budget.Session)
		beside.Wait()
		h.opt.Guard.Heartbeat(0)
	}()
	beside.Go(func() { h.serveRequests(ctx, s, budget.Session) })
	beside.Go(func() { h.serveReloads(ctx, s, m, 2*budget.Session) })
	return m.Run()
}

func (h *Host) closeSession(ctx context.Context, s *zkstore.Session) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := s.Close(closing); err != nil {
		h.log.Warn("the session did not close cleanly", "err", err)
		h.unclosed = s.Handle()
		h.unclosed.Access = operator.Access(h.config(), os.Getenv)
	}
	h.opt.Guard.ClearSession()
}

// closeOld closes the last session if closing it has failed before. All work that it allowed is dead: otherwise the next session
// would not have begun.
func (h *Host) closeOld(ctx context.Context, session int64) {
	if h.unclosed.Session != session || session == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if err := zkstore.CloseSession(ctx, h.unclosed); err != nil && !errors.Is(err, zkstore.ErrNoSuchSession) {
		h.log.Warn("the old session cannot be closed yet", "err", err)
	}
}

// cutLease shortens the lease and ends leadership and session when a server has granted a shorter session timeout than the one
// that the lease is based on. The session calls it before it sends anything on the new connection, in a separate goroutine.
func (h *Host) cutLease(m *group.Member, g zkstore.Grant) {
	h.grants.note(g.Timeout)
	m.CutLease(g.RequestedAt+cluster.SafeLease(g.Timeout), fmt.Sprintf("%s granted a session timeout of %s instead of %s", g.Server, g.Timeout, g.Base))
	h.log.Error("a ZooKeeper server granted a shorter session timeout than the lease is based on: leadership ends, and a new session begins",
		"server", g.Server, "granted", g.Timeout, "lease_base", g.Base,
		"hint", fmt.Sprintf("let all servers have a maxSessionTimeout of at least %s, or set zookeeper.min_session_timeout: %s on all hosts", g.Base, g.Timeout))
}

// sendStatus sends a view to the service manager.
func (h *Host) sendStatus(v status.Daemon) { h.service.status(h.line(v)) }

func (h *Host) line(v status.Daemon) string { return line(v, h.lastReload.Load().refused != "") }
