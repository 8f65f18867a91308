package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// silenceSeed makes the random numbers of this file independent of the others: which worlds have silent hosts changes no other world.
const silenceSeed = 0x73696c656e63

// silenceFaults are what goes wrong about leases, deputies and TAKE. The rng is that of these faults.
var silenceFaults = []struct {
	name string
	do   func(g *group, rng *rand.Rand)
}{
	{"leader falls silent", func(g *group, rng *rand.Rand) { g.fallSilent(rng, g.host(g.holder())) }},
	{"leader falls silent, deputies disturbed", func(g *group, rng *rand.Rand) {
		g.disturbDeputies(rng)
		g.fallSilent(rng, g.host(g.holder()))
	}},
	{"leader falls silent while deputies read late", func(g *group, rng *rand.Rand) {
		for _, h := range append(g.deputies(), g.elector()) {
			if h != nil {
				h.readsLate = g.w.now + h.timeout/2
			}
		}
		g.w.after(draw(rng, g.members[0].timeout/2), func() {
			if !g.w.calm {
				g.fallSilent(rng, g.host(g.holder()))
			}
		})
	}},
	{"leader and elector fall silent", func(g *group, rng *rand.Rand) { g.fallSilent(rng, g.host(g.holder()), g.elector()) }},
	{"site falls silent", func(g *group, rng *rand.Rand) {
		if leader := g.host(g.holder()); leader != nil {
			g.fallSilent(rng, slices.DeleteFunc(slices.Clone(g.w.hosts), func(h *host) bool { return h.site != leader.site })...)
		}
	}},
	{"leader falls silent as soon as it has acquired", func(g *group, _ *rand.Rand) { g.silentNext = true }},
	{"leader's session closed, its successor falls silent", func(g *group, _ *rand.Rand) {
		for _, m := range g.check.working {
			m.slowest = true
		}
		g.closeLeaderSession()
		g.silentNext = true
	}},
	{"reply to RENEW lost, then leader falls silent", func(g *group, _ *rand.Rand) {
		if h := g.host(g.holder()); h != nil {
			h.silencing = afterRenewal
		}
	}},
	{"RENEW refused for one group, then leader falls silent", func(g *group, rng *rand.Rand) { g.refuseRenewal(rng) }},
	{"leader replaced unnoticed by the elector", func(g *group, rng *rand.Rand) { g.replaceUnnoticed(rng) }},
	{"deputies disturbed", func(g *group, rng *rand.Rand) { g.disturbDeputies(rng) }},
	{"server of a deputy without quorum", func(g *group, rng *rand.Rand) {
		if hosts := g.deputies(); len(hosts) > 0 {
			h := hosts[rng.IntN(len(hosts))]
			h.loseQuorum(h.timeout/2 + draw(rng, 2*h.timeout))
		}
	}},
	{"servers down for less than a lease", func(g *group, rng *rand.Rand) { g.w.outage(draw(rng, g.members[0].budget.Lease)) }},
	{"servers down for more than a lease", func(g *group, rng *rand.Rand) {
		g.w.outage(g.members[0].budget.Lease + draw(rng, 2*g.members[0].timeout))
	}},
	{"lease znode deleted", func(g *group, _ *rand.Rand) {
		g.tamperWithLease(func(znode string) []cluster.Op { return []cluster.Op{{Kind: cluster.OpDelete, Path: znode}} })
	}},
	{"lease znode created by a stranger", func(g *group, rng *rand.Rand) {
		ephemeral, sets := rng.IntN(2) == 0, rng.IntN(4)
		g.tamperWithLease(func(znode string) []cluster.Op {
			ops := []cluster.Op{{Kind: cluster.OpDelete, Path: znode}, {Kind: cluster.OpCreate, Path: znode, Ephemeral: ephemeral}}
			for range sets {
				ops = append(ops, cluster.Op{Kind: cluster.OpSet, Path: znode})
			}
			return ops
		})
	}},
	{"lease znode set by a stranger", func(g *group, _ *rand.Rand) {
		g.tamperWithLease(func(znode string) []cluster.Op { return []cluster.Op{{Kind: cluster.OpSet, Path: znode}} })
	}},
}

// planSilence plans these faults in some of the worlds whose hosts have lease znodes.
func (w *world) planSilence() {
	rng := rand.New(rand.NewPCG(w.seed, silenceSeed))
	if !w.leases || w.quiet || !w.broken.leases && rng.IntN(3) == 0 {
		return
	}
	gap := time.Second + draw(rng, 10*time.Second)
	favorite := rng.IntN(2 * len(silenceFaults)) // if there is one
	for at := draw(rng, 2*gap); at < w.traits.busy; at += draw(rng, 2*gap) {
		kind := rng.IntN(len(silenceFaults))
		if favorite < len(silenceFaults) && rng.IntN(2) == 0 {
			kind = favorite
		}
		g, k := w.groups[rng.IntN(len(w.groups))], &silenceFaults[kind]
		w.at(at, func() {
			if w.calm || w.down {
				return
			}
			w.faults[k.name]++
			w.log("FAULT %s (%s)", k.name, g.paths.Root)
			k.do(g, rng)
		})
	}
}

// holder returns the node that holds leadership; empty if none does.
func (g *group) holder() string {
	if len(g.check.working) > 0 {
		return g.check.working[0].id
	}
	return g.check.readCurrent().Record.Node
}

// host returns the host of a node; nil if there is none.
func (g *group) host(id string) *host {
	for _, h := range g.w.hosts {
		if h.id == id {
			return h
		}
	}
	return nil
}

// elector returns the host of the elector; nil if it does not run.
func (g *group) elector() *host {
	names, _, _ := g.w.tree.Children(0, g.known.election, false)
	all, _ := cluster.ParseIncarnations(names)
	if len(all) == 0 {
		return nil
	}
	return g.host(all[0].ID)
}

// deputies returns the hosts that watch the leader's lease.
func (g *group) deputies() []*host {
	s := cluster.Snapshot{Elected: g.check.readElected(), Heir: g.check.readHeir()}
	var hosts []*host
	for _, id := range s.Deputies() {
		if h := g.host(id); h != nil {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// fallSilent makes hosts silent, all in the same way. But for those that are lost, their work goes on to the last moment that is allowed.
func (g *group) fallSilent(rng *rand.Rand, hosts ...*host) {
	kind, lasts := rng.IntN(5), time.Duration(0)
	for i, h := range hosts {
		if h == nil || slices.Contains(hosts[:i], h) {
			continue
		}
		if lasts == 0 {
			lasts = h.timeout/2 + draw(rng, 3*h.timeout)
		}
		h.fallSilent(kind, lasts)
	}
}

// fallSilent makes the host silent for a while.
func (h *host) fallSilent(kind int, lasts time.Duration) {
	h.w.log("%s falls silent (%d) for %s", h.id, kind, lasts)
	if kind == 0 {
		h.crash(false)
		return
	}
	for _, m := range h.members {
		m.slowest = m.work != nil
	}
	switch kind {
	case 1: // its server does not answer
		h.hang(lasts)
	case 2: // it goes on, but is cut off
		h.cut(lasts, h.timeout*2/3)
	default: // and its daemon does not even begin to stop the work
		h.cut(lasts, h.timeout*2/3)
		h.pause(lasts)
	}
}

// disturbDeputies disturbs some of the hosts that watch a leader's lease, about when they may take over if the leader falls silent now.
func (g *group) disturbDeputies(rng *rand.Rand) {
	w := g.w
	for _, h := range g.deputies() {
		kind, wait := rng.IntN(8), h.members[g.number].budget.LeaseWait
		at, lasts := wait-h.timeout/4+draw(rng, h.timeout/2), draw(rng, h.timeout)
		if rng.IntN(3) == 0 {
			at = draw(rng, wait)
		}
		w.after(at, func() {
			if w.calm {
				return
			}
			w.log("FAULT deputy %s disturbed (%d) for %s", h.id, kind, lasts)
			switch kind {
			case 0:
				h.crash(false)
			case 1:
				h.pause(lasts)
			case 2:
				h.cut(lasts, h.timeout*2/3)
			case 3:
				h.hang(lasts)
			case 4:
				h.reset()
			case 5:
				h.loseQuorum(lasts)
			case 6:
				h.starve(w.now + lasts)
			default:
				h.members[g.number].loop.hang(lasts)
			}
		})
	}
}

// acquiredBy makes a holder fall silent that has just acquired, if that was planned.
func (g *group) acquiredBy(h *host) {
	w := g.w
	if !g.silentNext || w.calm {
		return
	}
	g.silentNext = false
	w.after(w.between(0, h.timeout/4), func() {
		if !w.calm {
			h.fallSilent(w.rng.IntN(5), w.between(h.timeout, 3*h.timeout))
		}
	})
}

// silencing says when a host will fall silent.
type silencing int

const (
	notPlanned    silencing = iota
	afterRenewal            // it loses the connection with the next RENEW under way, and then
	afterReadBack           // falls silent as soon as it has read back what has become of it
)

// renewing handles that a host has sent a RENEW.
func (h *host) renewing() {
	if h.silencing == afterRenewal && !h.w.calm {
		h.silencing = afterReadBack
		h.w.after(h.w.between(0, 2*h.w.traits.latency[h.number]), h.reset)
	}
}

// hasReadBack handles that a host has read its lease znode.
func (h *host) hasReadBack() {
	if h.silencing == afterReadBack && !h.w.calm {
		h.silencing = notPlanned
		lasts := h.timeout + h.w.between(0, h.timeout)
		h.w.after(0, func() { h.fallSilent(3, lasts) })
	}
}

// refuseRenewal has the RENEW of one of several groups that a host leads refused, and then makes the host fall silent.
func (g *group) refuseRenewal(rng *rand.Rand) {
	h := g.host(g.holder())
	if h == nil || h.session == nil {
		return
	}
	for _, m := range h.members {
		if m.g == g || m.work == nil || m.loop == nil {
			continue
		}
		m.loop.hang(2 * h.timeout) // or it would withdraw its request
		m.g.tamper(cluster.Op{Kind: cluster.OpDelete, Path: m.g.known.current})
		g.w.after(draw(rng, 2*m.budget.Renew), func() {
			if !g.w.calm {
				h.fallSilent(3, h.timeout+h.timeout/2)
			}
		})
		return
	}
}

// replaceUnnoticed has the leader replaced by a better member, while the elector's watches are lost.
func (g *group) replaceUnnoticed(rng *rand.Rand) {
	leader, elector := g.host(g.holder()), g.elector()
	if leader == nil || elector == nil {
		return
	}
	for _, m := range g.members {
		if m.prio = 5; m.host == leader {
			m.prio = -1
		}
		m.publish()
	}
	g.w.after(draw(rng, 50*time.Millisecond), func() {
		g.w.traits.losing = true
		elector.watchesLost = g.w.now + 2*elector.timeout
	})
}

// tamperWithLease writes the lease znode that the fence names, as somebody who may write everything could.
func (g *group) tamperWithLease(change func(znode string) []cluster.Op) {
	znode := g.check.readFence().Record.LeaseZnode
	if !isLease(znode) || g.w.down {
		return
	}
	w := g.w
	id := w.tree.Open()
	ops := change(znode)
	for i := range ops {
		ops[i].Version = cluster.AnyVersion
	}
	_, fired, err := w.tree.Apply(id, ops)
	w.log("stranger: %s %v", describe(ops), err)
	w.fire(fired)
	w.after(w.between(0, 20*time.Second), func() { w.fire(w.tree.End(id)) })
}
