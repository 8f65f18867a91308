package host

import (
	"slices"
	"strings"

	"zkelectd/internal/config"
)

// addGroup adds a group, and starts its membership if there is a session. A group that conflicts with one that was
// removed, and that this host has not left, is added after that. It reports whether the group was added.
func (h *Host) addGroup(c config.Group) bool {
	before := config.Host{Config: h.config()}
	h.mu.Lock()
	for _, r := range h.removed {
		// its work may have an older configuration than the one in force
		before.Groups = append(before.Groups, config.Group{Name: r.name, Config: r.all()[0].startedConfig()})
	}
	groups := len(h.groups) + len(h.removed) + 1
	h.mu.Unlock()
	if len(before.Groups) > 0 && (before.Conflicts(c) || h.opt.Guard.CheckGroups(groups) != nil) {
		return false
	}
	h.log.Info("adding a group", "group", c.Name, "root", c.Config.ZooKeeper.Root)
	r := h.newResource(c, "")
	r.open()
	h.mu.Lock()
	h.groups = append(slices.Clone(h.groups), r)
	slices.SortFunc(h.groups, func(a, b *resource) int { return strings.Compare(a.name, b.name) })
	s := h.session
	h.mu.Unlock()
	if s != nil {
		s.begin(r)
	}
	return true
}

// removeGroup removes a group. Its membership, if there is a session, ends with LEAVE once its work has ended: that
// may take long, and nothing else waits for it.
func (h *Host) removeGroup(r *resource) {
	h.log.Warn("removing a group: its file is gone", "group", r.name)
	h.mu.Lock()
	h.groups = slices.DeleteFunc(slices.Clone(h.groups), func(other *resource) bool { return other == r })
	h.removed = append(slices.Clone(h.removed), r)
	s := h.session
	h.mu.Unlock()
	if s != nil {
		if m := s.member(r); m != nil {
			m.end("the group is removed from the configuration of this host")
			return // it finishes the removal
		}
	}
	h.finishRemoval(r)
}

// finishRemoval closes a group that was removed, once its membership has ended. It does nothing for another group.
func (h *Host) finishRemoval(r *resource) {
	h.mu.Lock()
	removed := slices.Contains(h.removed, r)
	h.mu.Unlock()
	if !removed {
		return
	}
	r.closed.Do(func() { // the membership may end while removeGroup looks for it
		h.failsafe.forget(r.root)
		r.close()
	})
	h.mu.Lock()
	h.removed = slices.DeleteFunc(slices.Clone(h.removed), func(other *resource) bool { return other == r })
	h.mu.Unlock()
	signal(h.left)
}

// addHeldBack adds the groups that had to wait until others were left.
func (h *Host) addHeldBack() {
	h.reloading.Lock()
	defer h.reloading.Unlock()
	for _, c := range h.inForce.Load().Groups {
		if h.resource(c.Name) == nil {
			h.addGroup(c)
		}
	}
}
