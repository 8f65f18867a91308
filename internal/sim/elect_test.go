package sim

import (
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
	"zkelectd/internal/transition"
	"zkelectd/internal/watchdog"
)

// tick makes a loop look again.
var tick = transition.Tick{}

type electorRole struct {
	core     *elector.Elector
	watchdog *watchdog.Watchdog
	compiled *policy.Policy
	version  int32
	busy     bool
	settled  time.Duration
	retry    elector.Retry
	program  elector.Program
	answered bool                // the program has answered the last time
	kept     []cluster.Exclusion // by a breakage
}

// evaluate stands in for electorRole.evaluate of package group.
func (l *loop) evaluate() time.Duration {
	e, h, snap, now := &l.elector, l.h, l.snap, l.h.clock()
	if snap.At == 0 || !snap.Elector || snap.SelfLost || l.s.ended != "" {
		return 0
	}
	switch {
	case e.busy || snap.At < e.settled:
		return 0
	}
	if at := e.retry.Wait(&snap, now); at > 0 {
		return at
	}
	if !snap.Policy.Exists {
		rec := h.w.own(1)
		l.write("publishing the policy", snap, false, []cluster.Op{{Kind: cluster.OpCreate, Path: h.w.known.policy, Data: cluster.Encode(&rec)}})
		return 0
	}
	snap = h.w.broken.judges(l, snap)
	found := e.watchdog.Observe(h.w.broken.watches(l, snap), now)
	in := elector.Input{
		Snapshot: snap, Policy: l.policy(snap), Now: now, Wall: h.w.wall(),
		Overdue: found.Overdue, Revoke: found.Revoke, Exclusions: found.Exclusions, Age: found.Age,
	}
	ready, wake := l.consult(&in)
	if !ready {
		return cluster.Earliest(wake, found.Wake)
	}
	d := e.core.Decide(in)
	h.w.broken.decides(l, &d, snap)
	l.carryOut(d, snap)
	return cluster.Earliest(wake, cluster.Earliest(d.Wake, found.Wake))
}

// carryOut writes the decision.
func (l *loop) carryOut(d elector.Decision, snap cluster.Snapshot) {
	h := l.h
	switch {
	case d.Elect != nil:
		h.w.log("%s: elects %s in term %d: %s", h.id, d.Elect.Incarnation, d.Elect.Term, d.Elect.Reason)
		l.write("ELECT", snap, d.Elect.Cause == cluster.CauseRepair, h.w.broken.elects(l, h.w.paths.ElectTx(snap, *d.Elect, d.Fence), d.Elect))
	case d.Revoke != nil:
		h.w.log("%s: revokes %s: %s", h.id, d.Revoke.Incarnation, d.Revoke.Reason)
		l.write("REVOKE", snap, false, h.w.broken.revokes(h.w, h.w.paths.RevokeTx(snap, *d.Revoke)))
	case d.Control != nil:
		l.write("CONTROL", snap, false, h.w.paths.ControlTx(snap.Self.Name, snap.Control, *d.Control))
	}
}

// write stands in for electorRole.write of package group.
func (l *loop) write(what string, snap cluster.Snapshot, repair bool, ops []cluster.Op) {
	h, e := l.h, &l.elector
	e.busy = true
	done := false
	finish := func(rep reply) {
		if done {
			return
		}
		done = true
		l.soon(func() {
			e.busy = false
			e.settled = h.clock()
			l.reader.reread()
			switch pause := h.budget.Renew / 4; {
			case rep.err != nil:
				e.retry.Failed(what, &snap, rep.err, false, e.settled, pause)
			case repair:
				e.retry.Repaired(e.settled, pause)
			default:
				e.retry.Succeeded(what)
			}
			l.step(tick)
		})
	}
	h.w.at(h.when(h.clock()+h.timeout), func() {
		h.process(l.s, func() {
			if !done {
				l.s.end("a write got no reply in time")
			}
		})
	})
	l.s.send(&request{ops: ops, done: finish})
}

func (l *loop) policy(snap cluster.Snapshot) *policy.Policy {
	e := &l.elector
	if e.compiled != nil && e.version == snap.Policy.Stat.Version {
		return e.compiled
	}
	e.version = snap.Policy.Stat.Version
	rec := snap.Policy.Record
	if snap.Policy.Err != nil {
		rec = l.h.w.own(0)
	}
	rec.Rules = l.h.w.broken.ranks(rec.Rules)
	p, err := compile(rec)
	if err != nil {
		l.h.w.fail("policy: %v", err)
		return e.compiled
	}
	e.compiled = p
	return p
}
