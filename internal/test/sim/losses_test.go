package sim

import (
	"time"

	"zkelectd/internal/cluster"
)

// dataLosses are losses of ZooKeeper's data: it is deleted, or the servers come back without it.
var dataLosses = []faultKind{
	{name: "fence deleted", tampering: true, uniform: true, do: func(w *world, m *member) { m.g.remove(m.g.known.leader) }},
	{name: "fence deleted under a leader cut off", tampering: true, uniform: true, do: func(w *world, m *member) {
		m.g.isolate()
		w.after(w.between(0, 50*time.Millisecond), func() { m.g.remove(m.g.known.leader) })
	}},
	{name: "everything deleted", tampering: true, uniform: true, do: func(w *world, m *member) { m.g.remove(m.g.paths.Root) }},
	{name: "everything deleted under a leader cut off", tampering: true, uniform: true, do: func(w *world, m *member) {
		m.g.isolate()
		w.after(w.between(0, 50*time.Millisecond), func() { m.g.remove(m.g.paths.Root) })
	}},
	{name: "servers back empty", shared: true, tampering: true, uniform: true, do: func(w *world, m *member) {
		if w.down {
			return
		}
		w.outage(w.between(0, 4*time.Second))
		w.emptied = true
	}},
}

// remove deletes a znode and everything under it at once.
func (g *group) remove(path string) {
	w := g.w
	if w.down {
		return
	}
	var ops []cluster.Op
	var walk func(path string)
	walk = func(path string) {
		names, _, err := w.tree.Children(0, path, false)
		if err != nil {
			return
		}
		for _, name := range names {
			walk(path + "/" + name)
		}
		ops = append(ops, cluster.Op{Kind: cluster.OpDelete, Path: path, Version: cluster.AnyVersion})
	}
	walk(path)
	g.writeAsOperator(ops)
	if path == g.paths.Root {
		g.wiped()
	}
}

// wiped tells the checkers that everything was deleted.
func (r *resource) wiped() {
	for _, g := range r.groups {
		g.check.wiped()
	}
}

// isolate cuts the working host off for long enough that another one takes over.
func (g *group) isolate() {
	w := g.w
	if len(g.check.working) == 0 {
		return
	}
	m := g.check.working[0]
	m.stubborn = w.chance(0.5)
	m.disturb([]disturbance{hangs, pauses, isCut}[w.rng.IntN(3)], 2*m.timeout)
}

// lose makes the servers lose their data. Clients with a session are refused from then on, because they have seen newer data.
func (w *world) lose() {
	w.log("the servers have lost their data; copied: %t", w.copied)
	emptied := w.emptied || !w.copied
	if emptied {
		w.tree.Lose()
	} else {
		w.tree.Copy()
	}
	w.cache = make(cache)
	w.emptied, w.copied = false, false
	w.era++
	for _, g := range w.groups {
		g.check.recordsChanged()
		if emptied {
			g.check.wiped()
		}
	}
}

// refused handles a client that has seen newer data than the servers: they close its connections until it gives the session
// up, when every lease is over.
func (s *session) refused() {
	if s.refusedSince == 0 {
		s.refusedSince = s.w.now
	}
	if s.w.now-s.refusedSince > s.T {
		s.end("the servers have lost the session")
		return
	}
	s.reconnect()
}

// wiped forgets records that are gone.
func (c *checker) wiped() {
	clear(c.decisions)
	clear(c.others)
	clear(c.deciding)
	clear(c.founded)
	clear(c.held)
	c.acquired, c.elected, c.fenced = 0, 0, 0
	c.control = 0
}
