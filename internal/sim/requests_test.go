package sim

import (
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// requestFaults are requests of operators, from any host and several at once.
var requestFaults = []faultKind{
	operatorFault("move", func(w *world, h *host, c *cluster.Control) {
		m := cluster.Move{Request: w.requestWithDuration(c), Node: h.id, Force: w.chance(0.3)}
		if w.chance(0.4) {
			m.Node, m.Site = "", h.site
		}
		w.endMove(c)
		c.Move = &m
	}),
	operatorFault("step-down", func(w *world, h *host, c *cluster.Control) {
		if elected := w.check.readElected(); elected.Readable() {
			w.endMove(c)
			c.Cordons = append(c.Cordons, cluster.Cordon{Request: w.requestWithDuration(c), Node: elected.Record.Node, Drain: true, StepDown: true})
		}
	}),
	operatorFault("drain", func(w *world, h *host, c *cluster.Control) { w.cordon(h, c, true) }),
	operatorFault("cordon", func(w *world, h *host, c *cluster.Control) { w.cordon(h, c, false) }),
	operatorFault("uncordon", func(_ *world, h *host, c *cluster.Control) {
		c.Cordons = slices.DeleteFunc(c.Cordons, func(x cluster.Cordon) bool { return x.Matches(h.id, h.site) })
	}),
	operatorFault("pause", func(w *world, _ *host, c *cluster.Control) {
		c.Pause = &cluster.Pause{Request: w.requestWithDuration(c), Hard: w.chance(0.3)}
	}),
	operatorFault("resume", func(_ *world, _ *host, c *cluster.Control) { c.Pause = nil }),
	operatorFault("reelect", func(w *world, _ *host, c *cluster.Control) {
		o := c.Next(cluster.Request{By: "sim"})
		c.Reelect = &o
	}),
	operatorFault("clear-strikes", func(w *world, h *host, c *cluster.Control) {
		elected := w.check.readElected()
		f := cluster.ClearedStrikes{Request: c.Next(cluster.Request{By: "sim"}), Term: elected.Record.Term}
		if w.chance(0.5) {
			f.Node = h.id
		}
		c.ClearedStrikes = append(c.ClearedStrikes, f)
	}),
	{name: "control deleted", byOperator: true, do: func(w *world, _ *host) {
		w.tamper(cluster.Op{Kind: cluster.OpDelete, Path: w.known.control})
	}},
	{name: "control damaged", byOperator: true, do: func(w *world, _ *host) {
		text := "garbage"
		if w.chance(0.5) {
			text = `{"v":9,"pause":7}`
		}
		w.tamper(cluster.Op{Kind: cluster.OpSet, Path: w.known.control, Data: []byte(text)})
		w.after(w.between(0, 5*time.Second), func() {
			if w.check.readControl().Err != nil {
				w.tamper(cluster.Op{Kind: cluster.OpDelete, Path: w.known.control})
			}
		})
	}},
}

// operatorFault is a fault caused by a command: it reads control, changes it and writes it with the version that it has read. The first write wins.
func operatorFault(name string, change func(w *world, h *host, c *cluster.Control)) faultKind {
	return faultKind{name: "request: " + name, byOperator: true, do: func(w *world, h *host) {
		w.command(w.between(0, 50*time.Millisecond), func(c *cluster.Control) { change(w, h, c) })
	}}
}

func (w *world) command(took time.Duration, change func(c *cluster.Control)) {
	slot := w.check.readControl()
	if w.down || slot.Err != nil { // a command does not overwrite what it cannot read
		return
	}
	next := slot.Record.Clone()
	next.Last = max(next.Last, w.check.readElected().Record.Request) // control may be new, but the decision names an earlier request
	change(&next)
	ops := w.paths.ControlTx("", slot, next)
	w.after(took, func() {
		if !w.down {
			w.writeAsOperator(ops)
		}
	})
}

// requestWithDuration returns a request without end, one that ends soon, or one that ends long after all is over.
func (w *world) requestWithDuration(c *cluster.Control) cluster.Request {
	o := cluster.Request{By: "sim"}
	switch w.rng.IntN(6) {
	case 0, 1, 2:
		o.For = cluster.Duration(w.between(time.Second, shortestRequest))
	case 3:
		o.For = cluster.Duration(time.Hour)
	}
	return c.Next(o)
}

// shortestRequest is how long a request stays in force, at most, if it ends at all before the schedule does.
const shortestRequest = 20 * time.Second

func (w *world) endMove(c *cluster.Control) {
	if c.Move != nil {
		c.End(c.Move.ID, "move to "+c.Move.Target(), "another request", w.wall())
		c.Move = nil
	}
}

func (w *world) cordon(h *host, c *cluster.Control, drain bool) {
	x := cluster.Cordon{Request: w.requestWithDuration(c), Node: h.id, Drain: drain}
	if w.chance(0.25) {
		x.Node, x.Site = "", h.site
	}
	c.Cordons = append(c.Cordons, x)
}

// settleRequests ends what operators have asked for, or leaves it as it is: then everything settles under it.
func (w *world) settleRequests() {
	for _, h := range w.hosts {
		if !w.traits.keepsReports {
			h.report.unhealthy, h.report.ineligible = false, false
			h.publish()
		}
	}
	switch {
	case w.traits.keepsRequests:
	case w.chance(0.5):
		w.tamper(cluster.Op{Kind: cluster.OpDelete, Path: w.known.control})
	default:
		slot := w.check.readControl()
		next := cluster.Control{Last: slot.Record.Last}
		w.writeAsOperator(w.paths.ControlTx("", slot, next))
	}
}
