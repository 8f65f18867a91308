package group

import (
	"cmp"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/boottime"
)

// updateView makes the present view the one that [Group.View] returns.
func (m *Member) updateView() {
	m.elector.Place(m.snap)
	v := m.View()
	m.group.swapView(v)
	m.group.opt.OnView(v)
}

// View returns the member's current state. It may only be called before Run or in the loop.
func (m *Member) View() status.Daemon {
	g := m.group
	node, seen, decided := g.settings.Node, m.registrar().driftSeen(), m.elector.View()
	standby, unkillable := g.opt.Standby()
	v := status.Daemon{
		Group: g.opt.Name, Membership: status.MembershipMember, Node: node.ID, Site: node.Site, Root: g.opt.Paths.Root,
		Incarnation: m.self.Name, Phase: string(m.machine.Phase()),
		Term: m.machine.Term(), LeaseEnds: m.machine.Deadline(), Lease: cluster.Duration(m.budget.Lease),
		Elector:        m.snap.Elector && !m.snap.Acting,
		SessionTimeout: cluster.Duration(m.budget.Session), Note: decided.Note, Blocked: decided.Blocked,
		AwaitsApproval: decided.AwaitsApproval, Proposal: decided.Proposal, Newer: g.newer,
		Drift: seen.policy, SlotsDrift: seen.slots,
		SnapshotAt: m.snap.At, RespondedAt: max(m.snap.At, g.opt.Health.RespondedAt()), UpdatedAt: boottime.Now(),
		Loop: !m.over, Session: !m.over && m.session.Err() == nil, Connected: m.session.Connected(),
		Unhealthy: g.opt.Health.UnhealthyReason(), Child: m.machine.Running(), Unit: m.opt.Work.Unit,
		Containment: string(g.opt.Containment()), Unkillable: cmp.Or(m.guard.Unkillable(), unkillable),
		OpenTree:       m.registrar().openTree.Load(),
		WatchdogDevice: g.opt.Device(), Standby: standby,
	}
	if decided.Manual {
		v.Blocked = "" // leadership stays where it is on purpose: nobody needs an alert
	}
	if node, since := m.machine.Fencing(); node != "" {
		v.Fencing = &status.Fencing{Node: node, Since: since}
	}
	if m.snap.Elected.Readable() {
		e := m.snap.Elected.Record
		v.Elected, v.ElectedSite, v.ElectedTerm, v.Cause, v.Reason = e.Node, e.Site, e.Term, string(e.Cause), e.Reason
	}
	if !m.over { // afterwards nobody can know
		v.Holder = holder(m.snap)
	}
	if heir, known := m.snap.NextLeader(); known {
		v.Heir, v.IsHeir = heir.Node, v.Session && m.closing == "" && m.snap.SelfIsHeir()
	}
	if m.snap.Elector && !m.over {
		pause := m.snap.Control.Record.Pause
		v.Condition = m.condition
		v.Condition.NoLeader, v.Condition.Failing = decided.NoLeader, decided.Failing
		v.Sites, v.Paused, v.PausedHard = decided.Sites, pause != nil, pause != nil && pause.Hard
	}
	return v
}

// holder returns the holder of leadership, nil if this member does not know it.
func holder(s cluster.Snapshot) *status.Holder {
	if !s.HolderRead || s.Current.Err != nil {
		return nil
	}
	if !s.Current.Exists {
		return &status.Holder{State: status.StateNone}
	}
	h := status.HolderOf(s.Current.Record)
	return &h
}

// registrar returns the group of the first member, which checks the tree for all of them.
func (m *Member) registrar() *Group { return m.instance.members[0].group }
