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

const take, silence = "TAKE", "SILENCE"

type electorRole struct {
	core     *elector.Elector
	watchdog *watchdog.Watchdog
	compiled *policy.Policy
	version  int32
	busy     bool
	settled  time.Duration
	retry    elector.Retry
	program  elector.Program
	roster   rosterRole
	heir     heirRole
	answered bool                // the program has answered the last time
	kept     []cluster.Exclusion // by a breakage
}

// evaluate stands in for electorRole.evaluate of package group.
func (l *loop) evaluate() time.Duration {
	e, snap := &l.elector, l.snap
	if snap.At == 0 || !snap.Elector || snap.SelfLost || l.s.ended != "" {
		e.watchdog.Follow(snap, l.m.clock())
		return 0
	}
	if l.m.g.slot == 0 {
		l.updateRoster(snap)
	}
	if e.busy || snap.At < e.settled {
		return 0
	}
	wake := l.decide(snap)
	if !e.busy { // else the others wait until this one has read what it writes
		l.in.written(l)
	}
	return wake
}

// decide stands in for electorRole.decide of package group.
func (l *loop) decide(snap cluster.Snapshot) time.Duration {
	e, m, now := &l.elector, l.m, l.m.clock()
	if at := e.retry.Wait(&snap, l.others(), now); at > 0 {
		return at
	}
	if !l.in.mayWrite(l) {
		return 0 // it looks again after that
	}
	if !snap.Policy.Exists && m.g.slot > 0 {
		return 0 // slot 0 publishes it
	}
	if !snap.Policy.Exists {
		rec := m.g.own(1)
		l.write("publishing the policy", snap, false, func() {}, []cluster.Op{{Kind: cluster.OpCreate, Path: m.g.known.policy, Data: cluster.Encode(&rec)}})
		return 0
	}
	snap = m.w.broken.judges(l, snap)
	var others []cluster.SlotState
	if m.r.slotted {
		if l.repairSlots() {
			return 0
		}
		others = l.others()
	}
	found := e.watchdog.Observe(m.w.broken.watches(l, snap), now)
	in := elector.Input{
		Snapshot: snap, Policy: l.policy(snap), Now: now, Wall: m.w.wall(),
		Others: others, Overdue: found.Overdue, Revoke: found.Revoke, Exclusions: found.Exclusions, Silent: found.WithSilent(l.silent), LeaseOver: len(l.silent) > 0,
		Lease: l.silentLease, RollCallSeen: l.call.seen.At(),
	}
	in = m.w.broken.counts(in)
	ready, wake := l.consult(&in)
	if !ready {
		return cluster.Earliest(wake, found.Wake)
	}
	d := e.core.Decide(in)
	l.checkCall(&in, &d)
	if d.CallRoll {
		l.callRoll(in.Policy.Rules.RollCall.Wait(), snap.LeaseAt(in.Lease))
	}
	m.w.broken.decides(l, &d, snap)
	l.alone = d.NoSuccessor
	l.carryOut(d, snap, others)
	var heirWake time.Duration
	if !e.busy {
		heirWake = l.updateHeir(in)
	}
	return cluster.Earliest(wake, d.Wake, found.Wake, heirWake)
}

// others returns the other slots, as far as they have been read.
func (l *loop) others() []cluster.SlotState {
	if !l.m.r.slotted {
		return nil
	}
	return l.in.table(func(other *loop) bool { return other != l })
}

// carryOut writes the decision.
func (l *loop) carryOut(d elector.Decision, snap cluster.Snapshot, others []cluster.SlotState) {
	m := l.m
	switch {
	case d.Elect != nil:
		m.w.log("%s: elects %s in term %d: %s", m.name, d.Elect.Incarnation, d.Elect.Term, d.Elect.Reason)
		e := d.Elect
		m.g.check.others[decision{e.Term, e.By}] = others
		done := func() {
			if e.Incarnation != l.self.Name {
				l.inline = append(l.inline, transition.Replaced{Term: e.Term, Node: e.Node, Reason: e.Reason})
			}
		}
		if !m.w.leases {
			d.Elect.Deputies = nil
		}
		what, ops := "ELECT", m.g.paths.ElectTx(snap, *d.Elect, d.Fence, others...)
		if d.Take {
			what, ops = take, m.w.broken.takes(l, m.g.paths.TakeTx(snap, l.silentLease, *d.Elect, others...))
		}
		l.write(what, snap, d.Elect.Cause == cluster.CauseRepair, done, m.w.broken.elects(l, ops, d.Elect))
	case d.Revoke != nil && d.Take:
		m.w.log("%s: declares %s silent", m.name, d.Revoke.Incarnation)
		l.write(silence, snap, false, func() {}, m.w.broken.silences(l, m.g.paths.SilenceTx(snap, l.silentLease, *d.Revoke)))
	case d.Revoke != nil:
		m.w.log("%s: revokes %s: %s", m.name, d.Revoke.Incarnation, d.Revoke.Reason)
		l.write("REVOKE", snap, false, func() {}, m.w.broken.revokes(m.g, m.g.paths.RevokeTx(snap, *d.Revoke)))
	case d.Control != nil:
		l.write("CONTROL", snap, false, func() {}, m.w.broken.controls(l, m.g.paths.ControlTx(snap.Self.Name, snap.Control, *d.Control)))
	}
}

// write stands in for electorRole.write of package group.
func (l *loop) write(what string, snap cluster.Snapshot, repair bool, applied func(), ops []cluster.Op) {
	m, e := l.m, &l.elector
	if txs := m.g.paths.Split(ops); len(txs) > 1 { // the elector decides again after each of them, as if it had been interrupted
		what, ops, repair, applied = "the first part of "+what, txs[0], false, func() {}
	}
	e.busy = true
	began := m.clock()
	others := l.others()
	finish := l.until(m.clock()+m.timeout, func(rep reply) {
		l.soon(func() {
			e.busy = false
			e.settled = m.clock()
			e.watchdog.Wrote(e.settled - began)
			l.reader.reread()
			if rep.err == nil {
				if what == take || what == silence {
					m.w.faults[what+" applied"]++
				}
				applied()
			}
			switch pause := m.budget.Renew / 4; {
			case rep.err != nil:
				if what == take || what == silence {
					l.deputy.Refused(m.clock())
					m.w.faults[what+" refused"]++
				}
				e.retry.Failed(what, &snap, others, rep.err, false, e.settled, pause)
			case repair:
				e.retry.Repaired(e.settled, pause)
			default:
				e.retry.Succeeded(what)
			}
			l.step(tick)
		})
	})
	l.s.send(&request{from: l.in, ops: ops, done: finish})
}

func (l *loop) policy(snap cluster.Snapshot) *policy.Policy {
	e := &l.elector
	if e.compiled != nil && e.version == snap.Policy.Stat.Version {
		return e.compiled
	}
	e.version = snap.Policy.Stat.Version
	rec := snap.Policy.Record
	if snap.Policy.Err != nil {
		rec = l.m.g.own(0)
	}
	rec.Rules = l.m.w.broken.ranks(rec.Rules)
	p, err := compile(rec)
	if err != nil {
		l.m.g.fail("policy: %v", err)
		return e.compiled
	}
	e.compiled = p
	return p
}
