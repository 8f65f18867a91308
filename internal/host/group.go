package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/group"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/policy"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/work/applease"
	"zkelectd/internal/work/hook"
	"zkelectd/internal/work/workenv"
	"zkelectd/internal/zk"
)

// Group is one group that this host belongs to, or a slot of one, over all its sessions.
type Group struct {
	*resource
	name     string
	paths    cluster.Paths
	log      *slog.Logger
	core     atomic.Pointer[group.Group] // replaced when an instance is abandoned: its loop may still use the old one
	feed     *status.Feed
	counters *group.Counters
	hooks    *hook.Queue                   // runs hooks.on_change
	asking   *hook.Queue                   // runs hooks.on_proposal
	proposed atomic.Int64                  // the proposal that it was run for last
	started  atomic.Pointer[config.Config] // see startedConfig; nil before there was an instance
	leaders  *leaderWatch
	cache    *operator.GroupCache // answers HTTP clients, in their goroutines
	conn     atomic.Pointer[zk.Group]
	requests chan struct{} // holds one value while an operator request is being submitted
}

// newGroup returns the group of a slot, or the only one of a resource.
func (r *resource) newGroup(p cluster.Paths) *Group {
	g := &Group{
		resource: r, name: r.name, paths: p, log: r.log, counters: group.NewCounters(r.host.counters),
		requests: make(chan struct{}, 1),
		feed:     status.NewFeed(),
	}
	if p.Slot != "" {
		g.name, g.log = r.name+"/"+p.Slot, r.host.log.With("group", r.name+"/"+p.Slot)
	}
	g.cache = operator.NewGroupCache(g.name, g.paths.Root)
	g.leaders = newLeaderWatch(g)
	g.renew()
	return g
}

// workConfig returns the configuration in force for the work of the group, in which the variables of its slot are
// replaced.
func (g *Group) workConfig() config.Config {
	c := g.config()
	if g.paths.Slot == "" {
		return c
	}
	return c.OfSlot(cluster.SlotNumber(g.paths.Slot), int(g.size.Load()))
}

// renew gives the group a new state in this process. Of earlier leaderships it remembers the highest term.
func (g *Group) renew() {
	o := g.options()
	if before := g.core.Load(); before != nil {
		o.LastTerm = before.LastTerm()
	}
	g.core.Store(group.New(o))
}

// open starts what runs for the group beside its membership; close ends it.
func (g *Group) open() {
	g.hooks = hook.NewQueue(g.changeHook, g.log)
	g.asking = hook.NewLatest(func() hook.Hook {
		return g.hook("hooks.on_proposal", g.workConfig().Hooks.OnProposal)
	}, g.log)
	g.leaders.hooks = hook.NewLatest(g.leaders.hook, g.log)
}

// changeHook returns the hook on_change.
func (g *Group) changeHook() hook.Hook {
	return g.hook("hooks.on_change", g.startedConfig().Hooks.OnChange)
}

// startedConfig is [Group.workConfig] as of the start of the last instance: what a reload applies as soon as this host
// does not lead.
func (g *Group) startedConfig() config.Config {
	if c := g.started.Load(); c != nil {
		return *c
	}
	return g.workConfig()
}

// hook returns a hook that does not belong to a term. Its environment and its timeout are those of the instance.
func (g *Group) hook(setting string, argv []string) hook.Hook {
	c := g.startedConfig()
	return hook.Hook{
		Setting: setting, Argv: argv, Env: workenv.Extend(os.Environ(), c.Child.Env), Timeout: c.Hooks.Timeout,
		Limit:  g.host.hooks,
		Failed: func() { g.counters.Update(func(t *status.Totals) { t.HookFailures++ }) },
	}
}

func (g *Group) close() {
	g.host.placement.remove(g.name)
	g.closeHooks()
}

func (g *Group) closeHooks() {
	limited, cancel := context.WithTimeout(context.Background(), g.config().Hooks.Timeout)
	defer cancel()
	var closing sync.WaitGroup
	closing.Go(func() { g.hooks.Close(limited) })
	closing.Go(func() { g.leaders.hooks.Close(limited) })
	closing.Go(func() { g.asking.Close(limited) })
	closing.Wait()
}

// Name returns the group's name.
func (g *Group) Name() string { return g.name }

// View returns this host's current view of the group.
func (g *Group) View() status.Daemon {
	v := g.core.Load().View()
	if v.Holder == nil { // this member need not know it
		v.Holder = g.leaders.holder()
	}
	if f := g.Failsafe(); f.Enabled || f.TakesPart || f.Problem != "" {
		f = f.At(boottime.Now())
		v.Failsafe = &f
	}
	return v
}

// Feed returns the feed of changes to the view.
func (g *Group) Feed() *status.Feed { return g.feed }

// Totals returns the group's counters for the metrics.
func (g *Group) Totals() status.Totals { return g.counters.Totals() }

// State returns the state of the group.
func (g *Group) State(ctx context.Context) (status.Group, error) { return g.cache.Group(ctx) }

// History returns the last terms, oldest first.
func (g *Group) History(ctx context.Context) ([]cluster.PastTerm, error) { return g.cache.History(ctx) }

// Explain returns the reasons why the leader was elected.
func (g *Group) Explain(ctx context.Context) (whatif.Explanation, error) {
	e, err := g.cache.Explain(ctx)
	if v := g.core.Load().View(); err == nil {
		e.Stuck = v.Stuck()
	}
	return e, err
}

// DryRun says what a request would do.
func (g *Group) DryRun(ctx context.Context, r request.Request) ([]string, error) {
	return g.cache.DryRun(ctx, r)
}

// ApplicationLease asks for an application lease.
func (g *Group) ApplicationLease(ctx context.Context, r applease.Request) (applease.Answer, error) {
	return g.core.Load().ApplicationLease(ctx, r)
}

// PublishValue makes value what the work of a term publishes with its leadership, see [group.Group.PublishValue].
func (g *Group) PublishValue(term int64, value string) error {
	return g.core.Load().PublishValue(term, value)
}

// ReturnApplicationLease takes an application lease back. It reports false if it is not known.
func (g *Group) ReturnApplicationLease(id string, p applease.Process) bool {
	return g.core.Load().ReturnApplicationLease(id, p)
}

// propose runs hooks.on_proposal, once for each proposal that nobody has answered.
func (g *Group) propose(v status.Daemon) {
	p := v.Proposal
	if p == nil || g.proposed.Swap(p.ID) == p.ID {
		return
	}
	g.asking.Push(hook.Input{Data: hook.JSON(status.Proposal{
		Node: v.Node, Site: v.Site, Group: g.name, Root: g.paths.Root, Request: p.ID, Leader: p.Node, LeaderSite: p.Site,
		Cause: string(p.Cause), Reason: p.Reason, ConfirmAfter: p.For, Time: p.Time,
	})})
}

// neighbors returns what the group's elector takes into account of other groups.
func (g *Group) neighbors() operator.Neighbors {
	p := groupPlacement{g.host.placement, g.name}
	return operator.Neighbors{Group: g.name, Others: func(_ context.Context, r policy.Relations) elector.Placement {
		return p.Others(r.Peers())
	}}
}

// setConn sets the group's access to the session, for operator requests and reads; nil while there is none.
func (g *Group) setConn(c *zk.Group) {
	g.conn.Store(c)
	g.cache.SetSnapshot(nil)
	if c == nil {
		g.cache.SetSource(nil)
		return
	}
	g.cache.SetSource(&operator.Source{Session: c, Paths: g.paths, Config: g.config(), Neighbors: g.neighbors()})
}

// Submit submits an operator request for the group on the host's session. It submits one request at a time. The error
// matches [request.RefusedError] if the group's state does not allow the request, and [cluster.ErrUnknown] if the
// request may have been submitted anyway.
func (g *Group) Submit(ctx context.Context, r request.Request) (request.Plan, error) {
	if err := r.Check(); err != nil {
		return request.Plan{}, err
	}
	if err := g.View().CheckReady(); err != nil {
		return request.Plan{}, err // fail closed: an outdated view decides nothing
	}
	select {
	case g.requests <- struct{}{}:
	case <-g.host.quit.Done():
		return request.Plan{}, errors.New("this daemon is stopping: ask another one")
	case <-ctx.Done():
		return request.Plan{}, fmt.Errorf("other requests are still under way, submit it again: %w", ctx.Err())
	}
	type result struct {
		plan request.Plan
		err  error
	}
	done := make(chan result, 1)
	go func() { // ends with the write, which has a timeout, or with the session
		defer func() { <-g.requests }()
		plan, err := g.submit(ctx, r)
		done <- result{plan, err}
	}()
	select {
	case r := <-done:
		return r.plan, r.err
	case <-ctx.Done():
		return request.Plan{}, fmt.Errorf("%w: the request is still under way (%w)", cluster.ErrUnknown, ctx.Err())
	}
}

// submit submits a request; it never blocks the loop or the lease.
func (g *Group) submit(client context.Context, r request.Request) (request.Plan, error) {
	conn := g.conn.Load()
	if conn == nil {
		return request.Plan{}, operator.ErrNoSession
	}
	if !conn.Connected() {
		return request.Plan{}, operator.ErrNotConnected
	}
	submitter := operator.Submitter{Conn: conn, Paths: g.paths, Slots: g.paths.Slot != "" && !r.Kind.OfSlot(),
		Config: g.config(), Neighbors: g.neighbors(), Read: operator.ReadTimeout, Write: conn.Timeout()}
	ctx, cancel := g.withSession(conn)
	defer cancel()
	detach := context.AfterFunc(client, cancel)
	plan, err := submitter.Submit(ctx, func(q whatif.Question) (request.Plan, error) {
		detach() // from here on the client cannot cancel it: the outcome of an abandoned write would be unknown
		if err := client.Err(); err != nil {
			return request.Plan{}, err
		}
		return r.Plan(q)
	})
	if err == nil {
		o := r.Options
		g.log.Info("request accepted", "request", plan.ID, "what", r.Kind, "by", o.By, "reason", o.Reason, "messages",
			plan.Messages)
	}
	return plan, err
}

// withSession returns a context that ends with the session.
func (g *Group) withSession(conn *zk.Group) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with the context or the session
		select {
		case <-conn.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
