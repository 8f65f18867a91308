package sim

import (
	"fmt"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
)

// resource is a group of the world as hosts are members of it: its root, its policies, and its leaderships, which are one or,
// for a group with slots, one for each slot.
type resource struct {
	w      *world
	number int
	name   string // empty if it is the only one
	root   string
	traits groupTraits

	slotted bool // it has slots
	slots   slotTraits
	calls   *rollCallTraits // nil if it does not call the roll

	rules     map[int64]cluster.Rules // as published, by revision
	revision  int64
	groups    []*group
	residents []*resident // one on each host
}

// shape is how many groups the hosts have, whether the first one has slots, and whether they use failsafe mode.
type shape struct {
	groups          int
	slots, failsafe bool
	values          bool // the work changes its value
}

// group is one leadership of a resource, and what is checked about it.
type group struct {
	*resource
	number int // in the world
	slot   int // in the resource
	name   string
	paths  cluster.Paths
	known  paths

	check   checker
	members []*member // one on each host

	silentNext bool // whoever acquires next falls silent
}

// paths holds the group's paths, joined once.
type paths struct{ nodes, election, leader, elected, current, policy, control, roster, heir string }

func newResource(w *world, number int, s shape) *resource {
	r := &resource{w: w, number: number, root: "/g", traits: w.traits.groups[number]}
	if s.groups > 1 {
		r.name = fmt.Sprintf("g%d", number)
		r.root = "/" + r.name
	}
	r.calls = r.drawRollCalls(s)
	r.rules, r.revision = map[int64]cluster.Rules{0: r.traits.rules[0], 1: r.traits.rules[0]}, 1
	if r.slotted = s.slots && number == 0; !r.slotted {
		r.addGroup(0, r.name, cluster.Paths{Root: r.root})
		return r
	}
	r.slots = w.drawSlots()
	for i := range maxSlots {
		r.addGroup(i, strings.TrimPrefix(fmt.Sprintf("%s/%d", r.name, i), "/"), cluster.Paths{Root: r.root}.OfSlot(i))
	}
	return r
}

// addGroup adds a leadership.
func (r *resource) addGroup(slot int, name string, p cluster.Paths) {
	g := &group{resource: r, number: len(r.w.groups), slot: slot, name: name, paths: p}
	g.known = paths{p.Nodes(), p.Election(), p.Leader(), p.Elected(), p.Current(), p.Policy(), p.Control(), p.Roster(), p.Heir()}
	g.check.init(g)
	r.groups = append(r.groups, g)
	r.w.groups = append(r.w.groups, g)
}

// has reports whether a path is that of the resource's root, or of a znode below it.
func (r *resource) has(path string) bool {
	rest, ok := strings.CutPrefix(path, r.root)
	return ok && (rest == "" || rest[0] == '/')
}

// resourceOf returns the resource that has the znode with that path.
func (w *world) resourceOf(path string) *resource {
	for _, r := range w.resources {
		if r.has(path) {
			return r
		}
	}
	panic("no group has " + path)
}

// changed tells the checkers that something in the tree has changed.
func (r *resource) changed() {
	for _, g := range r.groups {
		g.check.changed()
	}
}

// recordsChanged tells the checkers that an operator has changed something.
func (r *resource) recordsChanged() {
	for _, g := range r.groups {
		g.check.recordsChanged()
	}
}

// isFence reports whether a path is that of a fence.
func (r *resource) isFence(path string) bool {
	return slices.ContainsFunc(r.groups, func(g *group) bool { return path == g.known.leader })
}

// self returns the incarnation registered in a session, known to the client or not.
func (r *resource) self(s *session) string { return s.selves[r.number] }

func (g *group) fail(format string, args ...any) {
	if g.name != "" {
		format += " (group " + g.name + ")"
	}
	g.w.fail(format, args...)
}
