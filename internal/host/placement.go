package host

import (
	"maps"
	"slices"
	"sync"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
)

// placement is what this host knows of who is elected in its groups: electors of other groups take it into account
// (docs/policies.md, Many groups).
type placement struct {
	mu        sync.Mutex
	elected   map[string]string // by group, or slot; empty while nobody is elected there, as far as this host has seen
	leaders   map[string]int    // by node, how many groups it is elected in
	elsewhere map[string]int    // by node, how many more leaderships it has published: those of groups that this host does not have
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

// published notes the loads that the hosts have published. What this host knows by itself is newer, so only what exceeds it counts.
func (p *placement) published(loads map[string]cluster.Load) {
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
	out := elector.Placement{Load: make(map[string]int, len(p.leaders)), Peers: make(map[string]string, len(peers)), Relations: p.relations}
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
