package host

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/group"
	"zkelectd/internal/guard"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/work/workenv"
	"zkelectd/internal/work/worker"
)

// resource is what one configuration file describes: a group with one leader, or one with several slots, each of which
// is shown and operated as a [Group]. It has one membership.
type resource struct {
	host       *Host
	name       string
	root       string
	log        *slog.Logger
	inForce    atomic.Pointer[config.Config] // never changed, only replaced
	lastReload atomic.Pointer[reloadResult]
	groups     atomic.Pointer[[]*Group] // of the slots, in their order, or the only one; never changed, only replaced
	size       atomic.Int64             // how many slots there are; 0 for a group without slots
	opened     bool                     // open was called
	closed     sync.Once                // by the end of its removal
	standby    *standby
	applying   sync.Mutex                   // held while settings are applied to an instance
	joined     atomic.Pointer[joinedRecord] // never changed, only replaced; nil before
	recording  sync.Mutex                   // held while it is replaced
	// when the root was created that this host last took part in the group with; 0 before
	accepted int64
	problems atomic.Pointer[[]string] // see checkWork; never changed, only replaced
	// fencingProblems are those that monitorFencing has found; never changed, only replaced.
	fencingProblems atomic.Pointer[[]string]
}

// newResource returns a resource. refused is why a newer configuration was refused; empty if none was.
func (h *Host) newResource(c config.Group, refused string) *resource {
	r := &resource{host: h, name: c.Name, root: c.Config.ZooKeeper.Root, log: h.log}
	if !h.single() {
		r.log = h.log.With("group", c.Name)
	}
	r.inForce.Store(&c.Config)
	r.standby = &standby{resource: r}
	r.lastReload.Store(&reloadResult{refused: refused})
	r.problems.Store(new([]string))
	r.fencingProblems.Store(new([]string))
	r.groups.Store(&[]*Group{})
	r.setSize(c.Config.Slots.Count)
	return r
}

// published identifies what the node's record says about the configuration, to notice a change.
type published struct {
	reload   *reloadResult
	problems *[]string
}

func (r *resource) published() published {
	return published{r.lastReload.Load(), r.problems.Load()}
}

// slotSize returns how many slots a configuration proposes; zero for a group without slots.
func slotSize(c config.Config) cluster.SlotSize {
	return cluster.SlotSize{Count: c.Slots.Count, PerNode: c.Slots.Limit()}
}

// setSize gives the resource one group for each slot. No member may run.
func (r *resource) setSize(slots int) {
	before, count := r.all(), max(slots, 1)
	kept := min(len(before), count)
	next := slices.Clone(before[:kept])
	for i := kept; i < count; i++ {
		paths := r.paths()
		if slots > 0 {
			paths = paths.OfSlot(i)
		}
		next = append(next, r.newGroup(paths))
	}
	changed := r.size.Swap(int64(slots)) != int64(slots)
	r.groups.Store(&next)
	if !r.opened || !changed {
		return
	}
	var closing sync.WaitGroup
	for i, g := range before { // the hooks of those that stay may get other arguments
		if i < kept {
			closing.Go(g.closeHooks)
		} else {
			closing.Go(g.close)
		}
	}
	closing.Wait()
	for _, g := range next {
		g.open()
	}
}

// all returns the resource's groups.
func (r *resource) all() []*Group { return *r.groups.Load() }

// config returns the configuration in force, see [Host.config].
func (r *resource) config() config.Config { return *r.inForce.Load() }

// open starts what runs for the groups beside their membership; close ends it.
func (r *resource) open() {
	r.opened = true
	for _, g := range r.all() {
		g.open()
	}
}

func (r *resource) close() {
	if err := r.standby.close(context.Background(), r.config().Child.StopTimeout); err != nil {
		r.log.Error("the standby outlives its group: the guard kills it with the daemon", "err", err)
	}
	for _, g := range r.all() {
		g.close()
	}
}

// renew renews the groups, see [Group.renew].
func (r *resource) renew() {
	for _, g := range r.all() {
		g.renew()
	}
}

// setMembership shows what this host does about the groups while no member runs.
func (r *resource) setMembership(state, reason string) {
	if state == status.MembershipRefused {
		r.log.Error("this host takes no part in the group", "reason", reason)
	}
	for _, g := range r.all() {
		if state == status.MembershipRefused || state == status.MembershipParked {
			r.host.placement.unknown(g.name)
		}
		g.core.Load().SetMembership(state, reason)
	}
}

// clearConns takes the groups' access to the session away.
func (r *resource) clearConns() {
	for _, g := range r.all() {
		g.setConn(nil)
	}
}

// idle reports whether this host neither leads any of the groups nor is about to.
func (r *resource) idle() bool {
	return !slices.ContainsFunc(r.all(), func(g *Group) bool { return !g.core.Load().Idle() })
}

// leads reports whether this host holds leadership in any of the groups, also while it gives it up.
func (r *resource) leads() bool {
	return slices.ContainsFunc(r.all(), func(g *Group) bool { return g.View().Term != 0 })
}

// takesPart reports whether this host is a member of any of the groups.
func (r *resource) takesPart() bool {
	return slices.ContainsFunc(r.all(), func(g *Group) bool { return g.View().Membership == status.MembershipMember })
}

// survives reports whether work of an earlier daemon may still run for the resource, in any of its slots.
func (r *resource) survives(survivors []string) bool {
	return slices.ContainsFunc(survivors,
		func(name string) bool { return name == r.name || strings.HasPrefix(name, r.name+"/") })
}

// paths returns the paths of what all groups of the resource share.
func (r *resource) paths() cluster.Paths { return cluster.Paths{Root: r.root} }

// registration returns what the resource registers with in a session.
func (r *resource) registration(i *instance, b cluster.Budget, slots cluster.Stored[cluster.Slots],
	leases *store.LeaseZnodeWatch) group.Registration {
	reg := group.Registration{Settings: r.settings(), Budget: b, Slots: slots}
	for n, g := range r.all() {
		o := g.instanceOptions()
		o.LeaseZnodes = leases
		reg.Members = append(reg.Members, group.MemberSetup{Group: g.core.Load(), Session: i.conns[n],
			Guard: i.leaderships[n], Options: o})
	}
	return reg
}

// setInvalid shows the groups that do not run because their files were refused. refused has the errors of files by
// the names of their groups; those of groups that run do not count.
func (h *Host) setInvalid(refused map[string]error) {
	var all []*resource
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		if h.resource(name) != nil {
			continue
		}
		c := h.config()
		c.ZooKeeper.Root = cluster.IdentityPath(c.ZooKeeper.Root, name)
		reason := "its file is refused: " + strings.ReplaceAll(refused[name].Error(), "\n", "; ")
		r := h.newResource(config.Group{Name: name, Config: c}, reason)
		for _, g := range r.all() {
			g.core.Load().SetMembership(status.MembershipRefused, reason)
			h.placement.remove(g.name) // nobody here learns who is elected there
		}
		all = append(all, r)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.invalid = all
}

// checkContainment returns an error if the work of the groups of a configuration could not be told apart.
func (h *Host) checkContainment(c config.Host) error {
	n := 0
	for _, g := range c.Groups {
		works := g.Config.Slots.Count
		if h.opt.ExactSlots { // else the group may permit more at once than the configuration
			works = g.Config.Slots.Limit()
		}
		n += max(1, works)
	}
	return h.opt.Guard.CheckGroups(n)
}

// standby is the promotable work of a resource. It outlasts sessions and instances, and is replaced when an instance
// registers with another configuration of the work.
type standby struct {
	resource *resource

	mu      sync.Mutex
	running *worker.Standby // nil without promotable work
	spec    worker.Spec     // of running, as configured
}

// begin starts the work of the configuration in force, unless it runs; stop is how long it may take to stop. No
// member may run. It returns an error if work of another configuration does not end.
func (s *standby) begin(ctx context.Context, stop time.Duration) error {
	r := s.resource
	c := r.config()
	spec := workSpec(c)
	wanted := c.Child.Promotable() && !c.Node.Observer
	s.mu.Lock()
	before, same := s.running, reflect.DeepEqual(spec, s.spec)
	s.mu.Unlock()
	if before != nil && wanted && same {
		return nil
	}
	if err := s.close(ctx, stop); err != nil || !wanted {
		return err
	}
	run := spec
	run.StopTimeout, run.Warm.Limit = stop, r.host.probes
	f := workenv.Fencing{Node: c.Node.ID, Site: c.Node.Site, Group: r.name, Root: r.root}
	started := worker.NewStandby(worker.StandbyOptions{
		Open: func() *guard.Leadership { return r.host.opt.Guard.NewStandby(r.name) }, Log: r.log, Spec: run,
		Identity: f, Changed: r.nodeChanged,
	})
	s.mu.Lock()
	s.running, s.spec = started, spec
	s.mu.Unlock()
	return nil
}

// standbyEnd is how much longer than it may the work is given to end.
const standbyEnd = 5 * time.Second

// close stops the work, and returns when it is dead. It returns an error if that takes too long; then close can be
// called again.
func (s *standby) close(ctx context.Context, stop time.Duration) error {
	if before := s.work(); before != nil {
		limited, cancel := context.WithTimeout(ctx, stop+standbyEnd)
		defer cancel()
		if err := before.Close(limited); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.running = nil
	s.mu.Unlock()
	return nil
}

// work returns the promotable work; nil without.
func (s *standby) work() *worker.Standby {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// abandon keeps the workers of an abandoned instance from the work, and reports whether what they have promoted is
// dead. It waits for that until ctx ends.
func (s *standby) abandon(ctx context.Context) (proven bool) {
	running := s.work()
	return running == nil || running.Abandon(ctx)
}

// state is [group.Options.Standby].
func (s *standby) state() (state *cluster.Standby, unkillable string) {
	running := s.work()
	if running == nil {
		return nil, ""
	}
	now := running.State()
	return &now, running.Unkillable()
}

// nodeChanged makes the members publish the record of the node again.
func (r *resource) nodeChanged() {
	for _, g := range r.all() {
		g.core.Load().NodeChanged()
	}
}
