package config

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// claims are what only one group of a host can have: its znodes and its unit.
type claims struct {
	base  string            // the znode above the roots of the groups
	owner map[string]string // the group of each claimed znode
	above map[string]string // a group with claimed znodes below each znode
	unit  map[string]string // the group of each systemd unit
}

func newClaims(base string) *claims {
	return &claims{base: base, owner: make(map[string]string), above: make(map[string]string), unit: make(map[string]string)}
}

// znodes returns what a group claims: its root, and the znode that records which root it has.
func (c *claims) znodes(g Group) []string {
	return []string{g.Config.ZooKeeper.Root, path.Join(c.base, g.Name)}
}

// parents returns all znodes above a znode.
func parents(znode string) (all []string) {
	for i := strings.LastIndexByte(znode, '/'); i > 0; i = strings.LastIndexByte(znode[:i], '/') {
		all = append(all, znode[:i])
	}
	return all
}

func (c *claims) add(g Group) {
	for _, znode := range c.znodes(g) {
		c.owner[znode] = g.Name
		for _, p := range parents(znode) {
			c.above[p] = g.Name
		}
	}
	for _, unit := range g.Config.units() {
		c.unit[unit] = g.Name
	}
}

// conflict is a setting that a group cannot have.
type conflict struct{ key, reason string }

// check returns the conflicts of a group with those that were added.
func (c *claims) check(g Group) (found []conflict) {
	if reason := c.checkRoot(g); reason != "" {
		found = append(found, conflict{"zookeeper.root", reason})
	}
	units := g.Config.units()
	if i := slices.IndexFunc(units, func(unit string) bool { return c.unit[unit] != "" }); i >= 0 {
		found = append(found, conflict{"child.unit", fmt.Sprintf("%q is the unit of group %s, too", units[i], c.unit[units[i]])})
	}
	return found
}

func (c *claims) checkRoot(g Group) string {
	root := g.Config.ZooKeeper.Root
	switch {
	case c.base == root, strings.HasPrefix(c.base, root+"/"):
		return fmt.Sprintf("%q contains the zookeeper.root of the host, %q", root, c.base)
	case strings.HasPrefix(root, c.base+"/."):
		return fmt.Sprintf("%q is reserved: names below the zookeeper.root of the host do not begin with a dot", root)
	}
	for _, znode := range c.znodes(g) {
		if other := c.owner[znode]; other != "" {
			return fmt.Sprintf("%q belongs to group %s, too", znode, other)
		}
		if other := c.above[znode]; other != "" {
			return fmt.Sprintf("%q contains a znode of group %s", znode, other)
		}
		for _, p := range parents(znode) {
			if other := c.owner[p]; other != "" {
				return fmt.Sprintf("%q is inside %q, which belongs to group %s", znode, p, other)
			}
		}
	}
	return ""
}

// moved returns 1 if the root of the group is not the one that its name gives it, and otherwise 0.
func (f *groupFile) moved(base string) int {
	if f.cfg.ZooKeeper.Root == path.Join(base, f.name) {
		return 0
	}
	return 1
}

// refuseConflicts adds an error to each file whose group conflicts with another one. A group that runs keeps what it has; otherwise
// one with the root that its name gives it, or the first name, does.
func (d *directory) refuseConflicts(base string, running Host) {
	for refused := true; refused; {
		refused = false // what a refused group keeps may conflict with a change of another one
		c := newClaims(base)
		var changes []*groupFile
		for _, name := range slices.Sorted(maps.Keys(d.files)) {
			f, now := d.files[name], running.find(name)
			switch {
			case now != nil && (len(f.errs) > 0 || slices.Equal(now.Config.units(), f.cfg.units())):
				c.add(*now)
			case len(f.errs) == 0:
				changes = append(changes, f)
			}
		}
		slices.SortStableFunc(changes, func(a, b *groupFile) int { return cmp.Compare(a.moved(base), b.moved(base)) })
		for _, f := range changes {
			g := Group{Name: f.name, Config: f.cfg}
			found := c.check(g)
			for _, x := range found {
				f.errs.add(f.source[x.key], x.key, "%s", x.reason)
			}
			if refused = refused || len(found) > 0; len(found) == 0 {
				c.add(g)
			}
		}
	}
}
