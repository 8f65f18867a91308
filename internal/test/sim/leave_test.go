package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// leave ends a membership while the session lives on: it sends LEAVE until nothing of the instance is left in ZooKeeper. Then
// another instance may begin.
func (in *instance) leave() {
	if in.leaving {
		return
	}
	in.leaving = true
	m := in.m
	in.close()
	began := m.clock()
	in.run(func(c *conn) {
		c.host = true
		if undoing := in.undoing(); in.abandoned && undoing > 0 && !c.sleep(min(undoing, 10*time.Second)) { // the guard runs post_stop
			return
		}
		in.undone = true
		for !in.tryToLeave(c, func() bool { return false }) {
			if m.clock() > began+10*m.timeout && !m.ending() {
				in.s.end("LEAVE is not confirmed")
				return
			}
			if !c.sleep(m.w.between(10*time.Millisecond, 200*time.Millisecond)) {
				return
			}
		}
		in.left()
	})
}

// leaveUnleft makes the instances leave that are over, while the session waits for others before it ends.
func (h *host) leaveUnleft() {
	for _, m := range h.residents {
		if in := m.instance; in != nil && (in.over() || in.abandoned) && !m.runs() && !in.leaving {
			h.w.faults["LEAVE while the session waits for others"]++
			in.leave()
		}
	}
}

// beginEnd makes the instance leave if its end takes too long.
func (in *instance) beginEnd() {
	m := in.m
	if in.ends || len(in.loops) == 0 {
		return
	}
	in.ends = true
	m.w.at(m.when(m.clock()+m.members[0].budget.RevokeTimeout()), func() {
		m.process(in.s, func() {
			if m.instance == in && m.w.broken.name != neverOverdue && slices.ContainsFunc(in.loops, in.unproven) {
				in.leaveOverdue()
			}
		})
	})
}

// leaveOverdue leaves although the work may still run, until the instance leaves in order: the next one may register then.
func (in *instance) leaveOverdue() {
	m := in.m
	m.w.faults["LEAVE before the work is dead"]++
	m.w.log("%s: leaves, its work may still run", m.name)
	in.run(func(c *conn) {
		c.host = true
		for !in.tryToLeave(c, func() bool { return in.leaving }) {
			if !c.sleep(m.w.between(10*time.Millisecond, 200*time.Millisecond)) {
				return
			}
		}
	})
}

// unproven reports whether it is not proven that the work of the loop is dead and undone.
func (in *instance) unproven(l *loop) bool {
	return !l.done && !in.undone
}

// undoing returns how long post_stop of the instance's leaderships takes.
func (in *instance) undoing() (longest time.Duration) {
	for _, m := range in.m.members {
		longest = max(longest, m.undoing)
	}
	return longest
}

// left handles a confirmed LEAVE.
func (in *instance) left() {
	m := in.m
	m.w.log("%s: has left", m.name)
	for _, g := range m.r.groups {
		g.check.left(in.s)
		in.s.final[g.number] = nil
	}
	m.drop()
	m.w.after(m.w.between(0, 300*time.Millisecond), func() { m.process(in.s, m.join) })
}

// tryToLeave reads what is left of the instance and sends LEAVE, unless that is over meanwhile. It returns true if nothing was left, or if it
// is over.
func (in *instance) tryToLeave(c *conn, over func() bool) bool {
	d, err := in.departure(c)
	switch {
	case over():
		return true
	case err != nil:
		return false
	}
	ops, err := in.m.r.groups[0].paths.LeaveTx(in.m.w.broken.leaves(d))
	if err == nil && len(ops) > 0 {
		_, _ = c.Do(context.Background(), in.m.w.broken.departs(in.m.r, ops)...) // read again, whatever the outcome
		return false
	}
	return err == nil
}

// departure reads what is left of the instance, after a sync.
func (in *instance) departure(c *conn) (cluster.Departure, error) {
	ctx, p, id := context.Background(), in.m.r.groups[0].paths, in.m.id
	d := cluster.Departure{ID: id, Session: in.s.id, Self: in.self.Name, Reason: "stopped by the schedule", Requested: in.m.removed, Wall: in.m.w.wall()}
	if _, err := c.Do(ctx, cluster.Op{Kind: cluster.OpCheck, Path: "/", Version: cluster.AnyVersion}); err != nil { // a sync
		return d, err
	}
	var err error
	if d.Slots, err = in.departingSlots(c); err != nil {
		return d, err
	}
	if d.Node, err = get(c, p.Node(id), cluster.ReadStored[cluster.Node]); err != nil {
		return d, err
	}
	names, _, err := c.Children(ctx, p.Election(), false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return d, err
	}
	all, _ := cluster.ParseIncarnations(names)
	for _, i := range all {
		_, stat, err := c.Get(ctx, p.Incarnation(i.Name), false)
		switch {
		case errors.Is(err, cluster.ErrNoNode):
		case err != nil:
			return d, err
		case i.ID == id && stat.Owner == in.s.id:
			d.Incarnations = append(d.Incarnations, i.Name)
		}
	}
	return d, nil
}

// departingSlots returns those that the instance may hold.
func (in *instance) departingSlots(c *conn) ([]cluster.DepartingSlot, error) {
	var all []cluster.DepartingSlot
	for i, g := range in.m.r.groups {
		x := cluster.DepartingSlot{SlotState: cluster.SlotState{Slot: g.paths.Slot}}
		switch {
		case i < len(in.loops) && in.unproven(in.loops[i]) && in.m.w.broken.name != claimsDeath:
			x.Unproven = true
		case i < len(in.loops) && !in.abandoned:
			x.Owed = in.loops[i].machine.Owed()
		case i < len(in.loops) && in.loops[i].lent && in.m.w.broken.name != forgetsAbandoned:
			x.Owed = in.m.members[i].budget.LeaseWait
		case i >= len(in.loops) && g.slotted:
			return all, nil
		}
		var err error
		if g.slotted {
			if x.Elected, err = get(c, g.known.elected, cluster.ReadStored[cluster.Elected]); err != nil {
				return nil, err
			}
		}
		if x.Fence, err = get(c, g.known.leader, cluster.ReadFence); err != nil {
			return nil, err
		}
		if x.Current, err = get(c, g.known.current, cluster.ReadStored[cluster.Current]); err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	return all, nil
}

// get reads a record.
func get[T any](c *conn, path string, read func(string, []byte, cluster.Stat, bool) cluster.Stored[T]) (cluster.Stored[T], error) {
	data, stat, err := c.Get(context.Background(), path, false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return cluster.Stored[T]{}, err
	}
	return read(path, data, stat, err == nil), nil
}
