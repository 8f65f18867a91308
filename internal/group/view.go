package group

import (
	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
)

// publish publishes the view.
func (m *Member) publish() {
	v := m.View()
	if n := m.session.Reconnects(); n != m.reconnects {
		m.group.opt.Counters.Update(func(t *status.Totals) { t.Reconnects += uint64(n - m.reconnects) })
		m.reconnects = n
	}
	before := m.group.view.Swap(&v)
	m.group.feed.AddChanges(*before, v)
	m.group.opt.OnView(v)
}

// View returns the member's current state. It may only be called before Run or in the loop.
func (m *Member) View() status.Daemon {
	g := m.group
	node, guard := g.settings.Node, g.opt.Guard
	v := status.Daemon{
		Node: node.ID, Site: node.Site, Root: g.opt.Paths.Root, Incarnation: m.self.Name, Phase: string(m.machine.Phase()),
		Term: m.machine.Term(), LeaseEnds: m.machine.Deadline(), Lease: cluster.Duration(m.budget.Lease), Elector: m.snap.Elector,
		SessionTimeout: cluster.Duration(m.budget.Session), Note: m.elector.note, Blocked: m.elector.blocked, Newer: g.newer, Drift: g.drift,
		SnapshotAt: m.snap.At, RespondedAt: m.responded, PublishedAt: boottime.Now(),
		Loop: !m.over, Session: !m.over && m.session.Err() == nil, Connected: m.session.Connected(),
		Unhealthy: g.opt.Health.UnhealthyReason(), Child: m.machine.Running(), Unit: g.opt.Work.Unit,
		Containment: string(guard.Containment()), Unkillable: guard.Unkillable(), OpenTree: g.openTree.Load(),
	}
	if m.snap.Elected.Readable() {
		e := m.snap.Elected.Record
		v.Elected, v.ElectedSite, v.ElectedTerm, v.Cause, v.Reason = e.Node, e.Site, e.Term, string(e.Cause), e.Reason
	}
	v.Holder = holder(m.snap)
	if m.snap.Elector && !m.over {
		pause := m.snap.Control.Record.Pause
		v.Sites, v.Paused, v.PausedHard = m.elector.sites, pause != nil, pause != nil && pause.Hard
	}
	return v
}

// holder returns the holder of leadership, nil if this member does not know it.
func holder(s cluster.Snapshot) *status.Holder {
	if !s.Leadership || s.Current.Err != nil {
		return nil
	}
	if !s.Current.Exists {
		return &status.Holder{State: status.StateNone}
	}
	c := s.Current.Record
	return &status.Holder{Node: c.Node, Site: c.Site, Term: c.Term, State: string(c.State)}
}
