package sim

import (
	"errors"
	"time"

	"zkelectd/internal/cluster"
)

// losses are losses of ZooKeeper's data: it is deleted, or the servers come back without it.
var losses = []faultKind{
	{name: "fence deleted", tampering: true, uniform: true, do: func(w *world, _ *host) { w.remove(w.known.leader) }},
	{name: "fence deleted under a leader cut off", tampering: true, uniform: true, do: func(w *world, _ *host) {
		w.isolate()
		w.after(w.between(0, 50*time.Millisecond), func() { w.remove(w.known.leader) })
	}},
	{name: "everything deleted", tampering: true, uniform: true, do: func(w *world, _ *host) { w.remove(w.paths.Root) }},
	{name: "everything deleted under a leader cut off", tampering: true, uniform: true, do: func(w *world, _ *host) {
		w.isolate()
		w.after(w.between(0, 50*time.Millisecond), func() { w.remove(w.paths.Root) })
	}},
	{name: "servers back empty", tampering: true, uniform: true, do: func(w *world, _ *host) {
		if w.down {
			return
		}
		w.outage(w.between(0, 4*time.Second))
		w.emptied = true
	}},
}

// remove deletes a znode and everything under it at once.
func (w *world) remove(path string) {
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
	w.writeAsOperator(ops)
	if path == w.paths.Root {
		w.check.wiped()
	}
}

// isolate cuts the working host off for long enough that another one takes over.
func (w *world) isolate() {
	if len(w.check.working) == 0 {
		return
	}
	h := w.check.working[0]
	h.stubborn = w.chance(0.5)
	switch w.rng.IntN(3) {
	case 0:
		h.hang(w.between(h.timeout/2, 2*h.timeout))
	case 1:
		h.pause(w.between(h.timeout/2, 2*h.timeout))
	default:
		h.cut(w.between(h.timeout/2, 2*h.timeout), h.timeout*2/3)
	}
}

// lose makes the servers lose their data. Clients with a session are refused from then on, because they have seen newer data.
func (w *world) lose() {
	w.log("the servers are empty")
	w.tree.Lose()
	w.cache = newCaches()
	w.emptied = false
	w.era++
	w.check.recordsChanged()
	w.check.wiped()
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

// prepare creates the persistent znodes, as zkstore.EnsureTree does, and then registers.
func (h *host) prepare(s *session, paths []string) {
	if len(paths) == 0 {
		h.try(s)
		return
	}
	s.send(&request{ops: []cluster.Op{{Kind: cluster.OpCreate, Path: paths[0], Data: []byte{}}}, done: func(rep reply) {
		if rep.err != nil && !errors.Is(rep.err, cluster.ErrNodeExists) {
			s.end("not prepared")
			return
		}
		h.prepare(s, paths[1:])
	}})
}

// wiped forgets names that may be reused.
func (c *checker) wiped() {
	clear(c.decisions)
	clear(c.deciding)
	clear(c.founded)
	clear(c.held)
	c.acquired, c.elected, c.fenced = 0, 0, 0
	c.control = 0
}
