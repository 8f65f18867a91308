package sim

import (
	"errors"
	"slices"

	"zkelectd/internal/cluster"
)

func (r *reader) read() error {
	for _, step := range []func() error{r.readDecision, r.readLeadership, r.readOrder, r.readMembers} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// fetch asks for a path unless what is known of it stands; await waits for all that was asked.
func (r *reader) fetch(path string, take func(data []byte, stat cluster.Stat, exists bool)) {
	if r.known[path] {
		return
	}
	r.ask(&request{path: path, watch: true}, func(rep reply) {
		take(rep.data, rep.stat, rep.err == nil)
		r.known[path] = true
	})
}

func (r *reader) ask(q *request, take func(reply)) {
	r.waiting++
	q.done = func(rep reply) {
		r.waiting--
		switch {
		case rep.err == nil || errors.Is(rep.err, cluster.ErrNoNode):
			take(rep)
		default:
			r.failed = true
		}
		if r.waiting == 0 {
			r.resume()
		}
	}
	r.s.send(q)
}

func (r *reader) await() error {
	for r.waiting > 0 {
		if !r.yield(struct{}{}) {
			return errStopped
		}
	}
	if r.failed {
		r.failed = false
		return cluster.ErrNotSent
	}
	return nil
}

func (r *reader) inScope() bool {
	return r.snap.Elector || (r.snap.Elected.Readable() && r.snap.Elected.Record.Incarnation == r.self.Name) || r.snap.HoldsCurrent()
}

func (r *reader) readDecision() error {
	inScope := r.inScope() // by what is known so far
	r.fetch(r.w.known.elected, func(data []byte, stat cluster.Stat, exists bool) {
		r.snap.Elected = cached(r.w.cache.elected, r.w.known.elected, data, stat, exists, cluster.ReadSlot[cluster.Elected])
	})
	r.fetch(r.w.known.election+"/"+r.self.Name, func(_ []byte, stat cluster.Stat, exists bool) {
		r.unlisted = !exists || stat.Owner != r.snap.Session
	})
	path := r.w.known.nodes + "/" + r.self.ID
	r.fetch(path, func(data []byte, stat cluster.Stat, exists bool) {
		s := cached(r.w.cache.node, path, data, stat, exists, cluster.ReadSlot[cluster.Node])
		r.unnamed = !s.Readable() || stat.Owner != r.snap.Session
		r.nodes[r.self.ID] = s
	})
	if inScope {
		r.readFence()
	}
	err := r.await()
	r.snap.SelfLost = r.unlisted || r.unnamed
	return err
}

func (r *reader) readFence() {
	r.fetch(r.w.known.leader, func(data []byte, stat cluster.Stat, exists bool) {
		r.snap.Fence = cached(r.w.cache.fence, r.w.known.leader, data, stat, exists, cluster.ReadFence)
	})
}

func (r *reader) readCurrent() {
	r.fetch(r.w.known.current, func(data []byte, stat cluster.Stat, exists bool) {
		r.snap.Current = cached(r.w.cache.current, r.w.known.current, data, stat, exists, cluster.ReadSlot[cluster.Current])
	})
}

func (r *reader) readLeadership() error {
	r.snap.FenceAlive = false
	if !r.inScope() {
		r.snap.Leadership = false
		r.snap.Fence, r.snap.Current = cluster.Slot[cluster.Fence]{}, cluster.Slot[cluster.Current]{}
		delete(r.known, r.w.known.leader)
		delete(r.known, r.w.known.current)
		return nil
	}
	r.readFence()
	r.readCurrent()
	if err := r.await(); err != nil {
		return err
	}
	r.snap.Leadership = true
	f := r.snap.Fence.Record
	if r.snap.Current.Exists || !r.snap.Fence.Readable() || (f.State != cluster.FenceHeld && f.State != cluster.FenceReady) {
		return nil
	}
	return r.readHolder()
}

func (r *reader) readHolder() error {
	delete(r.known, r.w.known.leader)
	r.readFence()
	if err := r.await(); err != nil || !r.snap.Fence.Readable() {
		return err
	}
	if s := r.snap.Fence.Record.State; s != cluster.FenceHeld && s != cluster.FenceReady {
		return nil
	}
	delete(r.known, r.w.known.current)
	r.readCurrent()
	if err := r.await(); err != nil || r.snap.Current.Exists {
		return err
	}
	r.ask(&request{path: r.w.known.election + "/" + r.snap.Fence.Record.Incarnation}, func(rep reply) {
		r.snap.FenceAlive = rep.err == nil
	})
	return r.await()
}

func (r *reader) readOrder() error {
	if !r.snap.Elector {
		if r.predecessor != "" {
			gone := false
			r.fetch(r.w.known.election+"/"+r.predecessor, func(_ []byte, _ cluster.Stat, exists bool) { gone = !exists })
			if err := r.await(); err != nil || !gone {
				return err
			}
			delete(r.known, r.w.known.election+"/"+r.predecessor)
			r.predecessor = ""
		}
		if err := r.list(false); err != nil {
			return err
		}
		if r.snap.SelfLost {
			return nil
		}
		i := slices.IndexFunc(r.names, func(in cluster.Incarnation) bool { return in.Name == r.self.Name })
		switch {
		case i < 0:
			r.snap.SelfLost = true
			return nil
		case i > 0:
			r.predecessor, r.names = r.names[i-1].Name, nil
			return r.readOrder()
		}
		r.snap.Elector = true
		delete(r.known, r.w.known.elected)
		for _, step := range []func() error{r.readDecision, r.readLeadership} {
			if err := step(); err != nil {
				r.snap.Elector = false
				return err
			}
		}
	}
	if r.known[r.w.known.election] {
		return nil
	}
	return r.list(true)
}

func (r *reader) list(watch bool) error {
	r.ask(&request{path: r.w.known.election, children: true, watch: watch}, func(rep reply) {
		r.names, _ = cluster.ParseIncarnations(rep.names)
		if watch {
			r.known[r.w.known.election] = true
		}
	})
	return r.await()
}

func (r *reader) readMembers() error {
	if !r.snap.Elector {
		return nil
	}
	r.fetch(r.w.known.policy, func(data []byte, stat cluster.Stat, exists bool) {
		r.snap.Policy = cached(r.w.cache.policy, r.w.known.policy, data, stat, exists, cluster.ReadSlot[cluster.Policy])
	})
	r.fetch(r.w.known.control, func(data []byte, stat cluster.Stat, exists bool) {
		r.snap.Control = cached(r.w.cache.control, r.w.known.control, data, stat, exists, cluster.ReadSlot[cluster.Control])
	})
	for _, in := range r.names {
		path := r.w.known.nodes + "/" + in.ID
		r.fetch(path, func(data []byte, stat cluster.Stat, exists bool) {
			r.nodes[in.ID] = cached(r.w.cache.node, path, data, stat, exists, cluster.ReadSlot[cluster.Node])
		})
	}
	if err := r.await(); err != nil {
		return err
	}
	list := make([]cluster.Member, 0, len(r.names))
	for i, in := range r.names {
		superseded := slices.ContainsFunc(r.names[i+1:], func(o cluster.Incarnation) bool { return o.ID == in.ID })
		list = append(list, cluster.Member{Incarnation: in, Node: r.nodes[in.ID], Superseded: superseded})
	}
	r.snap.Members = list
	return nil
}
