package sim

import (
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/transition"
	"zkelectd/internal/watchdog"
)

// loop is one session of a daemon. It stands in for group.Member, with the same core under it.
type loop struct {
	h       *host
	s       *session
	self    cluster.Incarnation
	machine *transition.Machine
	reader  *reader
	elector electorRole

	inline  []transition.Event
	timer   time.Duration // the next tick, on the host's clock
	snap    cluster.Snapshot
	slot    cluster.Snapshot // not handled yet
	offered bool
	cut     time.Duration // no lease may outlast it, because the session timeout has shrunk; 0 for no limit
	over    bool          // closed, or about to be
	early   bool          // the child was reported dead before it was
}

func (l *loop) begin(in cluster.Incarnation) {
	h, t := l.h, &l.h.w.traits
	l.self = in
	h.w.check.registers(in)
	h.w.log("%s: registered as %s in session %d", h.id, in.Name, l.s.id)
	l.machine = transition.New(transition.Options{
		Paths: h.w.paths, Self: in, Site: h.site, Budget: h.budget,
		TrustSessionEnd: h.trusts(), Wall: h.w.wall,
		RestartMax: 1, RestartWindow: time.Minute, RestartBackoff: 200 * time.Millisecond,
	})
	l.elector = electorRole{
		core:     elector.New(elector.Options{Exclusion: t.exclusion, ExclusionMax: max(t.exclusion, time.Hour), LastKnown: h.memory}),
		watchdog: watchdog.New(watchdog.Options{Takeover: t.takeover, StrikeResetAfter: 5 * time.Minute, Trust: cluster.Trust{LeaseWait: h.budget.LeaseWait, SessionEnd: h.trusts()}}),
		version:  -2,
	}
	l.reader = newReader(l.s, in, l.offer)
	l.reader.resume()
	if h.leaving {
		h.leave()
	}
}

// offer puts a snapshot into the slot from which the loop takes the newest one.
func (l *loop) offer(snap cluster.Snapshot) {
	l.slot = snap
	if l.offered {
		return
	}
	l.offered = true
	l.soon(func() {
		l.offered, l.snap = false, l.slot
		l.step(transition.Saw{Snapshot: l.h.w.broken.sees(l, l.snap)})
	})
}

// soon makes the loop do something when it gets to it. Events from different sources may overtake each other.
func (l *loop) soon(do func()) {
	l.h.w.after(l.h.w.between(0, l.h.w.traits.turn), func() { l.h.process(l.s, do) })
}

func (l *loop) close() {
	l.over = true
	if l.reader != nil {
		l.reader.stop()
	}
}

func (l *loop) step(ev transition.Event) {
	if l.over || l.machine == nil {
		return
	}
	l.inline = append(l.inline, ev)
	for len(l.inline) > 0 {
		next := l.inline[0]
		l.inline = l.inline[1:]
		for _, a := range l.machine.Step(l.h.clock(), next) {
			l.perform(a)
		}
	}
	if l.machine.Phase() == transition.Ended {
		if !l.over {
			l.over = true
			l.h.w.after(0, func() { l.h.process(l.s, l.h.sessionOver) })
		}
		return
	}
	wake := cluster.Earliest(l.evaluate(), l.machine.Wake())
	l.wakeAt(wake)
}

// wakeAt schedules the next tick, unless an earlier one is scheduled, which will schedule again.
func (l *loop) wakeAt(at time.Duration) {
	if at == 0 || (l.timer != 0 && l.timer <= at) {
		return
	}
	l.timer = at
	l.h.w.at(l.h.when(at), func() {
		l.h.process(l.s, func() {
			if l.timer == at {
				l.timer = 0
				l.step(transition.Tick{})
			}
		})
	})
}

func (l *loop) perform(a transition.Action) {
	h := l.h
	switch a := a.(type) {
	case transition.Send:
		l.send(a)
	case transition.Lease:
		if deadline := a.Deadline; deadline != 0 {
			h.extend(cluster.Earliest(deadline, l.cut))
		} else {
			h.extend(0)
		}
	case transition.RunPreStart:
		l.preStart(a.Term)
	case transition.RunPostStop:
		l.postStop()
	case transition.StartChild:
		l.startChild(a.Term)
	case transition.StopTask:
		l.stopTask(a.Grace)
	case transition.KillTask:
		h.kill()
	case transition.Entrust:
		l.s.leave = a.Ops
	case transition.Reread:
		l.reader.reread()
	case transition.Announce:
		h.w.log("%s: %s in term %d: %s", h.id, a.Phase, a.Term, a.Reason)
	case transition.Note:
		h.w.log("%s: %s", h.id, a.Text)
	}
}

// send sends a transaction; without a reply by its deadline the session is over for the client.
func (l *loop) send(a transition.Send) {
	h := l.h
	done := false
	report := func(rep reply) {
		if done {
			return
		}
		done = true
		l.soon(func() { l.step(transition.TxDone{Tx: a.Tx, Results: rep.results, Err: rep.err}) })
	}
	if h.clock() >= a.Deadline {
		report(reply{err: cluster.ErrNotSent})
		return
	}
	h.w.at(h.when(a.Deadline), func() {
		h.process(l.s, func() {
			if !done {
				l.s.end("a write got no reply in time")
			}
		})
	})
	l.s.send(&request{ops: h.w.broken.sends(l, a), done: report})
}
