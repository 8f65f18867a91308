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
	intruder   bool // survived only if no host accepts the end of a session as the end of the work
	uniform    bool // survived only if all session timeouts are equal
	byOperator bool // submitted by the group's commands, or looks like that
	do         func(w *world, h *host)
}

var faultKinds = slices.Concat(coreFaults, reportFaults, requestFaults, starvation, losses, forgeries)

var coreFaults = []faultKind{
	{name: "connection reset", do: func(_ *world, h *host) { h.reset() }},
	{name: "partition", do: func(w *world, h *host) { h.cut(w.between(0, 2*h.timeout), w.between(0, h.timeout*2/3)) }},
	{name: "hanging connection", do: func(w *world, h *host) { h.hang(w.between(0, 2*h.timeout)) }},
	{name: "daemon paused", do: func(w *world, h *host) { h.pause(w.between(0, 2*h.timeout)) }},
	{name: "daemon killed", do: func(w *world, h *host) { h.crash(true) }},
	{name: "host lost", do: func(w *world, h *host) { h.crash(false) }},
	{name: "daemon stopped", do: func(w *world, h *host) { h.quit() }},
	{name: "guard killed", do: func(w *world, h *host) { h.killGuard() }},
	{name: "follower without quorum", do: func(w *world, h *host) { h.loseQuorum(w.between(0, 2*h.timeout)) }},
	{name: "servers down", do: func(w *world, _ *host) { w.outage(w.between(0, 8*time.Second)) }},
	{name: "child dies", do: func(w *world, h *host) {
		if h.work != nil && !h.work.hook && !h.work.dying {
			h.dead("exited")
		}
	}},
	{name: "takeovers stall", do: func(w *world, h *host) { h.stalls = !h.stalls }},
	{name: "child cannot start", do: func(w *world, h *host) { h.refuses = !h.refuses }},
	{name: "child ignores TERM", do: func(w *world, h *host) { h.stubborn = !h.stubborn }},
	{name: "post_stop takes long", do: func(w *world, h *host) {
		h.undoing = []time.Duration{0, time.Second, 4 * time.Second, 10 * time.Second}[w.rng.IntN(4)]
	}},
	{name: "priority changed", do: func(w *world, h *host) { h.changePriority() }},
	{name: "elected deleted", tampering: true, do: func(w *world, _ *host) { w.tamper(cluster.Op{Kind: cluster.OpDelete, Path: w.known.elected}) }},
	{name: "elected damaged", tampering: true, do: func(w *world, _ *host) {
		w.tamper(cluster.Op{Kind: cluster.OpSet, Path: w.known.elected, Data: []byte("garbage")})
	}},
	{name: "current deleted", tampering: true, do: func(w *world, _ *host) { w.tamper(cluster.Op{Kind: cluster.OpDelete, Path: w.known.current}) }},
	{name: "current deleted under a leader cut off", tampering: true, do: func(w *world, _ *host) { w.deleteCurrent() }},
	{name: "fence emptied", tampering: true, uniform: true, do: func(w *world, _ *host) { w.tamper(cluster.Op{Kind: cluster.OpSet, Path: w.known.leader}) }},
	{name: "fence damaged", tampering: true, uniform: true, do: func(w *world, _ *host) {
		w.tamper(cluster.Op{Kind: cluster.OpSet, Path: w.known.leader, Data: []byte(`{"v":1,"lease_wait":"100h"}`)})
	}},
	{name: "leader's session closed from elsewhere", intruder: true, do: func(w *world, _ *host) { w.closeLeaderSession() }},
	{name: "incarnation deleted", tampering: true, do: func(w *world, h *host) { h.unregister() }},
}

// plan schedules faults until the busy time is over.
func (w *world) plan() {
	t := &w.traits
	if t.stuck {
		w.hosts[w.rng.IntN(len(w.hosts))].stalls = true
	}
	w.noise()
	if t.total == 0 {
		return
	}
	for at := w.between(0, 2*t.gap); at < t.busy; at += w.between(0, 2*t.gap) {
		x := w.rng.Float64() * t.total
		kind := 0
		for ; kind < len(t.weights)-1 && x >= t.weights[kind]; kind++ {
			x -= t.weights[kind]
		}
		h := w.hosts[w.rng.IntN(len(w.hosts))]
		w.at(at, func() {
			k := &faultKinds[kind]
			w.faults[k.name]++
			w.log("FAULT %s (%s)", k.name, h.id)
			k.do(w, h)
		})
	}
}

// heal ends the faults. It leaves only what the promises allow for: a host that stalls, if it is not the only one.
func (w *world) heal() {
	w.log("the faults have ended")
	w.calm = true
	w.restore()
	t := &w.traits
	t.slow, t.lateWatch, t.lostWatch, t.lateWrites, t.dying, t.failing, t.handoverFault, t.deletedDecision = 0, 0, 0, 0, 0, 0, 0, 0
	for i, h := range w.hosts {
		t.latency[i] = min(t.latency[i], 10*time.Millisecond)
		h.connect()
		h.refuses, h.stubborn, h.undoing = false, false, 0
		h.stalls = t.stuck && h.stalls && i == 0
		if h.paused {
			h.resume()
		}
	}
	w.settleRequests()
	if t.refusesRelease && (!t.stuck || t.hosts > 2) { // one host must be healthy
		w.refuseRelease()
	}
}

// quit stops the daemon, as an operator does.
func (h *host) quit() {
	if h.alive && !h.paused && h.loop != nil && h.loop.machine != nil {
		h.leave()
	}
}

// unregister deletes the incarnation of a daemon. If a host would take that for the end of the session, and so of the lease,
// it is done only to a daemon without a lease (docs/safety.md, What is not promised).
func (h *host) unregister() {
	if h.loop == nil || h.loop.machine == nil {
		return
	}
	if h.w.noneTrusts() {
		h.w.tamper(cluster.Op{Kind: cluster.OpDelete, Path: h.w.known.election + "/" + h.loop.self.Name})
		return
	}
	if h.work != nil || h.clock() < h.lease+h.budget.Kill {
		return
	}
	if h.w.check.readFence().Record.Incarnation == h.loop.self.Name { // it may have one without knowing it
		return
	}
	h.w.tamper(cluster.Op{Kind: cluster.OpDelete, Path: h.w.known.election + "/" + h.loop.self.Name})
}

// tamper writes without any check.
func (w *world) tamper(op cluster.Op) {
	if w.down {
		return
	}
	op.Version = cluster.AnyVersion
	w.writeAsOperator([]cluster.Op{op})
}

// writeAsOperator applies a write that is not a daemon's.
func (w *world) writeAsOperator(ops []cluster.Op) {
	id := w.tree.Open()
	_, fired, err := w.tree.Apply(id, ops)
	w.tree.End(id)
	if w.trace != nil {
		w.log("operator: %s %v", describe(ops), err)
	}
	if err == nil {
		w.check.recordsChanged()
		w.fire(fired)
	}
}
