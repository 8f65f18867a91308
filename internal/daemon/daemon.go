// Package daemon puts the parts together: it runs one session after another, feeds what happens to the pure core, and
// performs what the core decides. One goroutine, the loop, owns the core.
package daemon

import (
	"context"
	"errors"
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
	"zkelectd/internal/guard"
	"zkelectd/internal/hook"
	"zkelectd/internal/operator"
	"zkelectd/internal/status"
	"zkelectd/internal/transition"
	"zkelectd/internal/workenv"
)

// Options are what a daemon needs.
type Options struct {
	Config config.Config
	// Refused is why the configuration file was refused, where Config is an older one; nil normally.
	Refused error
	// Reload reads the configuration again, for SIGHUP, and names the settings whose files hold something else now; nil if it
	// can't be.
	Reload func() (next config.Config, files []string, err error)
	// Taken is called by the loop for each reload that was taken over, also without a change; may be nil.
	Taken func()
	// Secure tells that the HTTP API speaks TLS.
	Secure bool
	Log    *slog.Logger
	// Level is set by a reload of log.level; may be nil.
	Level   *slog.LevelVar
	Version string
	// Guard runs the leader-only work.
	Guard *guard.Client
}

// Daemon is one member of a group.
type Daemon struct {
	opt     Options
	inForce atomic.Pointer[config.Config] // never changed, only replaced
	log     *slog.Logger
	paths   cluster.Paths
	me      identity
	hooks   *hook.Queue
	// vitals are found out by goroutines of their own; the others below belong to the loop.
	vitals  *vitals
	loads   int64  // how often the configuration was read again
	refused string // why not, the last time
	// reloaded is what the last one has changed, in words.
	reloaded string
	drift    string         // how the own policy differs from that in force, as last seen
	memory   cluster.Memory // of the leaderships that were seen, in whatever session
	newer    string         // which record has a newer format, as last seen
	openTree atomic.Bool    // strangers may change the tree, as last seen
	service  *service
	view     atomic.Pointer[status.Daemon]
	tally    *tally
	feed     *status.Feed
	// cache answers HTTP clients, on their goroutines.
	cache    *operator.GroupCache
	requests chan submission
	grants   grants
	left     zkstore.SessionHandle // the last session, if the servers did not confirm that it was closed

	stops   chan string
	reloads chan struct{}
	quit    context.Context // over at the first Stop
	cancel  context.CancelFunc
}

// New returns a daemon; Run makes it work.
func New(opt Options) *Daemon {
	d := &Daemon{
		opt: opt, log: opt.Log.With("node", opt.Config.Node.ID),
		paths: cluster.Paths{Root: opt.Config.ZooKeeper.Root}, me: identify(opt.Guard.GuardPid()),
		stops: make(chan string, 4), reloads: make(chan struct{}, 1),
	}
	d.inForce.Store(&opt.Config)
	d.vitals, d.tally = newVitals(opt.Config), newTally()
	if opt.Refused != nil {
		d.refused = opt.Refused.Error()
		d.tally.totals.ReloadFailed = true
	}
	d.feed, d.cache = status.NewFeed(), operator.NewGroupCache(d.paths.Root)
	d.requests = make(chan submission)
	d.service = &service{notify: opt.Guard.Notify}
	d.quit, d.cancel = context.WithCancel(context.Background())
	d.view.Store(&status.Daemon{
		Node: opt.Config.Node.ID, Site: opt.Config.Node.Site, Root: d.paths.Root, Phase: string(transition.Standby), PublishedAt: boottime.Now(),
	})
	return d
}

// config returns the configuration in force. A reload replaces it at any time, so what belongs together is taken from one
// copy.
func (d *Daemon) config() config.Config { return *d.inForce.Load() }

// View is what the daemon shows of itself, never nil.
func (d *Daemon) View() status.Daemon { return d.view.Load().At(boottime.Now()) }

// Feed has what has changed of it.
func (d *Daemon) Feed() *status.Feed { return d.feed }

// Stop asks the daemon to give up leadership, close its session and end. Asked again, it kills its child at once.
func (d *Daemon) Stop(reason string) {
	select {
	case d.stops <- reason:
	default: // it has been told often enough
	}
	d.cancel()
}

// Reload asks the daemon to read its configuration again.
func (d *Daemon) Reload() {
	select {
	case d.reloads <- struct{}{}:
	default:
	}
}

// Run works until Stop, or until something fails for good. When ctx is over it behaves as after Stop.
func (d *Daemon) Run(ctx context.Context) error {
	detach := context.AfterFunc(ctx, func() { d.Stop("asked to stop") })
	defer detach()
	defer d.cancel()
	abandoned := context.AfterFunc(d.opt.Guard.Context(), func() { d.Stop("the guard is lost") })
	defer abandoned()
	d.hooks = hook.NewQueue(hook.Hook{
		Setting: "hooks.on_change", Argv: d.config().Hooks.OnChange, Env: workenv.Clean(os.Environ()), Timeout: d.config().Hooks.Timeout,
	}, d.log)
	defer func() {
		limited, cancel := context.WithTimeout(context.Background(), d.config().Hooks.Timeout)
		defer cancel()
		d.hooks.Close(limited)
	}()
	var probes sync.WaitGroup
	defer probes.Wait()
	probing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	probes.Go(func() { d.watch(probing) })
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		began := time.Now()
		err := d.session(ctx)
		var fatal *FatalError
		switch {
		case errors.As(err, &fatal):
			return fatal.Err
		case d.opt.Guard.Err() != nil:
			return d.opt.Guard.Err()
		case d.quit.Err() != nil:
			d.log.Info("stopped")
			return nil
		case err != nil:
			d.log.Warn("the session is over, beginning a new one", "reason", err)
		}
		if time.Since(began) > 10*time.Second {
			pause = 100 * time.Millisecond
		}
		found := d.seeking("waiting to begin a new session")
		// Apart, so that a fleet that lost its sessions together does not come back in step.
		t := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-t.C:
		case <-d.quit.Done():
			t.Stop()
		}
		found()
	}
}

// closeLimit is how long the closing of a session may take.
const closeLimit = 5 * time.Second

// session lives one session from opening to closing.
func (d *Daemon) session(ctx context.Context) error {
	opening, cancel := d.quit, context.CancelFunc(func() {})
	if limit := d.config().ZooKeeper.ConnectTimeout; limit > 0 {
		opening, cancel = context.WithTimeout(d.quit, limit)
	}
	defer cancel()
	found := sync.OnceFunc(d.seeking("waiting for ZooKeeper at " + strings.Join(d.config().ZooKeeper.Servers, ", ")))
	defer found()
	access := operator.Access(d.config(), os.Getenv)
	s, err := zkstore.Open(opening, zkstore.Options{
		Servers: d.config().ZooKeeper.Servers, Timeout: d.config().ZooKeeper.SessionTimeout, Access: access, Log: d.log,
	})
	if err != nil {
		if d.quit.Err() == nil && opening.Err() != nil {
			return &FatalError{err}
		}
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		if err := s.Close(closing); err != nil {
			d.log.Warn("the session did not close cleanly", "err", err)
			d.left = s.Handle()
			d.left.Access = operator.Access(d.config(), os.Getenv)
		}
		d.opt.Guard.ClearSession()
	}()
	d.opt.Guard.SetSession(guard.Credentials{
		Servers: d.config().ZooKeeper.Servers, ID: s.SessionID(), Password: s.Password(), Timeout: s.Timeout(), File: d.config().SessionFile(os.Getenv),
		Access: operator.EncodeAccess(access),
	})
	budget, base, err := d.budget(s.Timeout())
	if err != nil {
		return &FatalError{err}
	}
	in, err := d.register(d.quit, s)
	if err != nil {
		return err
	}
	d.log.Info(budget.Text(d.config().Election.TrustSessionEnd))
	d.log.Info("registered", "incarnation", in.Name, "root", d.paths.Root)
	found()
	d.tally.count(func(t *status.Totals) { t.Sessions++ })
	l := d.newLoop(ctx, s, in, budget)
	s.OnShrink(base, l.shrunk)
	d.service.ready(l.line())
	err = l.run()
	if d.quit.Err() == nil {
		d.tally.count(func(t *status.Totals) { t.SessionsLost++ })
	}
	return err
}

// announce tells people, and the on_change hook, of a turn.
func (d *Daemon) announce(a transition.Announce) {
	d.log.Info("now "+string(a.Phase), "term", a.Term, "reason", a.Reason)
	change := d.change(a.Phase, a.Term, a.Reason)
	d.feed.Add(status.EventState, change)
	d.hooks.Push(encodeChange(change))
}

// change is what is shown of a turn.
func (d *Daemon) change(phase transition.Phase, term int64, reason string) status.Change {
	return status.Change{
		Node: d.config().Node.ID, Site: d.config().Node.Site, Root: d.paths.Root, Term: term, State: string(phase), Reason: reason, Time: time.Now(),
	}
}
