package sim

import (
	"time"

	"zkelectd/internal/cluster"
)

// faultKind is something that goes wrong at a host, or everywhere.
type faultKind struct {
	name     string
	meddling bool // an operator's doing
	uniform  bool // only promised to be survived where all session timeouts are alike
	do       func(w *world, h *host)
}

var faultKinds = []faultKind{
	{"connection reset", false, false, func(_ *world, h *host) { h.reset() }},
	{"partition", false, false, func(w *world, h *host) { h.cut(w.between(0, 2*h.timeout), w.between(0, h.timeout*2/3)) }},
	{"hanging connection", false, false, func(w *world, h *host) { h.hang(w.between(0, 2*h.timeout)) }},
	{"daemon paused", false, false, func(w *world, h *host) { h.pause(w.between(0, 2*h.timeout)) }},
	{"daemon killed", false, false, func(w *world, h *host) { h.crash(true) }},
	{"host lost", false, false, func(w *world, h *host) { h.crash(false) }},
	{"daemon stopped", false, false, func(w *world, h *host) { h.quit() }},
	{"guard killed", false, false, func(w *world, h *host) { h.orphan() }},
	{"follower without quorum", false, false, func(w *world, h *host) { h.strand(w.between(0, 2*h.timeout)) }},
	{"servers down", false, false, func(w *world, _ *host) { w.outage(w.between(0, 8*time.Second)) }},
	{"child dies", false, false, func(w *world, h *host) {
		if h.work != nil && !h.work.hook && !h.work.dying {
			h.dead("exited")
		}
	}},
	{"takeovers stall", false, false, func(w *world, h *host) { h.stalls = !h.stalls }},
	{"child cannot start", false, false, func(w *world, h *host) { h.refuses = !h.refuses }},
	{"child ignores TERM", false, false, func(w *world, h *host) { h.stubborn = !h.stubborn }},
	{"undoing takes long", false, false, func(w *world, h *host) {
		h.undoing = []time.Duration{0, time.Second, 4 * time.Second, 10 * time.Second}[w.rng.IntN(4)]
	}},
	{"policy changed", false, false, func(w *world, _ *host) {
		rec := w.traits.policy(int64(w.rng.IntN(6)))
		w.meddle(cluster.Op{Kind: cluster.OpSet, Path: w.known.policy, Data: cluster.Encode(&rec)})
	}},
	{"priority changed", false, false, func(w *world, h *host) { h.reprioritise() }},
	{"elected deleted", true, false, func(w *world, _ *host) { w.meddle(cluster.Op{Kind: cluster.OpDelete, Path: w.known.elected}) }},
	{"elected damaged", true, false, func(w *world, _ *host) {
		w.meddle(cluster.Op{Kind: cluster.OpSet, Path: w.known.elected, Data: []byte("garbage")})
	}},
	{"current deleted", true, false, func(w *world, _ *host) { w.meddle(cluster.Op{Kind: cluster.OpDelete, Path: w.known.current}) }},
	{"current deleted under a leader cut off", true, false, func(w *world, _ *host) { w.rob() }},
	{"fence emptied", true, true, func(w *world, _ *host) { w.meddle(cluster.Op{Kind: cluster.OpSet, Path: w.known.leader}) }},
	{"fence damaged", true, true, func(w *world, _ *host) {
		w.meddle(cluster.Op{Kind: cluster.OpSet, Path: w.known.leader, Data: []byte(`{"v":9}`)})
	}},
	{"incarnation of a standby deleted", true, false, func(w *world, h *host) { h.unregister() }},
}

// plan has faults happen until the busy time is over.
func (w *world) plan() {
	t := &w.traits
	if t.stuck {
		w.hosts[w.rng.IntN(len(w.hosts))].stalls = true
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
	t.slow, t.lateWatch, t.lostWatch, t.ghosts, t.dying, t.failing, t.ambush = 0, 0, 0, 0, 0, 0, 0
	for i, h := range w.hosts {
		t.latency[i] = min(t.latency[i], 10*time.Millisecond)
		h.connect()
		h.refuses, h.stubborn, h.undoing = false, false, 0
		h.stalls = t.stuck && h.stalls && i == 0
		if h.paused {
			h.resume()
		}
	}
	if t.clings && (!t.stuck || t.hosts > 2) { // somebody must be well
		w.cling()
	}
}

// cut is a partition: what is under way waits, as TCP does, until the partition is over or the client gives up.
func (h *host) cut(d, patience time.Duration) {
	if h.net != netFine {
		return
	}
	h.net = netCut
	if h.loop != nil {
		s := h.loop.s
		s.silent()
		epoch := s.epoch
		h.w.after(patience, func() {
			if h.net == netCut && s.epoch == epoch {
				s.breaks(0)
			}
		})
	}
	h.w.after(d, h.connect)
}

// reset breaks the connection alone.
func (h *host) reset() {
	if h.loop != nil && h.net == netFine {
		h.loop.s.silent()
		h.loop.s.breaks(h.w.between(0, 20*time.Millisecond))
	}
}

// hang is a server that is cut off from the others: it answers pings, so the client stays.
func (h *host) hang(d time.Duration) {
	if h.net != netFine {
		return
	}
	h.net = netHangs
	if h.loop != nil {
		h.loop.s.silent()
	}
	h.w.after(d, h.connect)
}

// connect ends a partition. What waited arrives now.
func (h *host) connect() {
	was := h.net
	h.net, h.view = netFine, nil
	if was == netStale && h.loop != nil {
		h.loop.s.breaks(h.w.between(0, 20*time.Millisecond)) // it gives up its clients when it has noticed
	}
	if h.loop == nil || was == netFine || was == netStale {
		return
	}
	s := h.loop.s
	if s.up && !h.paused {
		s.touch()
	}
	held := s.held
	s.held = nil
	for _, do := range held {
		do()
	}
}

// outage takes all servers down. When they are back every session has its whole time again.
func (w *world) outage(d time.Duration) {
	if w.down {
		return
	}
	w.down = true
	for _, h := range w.hosts {
		if h.loop != nil {
			h.loop.s.breaks(w.between(0, 50*time.Millisecond))
		}
	}
	w.after(d, w.restore)
}

func (w *world) restore() {
	if !w.down {
		return
	}
	w.log("the servers are back")
	w.down = false
	for _, s := range w.all {
		s.wrote, s.quiet = w.now, false
		s.silent()
	}
}

// quit is an operator stopping the daemon.
func (h *host) quit() {
	if h.alive && !h.paused && h.loop != nil && h.loop.machine != nil {
		h.leave()
	}
}

// reprioritise is a reload of the daemon with another priority.
func (h *host) reprioritise() {
	h.prio = h.w.rng.IntN(3)
	h.publish()
}

func (h *host) publish() {
	rec := cluster.Node{ID: h.id, Site: h.site, Priority: h.prio, Host: h.id, SessionTimeout: cluster.Duration(h.timeout)}
	h.w.meddle(cluster.Op{Kind: cluster.OpSet, Path: h.w.known.nodes + "/" + h.id, Data: cluster.Encode(&rec)})
}

// unregister deletes the incarnation of a daemon without a lease. Of one that has a lease it would say that the session,
// and so the lease, is over (docs/protocol.md, What ZooKeeper cannot give).
func (h *host) unregister() {
	if h.loop == nil || h.loop.machine == nil || h.work != nil || h.clock() < h.lease+h.budget.Kill {
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
	id := w.tree.Open()
	_, fired, err := w.tree.Apply(id, []cluster.Op{op})
	w.tree.End(id)
	w.log("operator: %s %s: %v", op.Kind, op.Path, err)
	if err == nil {
		w.check.meddled()
		w.fire(fired)
	}
}
