package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

const restoresSeed = 0x72657374

// restores are what makes the sequence numbers of incarnations come again.
var restores = []faultKind{
	{name: "election deleted", do: func(_ *world, m *member) { m.g.recreate(m.g.known.election) }},
	{name: "persistent znodes copied", do: func(w *world, _ *member) {
		w.outage(w.between(0, 4*time.Second))
		w.copied = true
	}},
	{name: "counter at its end", do: func(w *world, m *member) { w.tree.EndSequence(m.g.known.election) }},
}

// foreignCurrents put something into the place of current that is not the holder's.
var foreignCurrents = []faultKind{
	{name: "current copied", do: func(w *world, m *member) { m.g.replaceCurrent(m.g.check.currentData()) }},
	{name: "current empty", do: func(w *world, m *member) { m.g.replaceCurrent(nil) }},
	{name: "current is junk", do: func(w *world, m *member) { m.g.replaceCurrent([]byte("junk")) }},
	{name: "current of another session", do: func(w *world, m *member) {
		data, id := m.g.check.currentData(), w.tree.Open()
		m.g.tamper(cluster.Op{Kind: cluster.OpDelete, Path: m.g.known.current})
		_, fired, _ := w.tree.Apply(id, []cluster.Op{{Kind: cluster.OpCreate, Path: m.g.known.current, Data: data, Ephemeral: true}})
		m.g.recordsChanged()
		w.fire(fired)
	}},
}

// replaceCurrent replaces current by a persistent znode.
func (g *group) replaceCurrent(data []byte) {
	g.tamper(cluster.Op{Kind: cluster.OpDelete, Path: g.known.current})
	g.tamper(cluster.Op{Kind: cluster.OpCreate, Path: g.known.current, Data: data})
}

// currentData returns the data of current.
func (c *checker) currentData() []byte {
	data, _, _ := c.w.tree.Get(0, c.g.known.current, false)
	return data
}

// planRestores plans restores and foreign currents in some of the worlds.
func (w *world) planRestores() {
	rng := rand.New(rand.NewPCG(w.seed, restoresSeed))
	if w.quiet || !w.broken.restored && (w.broken.name != "" || rng.IntN(4) > 0) || w.broken.timed {
		return
	}
	for at := draw(rng, 4*time.Second); at < w.traits.busy; at += draw(rng, 10*time.Second) {
		kinds := slices.Concat(restores, foreignCurrents)
		g, k := w.groups[rng.IntN(len(w.groups))], &kinds[rng.IntN(len(kinds))]
		m := g.members[rng.IntN(len(g.members))]
		w.at(at, func() {
			if w.calm || w.down {
				return
			}
			w.faults[k.name]++
			w.log("FAULT %s (%s)", k.name, m.name)
			if len(g.check.working) > 0 && rng.IntN(2) == 0 {
				g.isolate()
			}
			k.do(w, m)
		})
	}
}

// recreate deletes a znode and everything under it at once, and creates it again.
func (g *group) recreate(path string) {
	g.remove(path)
	g.tamper(cluster.Op{Kind: cluster.OpCreate, Path: path})
}
