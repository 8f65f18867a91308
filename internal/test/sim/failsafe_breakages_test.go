package sim

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
	"zkelectd/internal/transition/failsafe"
)

// The breakages of failsafe mode.
var failsafeBreakages = []breakage{
	{name: ignoresPromises, by: "S1 failsafe", one: 17},
	{name: vetoesBound, by: "S1 failsafe", one: 21},
	{name: shortPromises, by: "S1 failsafe", one: 250},
	{name: freeAfterStart, by: "S1 failsafe", one: 841},
	{name: onePromise, by: "S1 failsafe", one: 2},
	{name: promisesAddUp, by: "S1 failsafe", one: 9},
	{name: blindVeto, by: "S1 S2 failsafe", one: 405},
	{name: noSlack, by: "needless", calmOutage: true, one: 263},
	{name: timeoutEnds, by: "needless", calmOutage: true, one: 4},
	{name: countsSilent, by: "needless", calmOutage: true, passive: true, one: 5},
	{name: neverVetoes, by: "L1", one: 126},
	{name: earlyLimit, by: "S1 failsafe", one: 205},
	{name: forgetsVeto, by: "S1 failsafe", one: 7225},
	{name: forgetsSets, by: "S1 failsafe", one: 333},
	{name: takesBound, by: "S1 failsafe", leases: true, one: 198},
}

// failsafeHunted are those that no schedule has noticed yet: other rules may stand in for what they remove. -sim.hunt searches for them.
var failsafeHunted = []breakage{
	{name: bindsIDs, by: "S1 failsafe"},
	{name: revokeForgets, by: "S1 failsafe"},
}

const (
	ignoresPromises = "ACQUIRE over promises without a right"
	vetoesBound     = "a veto before the own promise has lapsed"
	shortPromises   = "promises that are shorter than the lease and the kill"
	freeAfterStart  = "a start that is not bound by what was promised before"
	onePromise      = "a round in which one promise suffices"
	promisesAddUp   = "promises of several rounds added up"
	bindsIDs        = "promises that bind ids, not incarnations"
	revokeForgets   = "REVOKE that forgets who has promised"
	blindVeto       = "VETO without the check of the fence's version"
	earlyLimit      = "ACQUIRE before the limit is over"
	forgetsVeto     = "a veto that is not remembered"
	forgetsSets     = "a SETM of unknown outcome that is forgotten"
	noSlack         = "promises refused as soon as ZooKeeper answers one member again"
	timeoutEnds     = "a RENEW without a reply that ends the session"
	neverVetoes     = "members that never veto"
	countsSilent    = "a member without an address that must promise"
	unbroken        = "nothing" // for the control: any name makes the same world
)

// begins returns what a daemon knows of its promises when it starts.
func (b breakage) begins(o failsafe.Options) failsafe.Options {
	if b.name == freeAfterStart {
		o.State.Wait = 0
	}
	return o
}

// grants answers a request.
func (b breakage) grants(to *host, p *failsafe.Promises, r failsafe.Request) failsafe.Reply {
	asked := r
	switch b.name {
	case bindsIDs:
		for _, m := range to.members {
			if failsafe.Group(m.g.paths) == r.Group && m.loop != nil {
				asked.Member = m.loop.self.Name
			}
		}
	case noSlack:
		if !p.Outage(to.clock()) {
			p.Suspect()
			return failsafe.Reply{Request: r, Reason: failsafe.ReasonContact}
		}
	}
	rep := p.Grant(to.clock(), asked)
	rep.Request = r
	return rep
}

// vetoes makes a host refuse later promises.
func (b breakage) vetoes(h *host, p *failsafe.Promises, group string, term int64) time.Duration {
	now := h.clock()
	switch b.name {
	case vetoesBound:
		now += time.Hour
	case shortPromises:
		now += h.members[0].budget.LeaseWait / 2
	case forgetsVeto:
		if bound := p.Bound(group); now < bound {
			return bound
		}
		return 0
	}
	return p.Veto(now, group, term)
}

// notesGone reports whether a member refuses promises once it has seen that current is gone.
func (b breakage) notesGone() bool { return b.name != forgetsVeto && b.name != bindsIDs }

// steps makes a step of the machine.
func (b breakage) steps(l *loop, ev transition.Event) []transition.Action {
	now := l.m.clock()
	reply, ok := ev.(transition.RoundReply)
	l.byRound = ok
	if done, ok := ev.(transition.TxDone); ok && b.name == forgetsSets && done.Tx == transition.TxSetMembers && errors.Is(done.Err, cluster.ErrUnknown) {
		done.Err = cluster.ErrNotSent
		return l.machine.Step(now, done)
	}
	if done, ok := ev.(transition.RenewDone); ok && b.name == timeoutEnds && errors.Is(done.Err, cluster.ErrUnknown) {
		return append(l.machine.Step(now, ev), l.machine.Step(now, transition.SessionEnded{Reason: "no reply"})...)
	}
	if !ok || !reply.Reply.OK || b.name != onePromise && b.name != promisesAddUp {
		return l.machine.Step(now, ev)
	}
	var out []transition.Action
	for _, r := range l.round {
		if b.name == onePromise && r.Round == reply.Reply.Request.Round || b.name == promisesAddUp && r.Member == reply.Reply.Request.Member {
			l.byRound = true
			out = append(out, l.machine.Step(now, transition.RoundReply{Reply: failsafe.Reply{Request: r, OK: true}})...)
		}
	}
	return out
}

// unpromised returns the snapshot for the machine.
func (b breakage) unpromised(s cluster.Snapshot) cluster.Snapshot {
	if b.name == countsSilent {
		s.Members = slices.Clone(s.Members)
		for i := range s.Members {
			n := &s.Members[i].Node.Record
			if n.Failsafe != nil && n.Failsafe.Address == "" {
				n.Failsafe = &cluster.FailsafeNode{Key: n.Failsafe.Key, Address: s.Members[i].ID}
			}
		}
	}
	fs := s.Fence.Record.Failsafe
	if fs == nil || s.Current.Exists {
		return s
	}
	switch b.name {
	case ignoresPromises:
		s.Fence.Record.Failsafe = nil
	case earlyLimit:
		early := *fs
		early.Max = min(early.Max, cluster.Duration(time.Millisecond))
		s.Fence.Record.Failsafe = &early
	}
	return s
}

// vetoed returns the operations to send for VETO.
func (b breakage) vetoed(ops []cluster.Op) []cluster.Op {
	if b.name == blindVeto {
		ops[1].Version = cluster.AnyVersion
	}
	return ops
}

// forgetPromises changes the fence that REVOKE writes.
func (b breakage) forgetPromises(g *group, ops []cluster.Op) []cluster.Op {
	for i := range ops {
		if b.name == revokeForgets && ops[i].Path == g.known.leader && ops[i].Data != nil {
			f := cluster.ReadFence(ops[i].Path, ops[i].Data, cluster.Stat{Version: 1}, true).Record
			f.Failsafe = nil
			ops[i].Data = cluster.Encode(&f)
		}
	}
	return ops
}

// Each rule of failsafe mode is removed in turn, which the simulation must detect.
func TestBreakagesInFailsafe(t *testing.T) {
	all := failsafeBreakages
	if *hunt {
		all = failsafeHunted
	}
	for _, b := range all {
		b.control = unbroken
		t.Run(strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			b.find(t, b.one, shape{groups: 1, failsafe: true})
		})
	}
}
