package group

import (
	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// LoadsChanged makes the member rank again, because the values of Options.Loads have changed. It is safe for concurrent use.
func (g *Group) LoadsChanged() {
	if g.usesLoads.Load() {
		g.notices.add(loadsChanged)
	}
}

// loads returns what is known of the loads of the hosts, if the elector's policy needs it; else nil.
func (m *Member) loads() map[string]cluster.Load {
	s, rules := &m.read, m.group.ownRules()
	if s.Policy.Readable() {
		rules = s.Policy.Record.Rules
	}
	uses := s.Elector && policy.UsesLoads(rules, s.Members)
	m.group.usesLoads.Store(uses)
	if !uses {
		return nil
	}
	return m.group.opt.Loads()
}

// complete makes the snapshot from what was read, and adds the loads of the hosts and the end of this node.
func (m *Member) complete() {
	m.snap = m.read
	m.snap.Members = cluster.WithLoads(m.withOwnEnd(m.read.Members), m.loads())
}
