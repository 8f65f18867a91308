// Package host runs zkelectd on one host: one session with ZooKeeper after another, and on each of them the host's member of the
// group. It hands the session to the guard, reads the configuration again on request, measures the host's health, submits
// operator requests on its session, and reports to the service manager.
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

// Guard is what a host needs of the guard; *guard.Client implements it.
type Guard interface {
	group.Guard
	// GuardPid returns the guard's process.
	GuardPid() int
	// Context is over when the guard is lost.
	Context() context.Context
	// SetSession sets what closes the session if this daemon dies, SetAccess how to reach the servers for it.
	SetSession(guard.Credentials)
	SetAccess(json.RawMessage)
	ClearSession()
	// ReportAlive tells the service manager's watchdog that this daemon is alive, and Notify sends the service manager a message.
	ReportAlive()
	Notify(state string)
}

// Options are what a host needs.
type Options struct {
	Config config.Config
	// Refused is why the configuration file was refused, if Config is an older one.
	Refused error
	// Reload reads the configuration again; nil if that is not possible.
	Reload func() (Reloaded, error)
	// Secure reports whether the HTTP API speaks TLS.
	Secure bool
	Log    *slog.Logger
	// Level is set by a reload of log.level; may be nil.
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
	hooks      *hook.Queue           // of on_change
	cache      *operator.GroupCache  // answers HTTP clients, on their goroutines
	requests   chan submission       // of operators
	grants     grants                // by the servers
	unclosed   zkstore.SessionHandle // the last session, if the servers did not confirm that it was closed
	lastReload atomic.Pointer[reloadResult]
	reloads    chan struct{}
	quit       context.Context // over at the first Stop
	cancel     context.CancelFunc
}

// New returns a host; Run makes it work.
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

// config returns the configuration in force. A reload replaces it at any time, so what belongs together is taken from one
// copy.
func (h *Host) config() config.Config { return *h.inForce.Load() }

// View returns what the host shows.
func (h *Host) View() status.Daemon { return h.group.View() }

// Feed returns the changes of the view.
func (h *Host) Feed() *status.Feed { return h.group.Feed() }

// Totals returns what was counted so far.
func (h *Host) Totals() status.Totals { return h.counters.Totals() }

// Stop asks the host to give up leadership, close its session and end; a second time, to kill its work at once.
func (h *Host) Stop(reason string) {
	h.group.Stop(reason)
	h.cancel()
}

// Reload asks the host to read its configuration again.
func (h *Host) Reload() {
	select {
	case h.reloads <- struct{}{}:
	default:
	}
}

// Run works until Stop, or until a permanent failure. When ctx is over it behaves as after Stop.
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
			h.log.Warn("the session is over, beginning a new one", "reason", err)
		}
		if time.Since(began) > 10*time.Second {
			pause = 100 * time.Millisecond
		}
		stopWaiting := h.keepAlive("waiting to begin a new session")
		// Jitter, so that a fleet that lost its sessions together does not come back at the same time.
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

// session opens a session, runs the group's member on it, and closes it.
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

// serve runs the member, and what needs a session beside it, until the member's end.
func (h *Host) serve(ctx context.Context, s *zkstore.Session, m *group.Member, budget cluster.Budget) error {
	h.cache.SetSource(&operator.Source{Session: s, Paths: h.paths, Config: h.config()})
	defer h.cache.SetSnapshot(nil)
	defer h.cache.SetSource(nil)
	var beside sync.WaitGroup
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		cancel()
		// A disk that hangs a reload must not keep the next session waiting: the guard ends the daemon then.
		h.opt.Guard.Heartbeat(boottime.Now() + budget.Session)
		beside.Wait()
		h.opt.Guard.Heartbeat(0)
	}()
	beside.Go(func() { h.serveRequests(life, s, budget.Session) })
	beside.Go(func() { h.serveReloads(life, s, m, 2*budget.Session) })
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

// closeOld closes the last session if it was not closed in time when it ended: all work that was allowed by it is dead, or the
// next session would not have begun.
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

// cutLease ends the leadership and the session when a server has granted less than the lease rests on. The session calls it
// before anything is sent on the new connection, from a goroutine of its own.
func (h *Host) cutLease(m *group.Member, g zkstore.Grant) {
	h.grants.note(g.Timeout)
	m.CutLease(g.RequestedAt+cluster.SafeLease(g.Timeout), fmt.Sprintf("%s granted a session timeout of %s instead of %s", g.Server, g.Timeout, g.Base))
	h.log.Error("a ZooKeeper server granted a shorter session timeout than the lease rests on: leadership ends, and a new session begins",
		"server", g.Server, "granted", g.Timeout, "lease_rests_on", g.Base,
		"hint", fmt.Sprintf("let all servers have a maxSessionTimeout of at least %s, or set zookeeper.min_session_timeout: %s on all hosts", g.Base, g.Timeout))
}

// sendStatus shows a view to the service manager.
func (h *Host) sendStatus(v status.Daemon) { h.service.status(h.line(v)) }

func (h *Host) line(v status.Daemon) string { return line(v, h.lastReload.Load().refused != "") }
