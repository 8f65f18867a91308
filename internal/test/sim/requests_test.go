package sim

import (
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// requestFaults are requests of operators, from any host and several at once.
var requestFaults = []faultKind{
	operatorFault("move", func(w *world, m *member, c *cluster.Control) {
		move := cluster.Move{Request: m.g.requestWithDuration(c), Node: m.id, Force: w.chance(0.3)}
		if w.chance(0.4) {
			move.Node, move.Site = "", m.site
		}
		m.g.endMove(c)
		c.Move = &move
	}),
	operatorFault("drain", func(w *world, m *member, c *cluster.Control) { m.g.cordon(m, c, true) }),
	operatorFault("cordon", func(w *world, m *member, c *cluster.Control) { m.g.cordon(m, c, false) }),
	operatorFault("uncordon", func(_ *world, m *member, c *cluster.Control) {
		c.Cordons = slices.DeleteFunc(c.Cordons, func(x cluster.Cordon) bool { return x.Matches(m.id, m.site) })
	}),
	operatorFault("pause", func(w *world, m *member, c *cluster.Control) {
		c.Pause = &cluster.Pause{Request: m.g.requestWithDuration(c), Hard: w.chance(0.3)}
	}),
	operatorFault("resume", func(_ *world, m *member, c *cluster.Control) { c.Pause = nil }),
	operatorFault("reelect", func(w *world, m *member, c *cluster.Control) {
		o := c.Next(cluster.Request{By: "sim"})
		c.Reelect = &o
	}),
	operatorFault("clear-strikes", func(w *world, m *member, c *cluster.Control) {
		elected := m.g.check.readElected()
		f := cluster.ClearedStrikes{Request: c.Next(cluster.Request{By: "sim", Slot: m.g.paths.Slot}), Term: elected.Record.Term}
		if w.chance(0.5) {
			f.Node = m.id
		}
		c.ClearedStrikes = append(c.ClearedStrikes, f)
	}),
	{name: "control deleted", byOperator: true, do: func(w *world, m *member) {
		m.g.tamper(cluster.Op{Kind: cluster.OpDelete, Path: m.g.known.control})
	}},
	{name: "control damaged", byOperator: true, do: func(w *world, m *member) {
		text := "garbage"
		if w.chance(0.5) {
			text = `{"v":9,"pause":7}`
		}
		m.g.tamper(cluster.Op{Kind: cluster.OpSet, Path: m.g.known.control, Data: []byte(text)})
		w.after(w.between(0, 5*time.Second), func() {
			if m.g.check.readControl().Err != nil {
				m.g.tamper(cluster.Op{Kind: cluster.OpDelete, Path: m.g.known.control})
			}
		})
	}},
}

// operatorFault is a fault caused by a command: it reads control, changes it and writes it with the version that it has read. The first write wins.
func operatorFault(name string, change func(w *world, m *member, c *cluster.Control)) faultKind {
	return faultKind{name: "request: " + name, byOperator: true, do: func(w *world, m *member) {
		m.g.command(w.between(0, 50*time.Millisecond), func(c *cluster.Control) { change(w, m, c) })
	}}
}

func (g *group) command(took time.Duration, change func(c *cluster.Control)) {
	w := g.w
	read := g.check.readControl()
	if w.down || read.Err != nil { // a command does not overwrite what it cannot read
		return
	}
	next := read.Record.Clone()
	next.Last = max(next.Last, g.check.readElected().Record.Request) // control may be new, but the decision names an earlier request
	change(&next)
	ops := g.paths.ControlTx("", read, next)
	w.after(took, func() {
		if !w.down {
			g.writeAsOperator(ops)
		}
	})
}

// requestWithDuration returns a request without end, one that ends soon, or one that ends long after all is over.
func (g *group) requestWithDuration(c *cluster.Control) cluster.Request {
	w := g.w
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

func (g *group) endMove(c *cluster.Control) {
	w := g.w
	if c.Move != nil {
		c.End(c.Move.ID, "move to "+c.Move.Target(), "another request", w.wall())
		c.Move = nil
	}
}

func (g *group) cordon(m *member, c *cluster.Control, drain bool) {
	w := g.w
	x := cluster.Cordon{Request: g.requestWithDuration(c), Node: m.id, Drain: drain}
	if w.chance(0.25) {
		x.Node, x.Site = "", m.site
	}
	c.Cordons = append(c.Cordons, x)
}

// settleRequests ends what operators have asked for, or leaves it as it is: then everything settles under it.
func (g *group) settleRequests() {
	w := g.w
	for _, m := range g.members {
		if !g.traits.keepsReports {
			m.report.unhealthy, m.report.ineligible = false, false
			m.publish()
		}
	}
	switch {
	case g.traits.keepsRequests:
	case w.chance(0.5):
		g.tamper(cluster.Op{Kind: cluster.OpDelete, Path: g.known.control})
	default:
		read := g.check.readControl()
		next := cluster.Control{Last: read.Record.Last}
		g.writeAsOperator(g.paths.ControlTx("", read, next))
	}
}
