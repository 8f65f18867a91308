package sim

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
)

// heirRole stands in for heirWriter of package group.
type heirRole struct {
	keeper  elector.HeirKeeper
	busy    bool
	settled time.Duration
}

// updateHeir writes the heir where elected does not name the right one. No election depends on it: whatever becomes of the write, all
// promises hold.
func (l *loop) updateHeir(in elector.Input) time.Duration {
	r, m := &l.elector.heir, l.m
	if !m.w.heirs || r.busy || in.Snapshot.At < r.settled {
		return 0
	}
	next, wake := r.keeper.Update(l.elector.core, in)
	if next == nil || m.w.broken.name == noHeirRefresh {
		return wake
	}
	if m.w.broken.name == "" && !m.w.calm { // else the heir may be checked before it is published again
		m.tamperNowAndThen(m.g.known.heir, `{"v":1,"term":7,"node":"h9","incarnation":"h9-0000000000000001-n_0000000001"}`)
	}
	r.busy = true
	replaced, _ := in.Snapshot.NextLeader()
	ops := m.w.broken.inherits(m.g, m.g.paths.HeirTx(in.Snapshot, *next), in.Snapshot, next)
	l.s.send(&request{from: l.in, ops: ops, done: func(reply) {
		l.soon(func() {
			r.busy, r.settled = false, m.clock()
			r.keeper.Wrote(replaced, next, r.settled)
			l.reader.reread()
			l.step(tick)
		})
	}})
	return 0
}

// inherits breaks HEIR.
func (b breakage) inherits(g *group, ops []cluster.Op, snap cluster.Snapshot, next *cluster.HeirRecord) []cluster.Op {
	elected := snap.Elected.Record
	switch b.name {
	case leaderIsHeir:
		own := *next
		own.Heir = cluster.Heir{Node: elected.Node, Site: elected.Site, Incarnation: elected.Incarnation}
		return g.paths.HeirTx(snap, own)
	case heirInElected:
		elected.Heir = &next.Heir
		ops = slices.Clone(ops)
		ops[len(ops)-1] = cluster.Op{Kind: cluster.OpSet, Path: g.known.elected, Version: snap.Elected.Stat.Version, Data: cluster.Encode(&elected)}
	case uncheckedHeir:
		return ops[len(ops)-1:]
	}
	return ops
}

// reads reports whether an optional znode is read.
func (w *world) reads(path string) bool {
	if slices.ContainsFunc(w.groups, func(g *group) bool { return path == g.known.heir }) {
		return w.heirs
	}
	if slices.ContainsFunc(w.resources, func(r *resource) bool { return path == r.groups[0].paths.RollCall() }) {
		return true
	}
	return w.rosters
}

func (c *checker) readHeir() cluster.Stored[cluster.HeirRecord] {
	return readCached(c.w, c.g.known.heir, cluster.ReadStored[cluster.HeirRecord])
}

// heirWritten checks a HEIR that took effect: it is refused to an elector that has ended or has not seen the newest decision.
func (c *checker) heirWritten(s *session, elected cluster.Stored[cluster.Elected]) {
	rec := c.readHeir().Record
	_, _, err := c.w.tree.Get(s.id, c.g.known.election+"/"+rec.By, false)
	switch {
	case c.w.traits.losing: // versions start again with a new znode
	case err != nil:
		c.g.fail("heir: %s publishes %s after its end", rec.By, rec.Node)
	case rec.Term != elected.Record.Term:
		c.g.fail("heir: %s publishes %s for term %d, elected is term %d", rec.By, rec.Node, rec.Term, elected.Record.Term)
	case rec.Incarnation != "" && rec.Node == elected.Record.Node:
		c.g.fail("heir: %s leads and is its own heir", rec.Node)
	}
}

// published returns the published heir.
func (g *group) published() (cluster.Heir, bool) {
	s := cluster.Snapshot{Elected: g.check.readElected(), Heir: g.check.readHeir()}
	return s.NextLeader()
}

// hasElector reports whether the oldest registration is that of a daemon that runs.
func (g *group) hasElector() bool {
	names, _, _ := g.w.tree.Children(0, g.known.election, false)
	all, _ := cluster.ParseIncarnations(names)
	return len(all) > 0 && slices.ContainsFunc(g.members, func(m *member) bool {
		return m.alive && m.loop != nil && m.loop.self.Name == all[0].Name
	})
}

// checkHeirs checks the published heirs once nothing changes any more.
func (w *world) checkHeirs() {
	if w.traits.losing || w.failsafe != nil {
		return // the elector may not know yet that it is one, or a session has ended just now
	}
	for _, g := range w.groups {
		elected := g.check.readElected()
		if !w.heirs || g.slotted && g.unused() || !elected.Readable() || !g.hasHolder() {
			continue // there is nothing to inherit
		}
		if g.calls != nil {
			continue // the heir is forecast by what members publish
		}
		if !g.hasElector() {
			continue // it was fenced, and its session has not ended yet
		}
		if _, _, err := w.tree.Get(0, g.paths.Incarnation(elected.Record.Incarnation), false); err != nil {
			continue // nobody can be elected, and something that nobody owns is in the place of current
		}
		heir, known := g.published()
		_, _, err := w.tree.Get(0, g.known.election+"/"+heir.Incarnation, false)
		switch {
		case !known:
			g.fail("heir: none is published")
		case heir.Incarnation == "":
		case heir.Node == elected.Record.Node:
			g.fail("heir: %s leads and is its own heir", heir.Node)
		case err != nil && w.now-w.closed > time.Second: // else the elector may not know yet
			g.fail("heir: %s is published, which is not registered", heir.Incarnation)
		}
	}
}

// An heir that was not elected once: the leader was lost under a move to it, which then no longer stands in the way
// of the member for which nobody must be asked.
func TestAnEarlierHeirIsElectedNext(t *testing.T) { heirIsElectedNext(t, 869) }

// The published heir is the one who is elected when the leader is lost, for 500 random groups, policies and requests.
func TestTheHeirIsElectedNext(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		for range 5 {
			heirIsElectedNext(t, rapid.Uint64Range(1, 1<<40).Draw(t, "seed"))
		}
	})
}

// heirIsElectedNext loses the leader of a group, and checks who is elected.
func heirIsElectedNext(t rapid.TB, seed uint64) {
	t.Helper()
	w := newQuietWorld(seed, shape{groups: 1})
	defer w.closeReaders()
	g := w.groups[0]
	heir, known := g.published()
	before, next := w.loseLeader(g)
	if w.failure != "" {
		t.Fatalf("seed %d: %s", seed, w.failure)
	}
	if before.Node == "" || policy.UsesExec(g.inForceRules()) {
		return
	}
	if known && heir.Node == "" && g.check.readElected().Record.RequestedBy == "policy.confirm_after" {
		return // a person had to approve it, and none has answered
	}
	if !known || heir.Node != next {
		t.Fatalf("seed %d: after the loss of %s in term %d, %q was to be elected (published: %v), and %q was: %s", seed, before.Node, before.Term, heir.Node, known, next,
			g.check.readElected().Record.Reason)
	}
}

// inForceRules returns the policy in force, zero if it cannot be read.
func (g *group) inForceRules() cluster.Rules {
	compiled, err := g.inForce()
	if err != nil {
		return cluster.Rules{}
	}
	return compiled.Rules
}

// loseLeader loses the host of a leader for good. It returns the last decision before, and the node that is elected next.
func (w *world) loseLeader(g *group) (before cluster.Elected, next string) {
	before = g.check.readElected().Record
	i := slices.IndexFunc(w.hosts, func(h *host) bool { return h.id == g.leader() })
	if i < 0 {
		return cluster.Elected{}, ""
	}
	lost := w.hosts[i]
	lost.crashForGood()
	until := w.now + 3*lost.timeout + 90*time.Second
	for w.failure == "" && w.now < until {
		w.run(w.now + 10*time.Millisecond)
		if e := g.check.readElected(); e.Readable() && e.Record.Term != before.Term {
			return before, e.Record.Node
		}
	}
	return before, ""
}
