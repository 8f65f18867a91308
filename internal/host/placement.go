package host

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
	"zkelectd/internal/zk"
)

// placement is what this host knows of who is elected in its groups: electors of other groups take it into account
// (docs/policies.md, Many groups).
type placement struct {
	mu      sync.Mutex
	elected map[string]string // by group, or slot; empty while nobody is elected there, as far as this host has seen
	leaders map[string]int    // by node, how many groups it is elected in
	// by node, how many more leaderships it has published: those of groups that this host does not have
	elsewhere map[string]int
	relations policy.Graph      // replaced when it changes
	wake      map[string]func() // by group: make its elector decide again
}

func newPlacement() *placement {
	return &placement{elected: make(map[string]string), leaders: make(map[string]int), wake: make(map[string]func())}
}

// of returns a group's access, and adds the group. Wake must not block.
func (p *placement) of(name string, rules cluster.Rules, wake func()) groupPlacement {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wake[name] == nil {
		p.elected[name] = ""
		p.relate(name, policy.RelationsOf(rules))
	}
	p.wake[name] = wake
	return groupPlacement{p, name}
}

// remove removes a group.
func (p *placement) remove(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(name)
	p.relate(name, policy.Relations{})
	delete(p.wake, name)
}

// unknown notes that this host no longer learns who is elected in a group.
func (p *placement) unknown(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(name)
}

func (p *placement) forget(name string) {
	p.count(p.elected[name], -1)
	if _, known := p.elected[name]; known {
		delete(p.elected, name)
		p.changed(name)
	}
}

func (p *placement) count(node string, change int) {
	if node == "" {
		return
	}
	if p.leaders[node] += change; p.leaders[node] == 0 {
		delete(p.leaders, node)
	}
}

// relate sets the relations of a group.
func (p *placement) relate(name string, r policy.Relations) {
	if slices.Equal(p.relations[name].With, r.With) && slices.Equal(p.relations[name].Apart, r.Apart) {
		return
	}
	next := maps.Clone(p.relations)
	if next == nil {
		next = make(policy.Graph)
	}
	if next[name] = r; len(r.Peers()) == 0 {
		delete(next, name)
	}
	p.relations = next
}

// setElsewhere notes the loads that the hosts have published. What this host knows by itself is newer, so only what
// exceeds it counts.
func (p *placement) setElsewhere(loads map[string]cluster.Load) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.elsewhere = make(map[string]int)
	for node, l := range loads {
		if more := l.Leaders - p.leaders[node]; more > 0 {
			p.elsewhere[node] = more
		}
	}
}

// changed wakes the groups that refer to a group whose leader has changed.
func (p *placement) changed(name string) {
	for other, r := range p.relations {
		if wake := p.wake[other]; wake != nil && other != name && slices.Contains(r.Peers(), name) {
			wake()
		}
	}
}

// groupPlacement is a group's access to the placement; it implements [group.Placement].
type groupPlacement struct {
	*placement
	name string
}

// Elected notes the node that is elected in the group.
func (p groupPlacement) Elected(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.elected[p.name]
	if known && before == node || p.wake[p.name] == nil {
		return
	}
	p.count(before, -1)
	p.count(node, 1)
	p.elected[p.name] = node
	p.changed(p.name)
}

// SetPolicy notes the policy in force.
func (p groupPlacement) SetPolicy(rules cluster.Rules) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wake[p.name] != nil {
		p.relate(p.name, policy.RelationsOf(rules))
	}
}

// Others returns what an election of the group takes into account of the others.
func (p groupPlacement) Others(peers []string) elector.Placement {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := elector.Placement{Load: make(map[string]int, len(p.leaders)), Peers: make(map[string]string, len(peers)),
		Relations: p.relations}
	for node, n := range p.leaders {
		if node == p.elected[p.name] {
			n--
		}
		out.Load[node] = n
	}
	for node, n := range p.elsewhere {
		out.Load[node] += n
	}
	for _, peer := range peers {
		if node, known := p.elected[peer]; known {
			out.Peers[peer] = node
		}
	}
	return out
}

// loadPace is the least time between two writes of this host's load, and between two readings of those of the others.
const loadPace = time.Second

// loads writes the load of a host with many groups, and follows those of the others once an elector needs them. It
// belongs to one session.
type loads struct {
	host   *Host
	conn   *zk.Group
	base   string
	next   chan cluster.Load // to be written; the newest wins
	wanted chan struct{}     // closed when an elector needs the loads
	once   sync.Once
	known  atomic.Pointer[map[string]cluster.Load] // nil before the first reading; never changed, only replaced
}

// runLoads writes and follows loads in a session until ctx ends.
func (h *Host) runLoads(ctx context.Context, s *session) {
	if h.single() {
		return // the only group's record of the node has everything
	}
	base := h.config().ZooKeeper.Root
	l := &loads{
		host: h, base: base, conn: s.zk.Group(cluster.Paths{Root: cluster.Loads(base)}),
		next: make(chan cluster.Load, 1), wanted: make(chan struct{}),
	}
	defer l.conn.Close()
	h.loads.Store(l)
	defer h.loads.Store(nil)
	var both sync.WaitGroup
	both.Go(func() { l.write(ctx) })
	both.Go(func() { l.follow(ctx) })
	both.Wait()
}

// follow reads the loads of all hosts, once they are needed.
func (l *loads) follow(ctx context.Context) {
	select {
	case <-l.wanted:
	case <-ctx.Done():
		return
	}
	store.FollowLoads(ctx, l.conn, l.base, loadPace, func(known map[string]cluster.Load) {
		if before := l.known.Swap(&known); before != nil && reflect.DeepEqual(*before, known) {
			return
		}
		l.host.placement.setElsewhere(known)
		for _, g := range l.host.Groups() {
			g.core.Load().LoadsChanged()
		}
	})
}

// knownLoads returns the loads of all hosts; nil if none are known.
func (h *Host) knownLoads() map[string]cluster.Load {
	l := h.loads.Load()
	if l == nil {
		return nil
	}
	l.once.Do(func() { close(l.wanted) })
	if known := l.known.Load(); known != nil {
		return *known
	}
	return nil
}

// publishLoad has this host's load written if it has changed.
func (h *Host) publishLoad() {
	l := h.loads.Load()
	if l == nil {
		return
	}
	rec := h.load()
	select {
	case <-l.next:
	default:
	}
	select {
	case l.next <- rec:
	default: // not reached: only the beat sends
	}
}

// load returns this host's load.
func (h *Host) load() cluster.Load {
	var n cluster.Node
	h.health.measured(&n)
	rec := cluster.Load{Latency: n.Latency, Score: n.Score}
	for _, g := range h.Groups() {
		if v := g.View(); v.Membership == status.MembershipMember && (v.Elected == v.Node || v.Term != 0) {
			rec.Leaders++
		}
	}
	return rec
}

// write writes this host's load when it has changed, until ctx ends.
func (l *loads) write(ctx context.Context) {
	var written *cluster.Load
	failed := ""
	for {
		var rec cluster.Load
		select {
		case rec = <-l.next:
		case <-ctx.Done():
			return
		}
		if written != nil && reflect.DeepEqual(rec, *written) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, l.conn.Timeout())
		err := store.WriteLoad(limited, l.conn, l.base, l.host.Node(), rec)
		cancel()
		switch {
		case err == nil:
			written, failed = &rec, ""
		case ctx.Err() == nil && err.Error() != failed: // the next beat tries again
			failed = err.Error()
			l.host.log.Warn("the load of this host is not published yet: elsewhere it is not known", "err", err)
		}
		if !sleep(ctx, loadPace) {
			return
		}
	}
}
