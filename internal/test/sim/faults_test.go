package sim

import (
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// faultKind is something that goes wrong on a host, or everywhere.
type faultKind struct {
	name       string
	tampering  bool // caused by an operator
	uniform    bool // survived only if all session timeouts are equal
	shared     bool // affects all groups: it is a fault of the host, of its session or of the servers
	byOperator bool // submitted by the group's commands, or looks like that
	do         func(w *world, m *member)
}

var faultKinds = slices.Concat(coreFaults, reportFaults, requestFaults, starvation, dataLosses, forgeries, instanceFaults)

var coreFaults = []faultKind{
	{name: "connection reset", shared: true, do: func(_ *world, m *member) { m.reset() }},
	{name: "partition", shared: true, do: func(w *world, m *member) { m.cut(w.between(0, 2*m.timeout), w.between(0, m.timeout*2/3)) }},
	{name: "hanging connection", shared: true, do: func(w *world, m *member) { m.hang(w.between(0, 2*m.timeout)) }},
	{name: "daemon paused", shared: true, do: func(w *world, m *member) { m.pause(w.between(0, 2*m.timeout)) }},
	{name: "daemon killed", shared: true, do: func(w *world, m *member) { m.crash(true) }},
	{name: "host lost", shared: true, do: func(w *world, m *member) { m.crash(false) }},
	{name: "daemon stopped", shared: true, do: func(w *world, m *member) { m.quit() }},
	{name: "guard killed", shared: true, do: func(w *world, m *member) { m.killGuard() }},
	{name: "follower without quorum", shared: true, do: func(w *world, m *member) { m.loseQuorum(w.between(0, 2*m.timeout)) }},
	{name: "servers down", shared: true, do: func(w *world, m *member) { w.outage(w.between(0, 8*time.Second)) }},
	{name: "child dies", do: func(w *world, m *member) {
		if m.work != nil && !m.work.hook && !m.work.dying && !m.work.awaits() {
			m.dead("exited")
		}
	}},
	{name: "takeovers stall", do: func(w *world, m *member) { m.stalls = !m.stalls }},
	{name: "child cannot start", do: func(w *world, m *member) { m.refuses = !m.refuses }},
	{name: "child ignores TERM", do: func(w *world, m *member) { m.stubborn = !m.stubborn }},
	{name: "post_stop takes long", do: func(w *world, m *member) {
		m.undoing = []time.Duration{0, time.Second, 4 * time.Second, 10 * time.Second}[w.rng.IntN(4)]
	}},
	{name: "priority changed", do: func(w *world, m *member) { m.changePriority() }},
	{name: "elected deleted", tampering: true, do: func(w *world, m *member) { m.g.tamper(cluster.Op{Kind: cluster.OpDelete, Path: m.g.known.elected}) }},
	{name: "elected damaged", tampering: true, do: func(w *world, m *member) {
		m.g.tamper(cluster.Op{Kind: cluster.OpSet, Path: m.g.known.elected, Data: []byte("garbage")})
	}},
	{name: "current deleted", tampering: true, do: func(w *world, m *member) { m.g.tamper(cluster.Op{Kind: cluster.OpDelete, Path: m.g.known.current}) }},
	{name: "current deleted under a leader cut off", tampering: true, do: func(w *world, m *member) { m.g.deleteCurrent() }},
	{name: "fence emptied", tampering: true, uniform: true, do: func(w *world, m *member) { m.g.tamper(cluster.Op{Kind: cluster.OpSet, Path: m.g.known.leader}) }},
	{name: "fence damaged", tampering: true, uniform: true, do: func(w *world, m *member) {
		m.g.tamper(cluster.Op{Kind: cluster.OpSet, Path: m.g.known.leader, Data: []byte(`{"v":1,"lease_wait":"100h"}`)})
	}},
	{name: "leader's session closed from elsewhere", do: func(w *world, m *member) { m.g.closeLeaderSession() }},
	{name: "incarnation deleted", tampering: true, do: func(w *world, m *member) { m.unregister() }},
}

// plan schedules faults until the busy time is over.
func (w *world) plan() {
	for _, g := range w.groups {
		g.plan()
	}
	for _, r := range w.resources {
		r.planSlots()
		r.replicate()
		if w.broken.slotted {
			r.planFocused()
		}
	}
	w.planFailsafe()
	w.planHanging()
	w.planLeaving()
	w.planLending()
	w.planRestores()
	w.planSilence()
	w.planStandbys()
}

func (g *group) plan() {
	w := g.w
	t := &w.traits
	if t.stuck {
		g.members[w.rng.IntN(len(w.hosts))].stalls = true
	}
	if g.slot == 0 {
		g.noise()
	}
	if t.total == 0 {
		return
	}
	for at := w.between(0, 2*t.gap); at < t.busy; at += w.between(0, 2*t.gap) {
		x := w.rng.Float64() * t.total
		kind := 0
		for ; kind < len(t.weights)-1 && x >= t.weights[kind]; kind++ {
			x -= t.weights[kind]
		}
		m, k := g.members[w.rng.IntN(len(w.hosts))], &faultKinds[kind]
		if k.shared && g.number > 0 { // hosts, sessions and servers fail as often as with one group
			continue
		}
		w.at(at, func() {
			w.faults[k.name]++
			w.log("FAULT %s (%s)", k.name, m.name)
			k.do(w, m)
		})
	}
}

// heal ends the faults. It leaves only what the promises allow for: a host that stalls, if it is not the only one.
func (w *world) heal() {
	w.log("the faults have ended")
	w.calm, w.excess = true, max(0, w.highest-cluster.MaxTerm(w.serverTime()))
	w.restore()
	w.healPeers()
	t := &w.traits
	t.slow, t.lateWatch, t.lostWatch, t.lateWrites, t.dying, t.failing, t.handoverFault, t.deletedDecision, t.interrupted = 0, 0, 0, 0, 0, 0, 0, 0, 0
	for i, h := range w.hosts {
		t.latency[i] = min(t.latency[i], 10*time.Millisecond)
		h.connect()
		for _, m := range h.members {
			m.refuses, m.stubborn, m.undoing = false, false, 0
			if m.loop != nil {
				m.loop.unhang()
			}
			m.stalls = t.stuck && m.stalls && i == 0
		}
		if !h.hangs() || h.session == nil || h.ending() || w.failsafe != nil { // an outage may have kept its instance from ending
			h.thaw()
		}
		for _, m := range h.residents {
			m.add()
		}
		if h.paused {
			h.resume()
		}
	}
	for _, r := range w.resources {
		r.groups[0].settleRequests()
	}
	if t.refusesRelease && !w.resources[0].slotted && (!t.stuck || t.hosts > 2) { // one host must be healthy
		w.groups[0].refuseRelease()
	}
}

// quit stops the daemon, as an operator does.
func (h *host) quit() {
	if h.alive && !h.paused && h.registered() {
		h.leave()
	}
}

// registered reports whether a member of the host is registered.
func (h *host) registered() bool {
	return slices.ContainsFunc(h.residents, func(m *resident) bool { return m.instance.active() })
}

// unregister deletes the incarnation of a daemon. In a world in which hosts take that for the end of the session, and so of the lease, it
// is done only to a daemon without a lease, in any slot.
func (m *member) unregister() {
	if m.loop == nil || m.w.broken.timed && slices.ContainsFunc(m.resident.members, func(o *member) bool { return o.mayLead(m.loop.self.Name) }) {
		return
	}
	m.g.tamper(cluster.Op{Kind: cluster.OpDelete, Path: m.g.known.election + "/" + m.loop.self.Name})
}

// mayLead reports whether work may run or be started for an incarnation, which the member need not know.
func (m *member) mayLead(incarnation string) bool {
	return m.work != nil || m.clock() < m.lease+m.budget.Kill || m.g.check.readFence().Record.Incarnation == incarnation
}

// tamper writes without any check.
func (g *group) tamper(op cluster.Op) {
	w := g.w
	if w.down {
		return
	}
	op.Version = cluster.AnyVersion
	g.writeAsOperator([]cluster.Op{op})
}

// writeAsOperator applies a write that is not a daemon's.
func (g *group) writeAsOperator(ops []cluster.Op) bool {
	w := g.w
	id := w.tree.Open()
	_, fired, err := w.tree.Apply(id, ops)
	w.tree.End(id)
	if w.trace != nil {
		w.log("operator: %s %v", describe(ops), err)
	}
	if err == nil {
		g.recordsChanged()
		w.fire(fired)
	}
	return err == nil
}
