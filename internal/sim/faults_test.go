package sim

import (
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// faultKind is something that goes wrong at a host, or everywhere.
type faultKind struct {
	name       string
	meddling   bool // an operator's doing
	intruder   bool // only promised to be survived where nobody takes the end of a session for the end of the work
	uniform    bool // only promised to be survived where all session timeouts are alike
	byOperator bool // given to the group by its commands, or so it seems
	do         func(w *world, h *host)
}

var faultKinds = slices.Concat(coreFaults, vitalsFaults, requestFaults, starvation, losses, forgeries)

var coreFaults = []faultKind{
	{name: "connection reset", do: func(_ *world, h *host) { h.reset() }},
	{name: "partition", do: func(w *world, h *host) { h.cut(w.between(0, 2*h.timeout), w.between(0, h.timeout*2/3)) }},
	{name: "hanging connection", do: func(w *world, h *host) { h.hang(w.between(0, 2*h.timeout)) }},
	{name: "daemon paused", do: func(w *world, h *host) { h.pause(w.between(0, 2*h.timeout)) }},
	{name: "daemon killed", do: func(w *world, h *host) { h.crash(true) }},
	{name: "host lost", do: func(w *world, h *host) { h.crash(false) }},
	{name: "daemon stopped", do: func(w *world, h *host) { h.quit() }},
	{name: "guard killed", do: func(w *world, h *host) { h.orphan() }},
	{name: "follower without quorum", do: func(w *world, h *host) { h.strand(w.between(0, 2*h.timeout)) }},
	{name: "servers down", do: func(w *world, _ *host) { w.outage(w.between(0, 8*time.Second)) }},
	{name: "child dies", do: func(w *world, h *host) {
		if h.work != nil && !h.work.hook && !h.work.dying {
			h.dead("exited")
		}
	}},
	{name: "takeovers stall", do: func(w *world, h *host) { h.stalls = !h.stalls }},
	{name: "child cannot start", do: func(w *world, h *host) { h.refuses = !h.refuses }},
	{name: "child ignores TERM", do: func(w *world, h *host) { h.stubborn = !h.stubborn }},
	{name: "undoing takes long", do: func(w *world, h *host) {
		h.undoing = []time.Duration{0, time.Second, 4 * time.Second, 10 * time.Second}[w.rng.IntN(4)]
	}},
	{name: "priority changed", do: func(w *world, h *host) { h.reprioritise() }},
	{name: "elected deleted", meddling: true, do: func(w *world, _ *host) { w.meddle(cluster.Op{Kind: cluster.OpDelete, Path: w.known.elected}) }},
	{name: "elected damaged", meddling: true, do: func(w *world, _ *host) {
		w.meddle(cluster.Op{Kind: cluster.OpSet, Path: w.known.elected, Data: []byte("garbage")})
	}},
	{name: "current deleted", meddling: true, do: func(w *world, _ *host) { w.meddle(cluster.Op{Kind: cluster.OpDelete, Path: w.known.current}) }},
	{name: "current deleted under a leader cut off", meddling: true, do: func(w *world, _ *host) { w.rob() }},
	{name: "fence emptied", meddling: true, uniform: true, do: func(w *world, _ *host) { w.meddle(cluster.Op{Kind: cluster.OpSet, Path: w.known.leader}) }},
	{name: "fence damaged", meddling: true, uniform: true, do: func(w *world, _ *host) {
		w.meddle(cluster.Op{Kind: cluster.OpSet, Path: w.known.leader, Data: []byte(`{"v":1,"lease_wait":"100h"}`)})
	}},
	{name: "leader's session closed by a stranger", intruder: true, do: func(w *world, _ *host) { w.intrude() }},
	{name: "incarnation deleted", meddling: true, do: func(w *world, h *host) { h.unregister() }},
}

// plan has faults happen until the busy time is over.
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

// heal ends the faults. What is left is only what the promises allow for: a host that stalls, if it is not the only one.
func (w *world) heal() {
	w.log("the faults are over")
	w.calm = true
	w.restore()
	t := &w.traits
	t.slow, t.lateWatch, t.lostWatch, t.ghosts, t.dying, t.failing, t.ambush, t.snatch = 0, 0, 0, 0, 0, 0, 0, 0
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
	if t.clings && (!t.stuck || t.hosts > 2) { // somebody must be well
		w.cling()
	}
}

// quit is an operator stopping the daemon.
func (h *host) quit() {
	if h.alive && !h.paused && h.loop != nil && h.loop.machine != nil {
		h.leave()
	}
}

// unregister deletes the incarnation of a daemon. Where that is taken for the end of the session, and so of the lease, it is
// only done to one without a lease (docs/safety.md, What is not promised).
func (h *host) unregister() {
	if h.loop == nil || h.loop.machine == nil {
		return
	}
	if h.w.wary() {
		h.w.meddle(cluster.Op{Kind: cluster.OpDelete, Path: h.w.known.election + "/" + h.loop.self.Name})
		return
	}
	if h.work != nil || h.clock() < h.lease+h.budget.Kill {
		return
	}
	if h.w.check.readFence().Record.Incarnation == h.loop.self.Name { // it may not know yet that it has one
		return
	}
	h.w.meddle(cluster.Op{Kind: cluster.OpDelete, Path: h.w.known.election + "/" + h.loop.self.Name})
}

// meddle is a write past all checks.
func (w *world) meddle(op cluster.Op) {
	if w.down {
		return
	}
	op.Version = cluster.AnyVersion
	w.operate([]cluster.Op{op})
}

// operate is a write from elsewhere than a daemon.
func (w *world) operate(ops []cluster.Op) {
	id := w.tree.Open()
	_, fired, err := w.tree.Apply(id, ops)
	w.tree.End(id)
	if w.trace != nil {
		w.log("operator: %s %v", describe(ops), err)
	}
	if err == nil {
		w.check.meddled()
		w.fire(fired)
	}
}
