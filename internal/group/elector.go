package group

import (
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/group/electing"
	"zkelectd/internal/policy"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/transition"
	"zkelectd/internal/watchdog"
)

// newElector returns the elector's side of the member.
func (m *Member) newElector() *electing.Elector {
	g, opt := m.group, m.opt.Elector
	opt.LastKnown, opt.Epoch, opt.Group = &g.memory, m.instance.slots.Record.Epoch, g.opt.Name
	return electing.New(electing.Options{
		Conn: m.session, Paths: g.opt.Paths, Self: m.self, Budget: m.budget, Log: g.log, Elector: opt,
		Watchdog: watchdog.Options{
			Takeover: m.opt.TakeoverTimeout, StrikeResetAfter: m.opt.StrikeResetAfter, LeaseWait: m.budget.LeaseWait,
			Patience: m.budget.Patience(),
		},
		Placement: g.opt.Placement, Moves: m.opt.Limits.Moves, Wake: m.wake,
		Number: m.number, Slots: m.instance.known, Registered: m.instance.slots,
		Policy:  func(revision int64) cluster.Policy { return g.policyRecord(revision) },
		Program: func() []string { return g.settings.Program },
		Rank:    g.opt.Rank, Run: m.background.run, Reread: m.reader.Reread, RereadDecision: m.rereadAsElector,
		Electing: m.recordDecision, Elected: m.electedOther, Unwritten: m.setUnwritten, Count: g.opt.Counters.term,
		Useless: m.end, RollCallSeen: m.rollCalls.seen.At,
		TakeRefused: func() { m.deputy.core.Refused(boottime.Now()) },
	})
}

// concernsElector reports whether an event of the machine may change what the elector decides now; wake is when it is
// to decide again if nothing happens. A RENEW that was answered changes only the leadership of this member: an idle
// leader that is the elector as well would rank all members at each of them.
func concernsElector(ev transition.Event, wake, now time.Duration) bool {
	r, renewed := ev.(transition.RenewDone)
	return !renewed || r.Err != nil || wake != 0 && now >= wake
}

// LoadsChanged makes the member rank again, because the values of Options.Loads have changed. It is safe for
// concurrent use.
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

// complete makes the snapshot from what was read, adds the loads of the hosts and the end of this node, and shows it if
// this member elects: it decides by nothing else.
func (m *Member) complete() {
	m.snap = m.read
	m.snap.Members = cluster.WithLoads(m.withOwnEnd(m.read.Members), m.loads())
	var shown *cluster.Snapshot
	if m.snap.Elector {
		s := m.snap // m.snap changes
		shown = &s
	}
	m.group.opt.OnElector(shown)
}
