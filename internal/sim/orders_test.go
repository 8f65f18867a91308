package sim

import (
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// orderFaults are what operators ask for, from any host and several at once.
var orderFaults = []faultKind{
	order("move", func(w *world, h *host, c *cluster.Control) {
		m := cluster.Move{Order: w.lasting(c), Node: h.id, Force: w.chance(0.3)}
		if w.chance(0.4) {
			m.Node, m.Site = "", h.site
		}
		w.endMove(c)
		c.Move = &m
	}),
	order("step-down", func(w *world, h *host, c *cluster.Control) {
		if elected := w.check.readElected(); elected.Readable() {
			w.endMove(c)
			c.Cordons = append(c.Cordons, cluster.Cordon{Order: w.lasting(c), Node: elected.Record.Node, Drain: true, StepDown: true})
		}
	}),
	order("drain", func(w *world, h *host, c *cluster.Control) { w.cordon(h, c, true) }),
	order("cordon", func(w *world, h *host, c *cluster.Control) { w.cordon(h, c, false) }),
	order("uncordon", func(_ *world, h *host, c *cluster.Control) {
		c.Cordons = slices.DeleteFunc(c.Cordons, func(x cluster.Cordon) bool { return x.Meets(h.id, h.site) })
	}),
	order("pause", func(w *world, _ *host, c *cluster.Control) {
		c.Pause = &cluster.Pause{Order: w.lasting(c), Hard: w.chance(0.3)}
	}),
	order("resume", func(_ *world, _ *host, c *cluster.Control) { c.Pause = nil }),
	order("reelect", func(w *world, _ *host, c *cluster.Control) {
		o := c.Next(cluster.Order{By: "sim"})
		c.Reelect = &o
	}),
	order("clear-strikes", func(w *world, h *host, c *cluster.Control) {
		elected := w.check.readElected()
		f := cluster.ClearedStrikes{Order: c.Next(cluster.Order{By: "sim"}), Term: elected.Record.Term}
		if w.chance(0.5) {
			f.Node = h.id
		}
		c.ClearedStrikes = append(c.ClearedStrikes, f)
	}),
	{name: "control deleted", order: true, do: func(w *world, _ *host) {
		w.meddle(cluster.Op{Kind: cluster.OpDelete, Path: w.known.control})
	}},
	{name: "control damaged", order: true, do: func(w *world, _ *host) {
		text := "garbage"
		if w.chance(0.5) {
			text = `{"v":9,"pause":7}`
		}
		w.meddle(cluster.Op{Kind: cluster.OpSet, Path: w.known.control, Data: []byte(text)})
		w.after(w.between(0, 5*time.Second), func() {
			if w.check.readControl().Err != nil {
				w.meddle(cluster.Op{Kind: cluster.OpDelete, Path: w.known.control})
			}
		})
	}},
}

// order is a command: it reads control, changes it and writes it with the version that it has read. Whoever was faster wins.
func order(name string, change func(w *world, h *host, c *cluster.Control)) faultKind {
	return faultKind{name: "order: " + name, order: true, do: func(w *world, h *host) {
		w.command(w.between(0, 50*time.Millisecond), func(c *cluster.Control) { change(w, h, c) })
	}}
}

func (w *world) command(took time.Duration, change func(c *cluster.Control)) {
	slot := w.check.readControl()
	if w.down || slot.Err != nil { // a command does not write over what it cannot read
		return
	}
	next := slot.Record.Clone()
	next.Last = max(next.Last, w.check.readElected().Record.Order) // control may be new, the decision tells of an order before
	change(&next)
	ops := w.paths.ControlTx("", slot, next)
	w.after(took, func() {
		if !w.down {
			w.operate(ops)
		}
	})
}

// lasting is an order without end, one that ends soon, or one that ends long after all is over.
func (w *world) lasting(c *cluster.Control) cluster.Order {
	o := cluster.Order{By: "sim"}
	switch w.rng.IntN(6) {
	case 0, 1, 2:
		o.For = cluster.Duration(w.between(time.Second, shortest))
	case 3:
		o.For = cluster.Duration(time.Hour)
	}
	return c.Next(o)
}

// shortest is how long an order holds, at most, if it ends at all before the schedule does.
const shortest = 20 * time.Second

func (w *world) endMove(c *cluster.Control) {
	if c.Move != nil {
		c.End(c.Move.ID, "move to "+c.Move.Target(), "another order", w.wall())
		c.Move = nil
	}
}

func (w *world) cordon(h *host, c *cluster.Control, drain bool) {
	x := cluster.Cordon{Order: w.lasting(c), Node: h.id, Drain: drain}
	if w.chance(0.25) {
		x.Node, x.Site = "", h.site
	}
	c.Cordons = append(c.Cordons, x)
}

// settleOrders ends what operators have asked for, or leaves it as it is: then everything settles under it.
func (w *world) settleOrders() {
	for _, h := range w.hosts {
		if !w.traits.ill {
			h.vitals.unhealthy, h.vitals.ineligible = false, false
			h.publish()
		}
	}
	switch {
	case w.traits.keeps:
	case w.chance(0.5):
		w.meddle(cluster.Op{Kind: cluster.OpDelete, Path: w.known.control})
	default:
		slot := w.check.readControl()
		next := cluster.Control{Last: slot.Record.Last}
		w.operate(w.paths.ControlTx("", slot, next))
	}
}
