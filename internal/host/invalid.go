package host

import (
	"maps"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator/status"
)

// setInvalid shows the groups that do not run because their files were refused. refused has the errors of files by the names of their
// groups; those of groups that run do not count.
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
