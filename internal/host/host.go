// Package host runs zkelectd on one host. It opens one ZooKeeper session after another, and runs the host's members of
// all its groups on each of them. It passes the session to the guard, reloads the configuration on request, measures
// the host's health, submits operator requests, and reports to the service manager.
package host

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"zkelectd/internal/config"
	"zkelectd/internal/group"
	"zkelectd/internal/group/electing"
	"zkelectd/internal/guard"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/work/command"
	"zkelectd/internal/work/fencer"
)

// Guard is the subset of the guard's methods that a host uses; *guard.Client implements it.
type Guard interface {
	// NewLeadership returns the guard's side of one instance of a group.
	NewLeadership(name string) *guard.Leadership
	NewStandby(name string) *guard.Leadership
	// Survivors returns the groups in which work of an earlier daemon may still run.
	Survivors() []string
	// GuardPid returns the guard's process ID.
	GuardPid() int
	// Context returns a context that ends when the guard is lost; Err then returns an error.
	Context() context.Context
	Err() error
	// CheckGroups returns an error if the works of n groups could not be told apart.
	CheckGroups(n int) error
	// SetSession sets the session that the guard closes if this daemon dies, and SetAccess the servers, credentials and
	// TLS files for that.
	SetSession(guard.Credentials)
	SetAccess(servers []string, access json.RawMessage)
	ClearSession()
	// Heartbeat promises another heartbeat before until; 0 promises none.
	Heartbeat(until time.Duration)
	// WatchdogInterval returns how often the daemon must call Heartbeat for the service manager's watchdog; 0 for no
	// watchdog.
	WatchdogInterval() time.Duration
	// ReportAlive reports to the service manager's watchdog that this daemon is alive, and Notify sends the service
	// manager a message.
	ReportAlive()
	Notify(state string)
	// Containment returns what keeps the processes of the work together.
	Containment() guard.Containment
	// CheckDevice has a watchdog device checked. DeviceState returns what the guard found last, after a value from
	// DeviceNews.
	CheckDevice(guard.DeviceSpec)
	DeviceState() guard.DeviceState
	DeviceNews() <-chan struct{}
}

// Options configures a Host.
type Options struct {
	Config config.Host
	// Refused is the error that the configuration was refused with, if Config is an older configuration. Pending lists
	// the settings in which the files differ from Config and that need a restart.
	Refused error
	Pending []string
	// RefusedGroups has the errors of group files that were refused, by the names of their groups.
	RefusedGroups map[string]error
	// Reload reads the configuration again; nil if that is not possible. With allowRemovals any number of groups may
	// be gone.
	Reload func(running config.Host, allowRemovals bool) (Reloaded, error)
	// Joined is called once, before the first reload: when the first group has registered or was refused. It is nil for
	// none.
	Joined func()
	// ConfigFile is the path of the configuration file, for advice; empty if there is none that can be read again.
	ConfigFile string
	// Create permits to create groups that this host has never been in.
	Create bool
	// ExactSlots makes the host take part only if the group has the slots of the configuration, and else end with a
	// [SlotsError].
	ExactSlots bool
	// CheckFiles checks the files with credentials, certificates and tokens that a configuration names; nil to check none.
	CheckFiles func(config.Config) error
	// StateDir is the directory for what must survive a restart of the host.
	StateDir string
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
	opt      Options
	inForce  atomic.Pointer[config.Host] // never changed, only replaced
	pending  atomic.Pointer[string]      // the settings that need a restart
	log      *slog.Logger
	health   *health
	device   *device         // nil if none is configured
	counters *group.Counters // of sessions and reloads
	service  *service
	avoid    atomic.Pointer[string] // the server that the next session tries last: it is of another ensemble
	joined   sync.Once              // see Options.Joined
	reloads  chan struct{}
	left     chan struct{}         // this host has left a group that was removed
	recheck  chan struct{}         // the work is to be checked now
	probes   command.Limit         // of all groups
	hooks    command.Limit         // on_change and on_leader_change, of all groups
	loads    atomic.Pointer[loads] // nil while there is no session, and in a daemon with one group
	quit     context.Context       // ends at the first Stop
	cancel   context.CancelFunc

	starts, moves *electing.Limit // see [group.Limits]

	placement *placement
	failsafe  *failsafeMode

	fencings       fencer.Exclusive
	fencingMonitor fencingMonitor

	following following
	applying  sync.Mutex // held while the servers are applied
	reloading sync.Mutex // held while a configuration is read and applied, or refused

	mu      sync.Mutex
	groups  []*resource // sorted by name
	invalid []*resource // see setInvalid
	removed []*resource // whose memberships have not ended
	session *session    // nil while there is none
	order   reloadOrder // what the next reload is asked for
	stuck   int         // loops that were abandoned and have not returned

	smallestGrant time.Duration // see noteGrant
}

// Limits of what runs at once for all groups of a host. The hooks around the work are not limited: leadership waits for
// them.
const (
	maxProbes = 16
	maxHooks  = 8
)

// New returns a host; Run runs it.
func New(opt Options) *Host {
	c := opt.Config.Config
	h := &Host{
		opt: opt, log: opt.Log.With("node", c.Node.ID), counters: group.NewCounters(nil),
		service: &service{notify: opt.Guard.Notify},
		reloads: make(chan struct{}, 1), left: make(chan struct{}, 1), recheck: make(chan struct{}, 1),
		probes: command.NewLimit(maxProbes), hooks: command.NewLimit(maxHooks),
	}
	h.placement, h.failsafe = newPlacement(), newFailsafeMode(h)
	h.following.log, h.following.changed = h.log, make(chan struct{}, 1)
	h.inForce.Store(&opt.Config)
	h.starts, h.moves = electing.NewLimit(maxStarts(runtime.NumCPU())), electing.NewLimit(maxMoves)
	h.health = newHealth(c, h.log)
	h.health.onChange = func() {
		for _, g := range h.Groups() {
			g.core.Load().NodeChanged()
		}
	}
	h.health.onMeasured = h.health.onChange
	if !h.single() {
		h.health.onMeasured = nil
	}
	h.device = newDevice(c, opt.Guard, h.log, h.health.setDevice)
	h.quit, h.cancel = context.WithCancel(context.Background())
	refused := ""
	if opt.Refused != nil {
		refused = opt.Refused.Error()
		h.counters.Update(func(t *status.Totals) { t.ReloadFailed = true })
	}
	h.setPending(opt.Pending)
	for _, g := range opt.Config.Groups {
		own := refused
		if opt.RefusedGroups != nil { // the other groups have their newest configuration
			own = ""
			if err := opt.RefusedGroups[g.Name]; err != nil {
				own = err.Error()
			}
		}
		h.groups = append(h.groups, h.newResource(g, own))
	}
	h.setInvalid(opt.RefusedGroups)
	h.restoreFollowed()
	return h
}

// config returns the host's configuration in force. A reload may replace it at any time, so settings that belong
// together must be read from one copy.
func (h *Host) config() config.Config { return h.inForce.Load().Config }

// single reports whether this daemon is configured for one group, without a directory of groups.
func (h *Host) single() bool { return h.inForce.Load().Dir == "" }

// resources returns what the host's configuration files describe, sorted by name. The slice is not changed later.
func (h *Host) resources() []*resource {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.groups
}

// Groups returns the host's groups, sorted by name, with each slot of a group that has slots as a separate group.
// Groups whose files were refused are among them, and those that were removed while this host has not left them.
func (h *Host) Groups() []*Group {
	var all []*Group
	h.mu.Lock()
	resources := slices.Concat(h.groups, h.removed)
	for _, r := range h.invalid {
		if !slices.ContainsFunc(h.removed, func(other *resource) bool { return other.name == r.name }) {
			resources = append(resources, r)
		}
	}
	h.mu.Unlock()
	slices.SortFunc(resources, func(a, b *resource) int { return strings.Compare(a.name, b.name) })
	for _, r := range resources {
		all = append(all, r.all()...)
	}
	return all
}

// Node returns the host's node id.
func (h *Host) Node() string { return h.config().Node.ID }

// Totals returns the counters of the host for the metrics.
func (h *Host) Totals() status.Totals { return h.counters.Totals() }

// Stop makes the host release all leaderships, close its session and end. A second call kills its work at once.
func (h *Host) Stop(reason string) {
	h.cancel()
	h.mu.Lock()
	s := h.session
	h.mu.Unlock()
	if s != nil {
		s.stop(reason)
	}
}

// Run runs the host until Stop or a permanent failure. The end of ctx has the same effect as Stop.
func (h *Host) Run(ctx context.Context) error {
	detach := context.AfterFunc(ctx, func() { h.Stop("asked to stop") })
	defer detach()
	defer h.cancel()
	if err := h.checkContainment(*h.inForce.Load()); err != nil {
		return err
	}
	if err := h.failsafe.check(); err != nil {
		return err
	}
	defer h.failsafe.close()
	abandoned := context.AfterFunc(h.opt.Guard.Context(), func() { h.Stop("the guard is lost") })
	defer abandoned()
	for _, r := range h.resources() {
		r.open()
	}
	defer func() {
		for _, r := range h.resources() {
			r.close()
		}
	}()
	probe := func(ctx context.Context) { h.health.probe(ctx, h.config()) }
	defer inBackground(context.WithoutCancel(ctx), probe, h.checkWork, h.device.run, h.monitorFencing)()
	var err error
	supervise(sessionPacing, func() next {
		err = h.runSession(ctx)
		var permanent *group.PermanentError
		switch {
		case errors.As(err, &permanent):
			err = permanent.Err
		case errors.Is(err, ErrStuckLoops):
		case h.opt.Guard.Err() != nil:
			err = h.opt.Guard.Err()
		case h.quit.Err() != nil:
			h.log.Info("stopped")
			err = nil
		default:
			if err != nil {
				h.log.Warn("session ended; opening a new one", "reason", err)
			}
			return again
		}
		return over
	}, func(pause time.Duration) {
		defer h.keepAlive("waiting to begin a new session")()
		sleep(h.quit, pause)
	})
	return err
}

// sessionPacing is how a new session follows one that has ended.
var sessionPacing = pacing{first: 100 * time.Millisecond, limit: 5 * time.Second, stable: 10 * time.Second}

// setSession makes s the session that Stop ends.
func (h *Host) setSession(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.session = s
}

// maxMoves is how many groups this host, as their elector, moves by preemptions at once.
const maxMoves = 4

// maxStarts returns how many takeovers start their work at once on a host with a number of processor cores.
func maxStarts(cores int) int { return max(8, 2*cores) }

// limits gives the leaderships of an instance their access to the limits of the host. A host with one group has none.
func (i *instance) limits(h *Host, r *group.Registration) {
	if h.single() {
		return
	}
	i.starts, i.moves = h.starts.NewShare(), h.moves.NewShare()
	for n := range r.Members {
		r.Members[n].Options.Limits = group.Limits{Starts: i.starts, Moves: i.moves}
	}
}

func (i *instance) closeLimits() {
	if i.starts != nil {
		i.starts.Close()
		i.moves.Close()
	}
}
