package request

import (
	"errors"
	"fmt"
	"slices"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/whatif"
)

// StepDown has the leader give up; it is not chosen for as long as the request holds.
func StepDown(q whatif.Question, o Options) (Plan, error) {
	d, err := newDraft(q, o)
	if err == nil {
		err = d.moving()
	}
	if err != nil {
		return Plan{}, err
	}
	node, site := d.leader()
	if node == "" {
		return Plan{}, errors.New("nobody leads")
	}
	if err := d.cordon(cluster.Cordon{Node: node, Drain: true, StepDown: true}); err != nil {
		return Plan{}, err
	}
	out := d.foresee()
	if !out.Led() || out.Leader.ID == node {
		return Plan{}, fmt.Errorf("no other member is eligible: %s", elector.Refusals(out.Last.Ranking))
	}
	d.say("%s (%s) steps down and is not chosen%s; %s (%s) takes over", node, site, d.lasting(), out.Leader.ID, out.Leader.Node.Record.Site)
	return d.finish("step-down of " + node)
}

// cordon adds a cordon, in place of an older one of the same target.
func (d *draft) cordon(c cluster.Cordon) error {
	d.next.Cordons = slices.DeleteFunc(d.next.Cordons, func(old cluster.Cordon) bool {
		if old.Node != c.Node || old.Site != c.Site || (c.StepDown && !old.StepDown) { // a step-down ends no cordon
			return false
		}
		d.say("replaces: %s", old.Words())
		return true
	})
	if d.next.Full() {
		return errors.New("there are too many cordons: 'zkelectd uncordon' some first")
	}
	c.Request = d.number()
	d.next.Cordons = append(d.next.Cordons, c)
	if m := d.next.Move; m != nil && m.Node == c.Node && m.Site == c.Site {
		d.say("ends the move to %s %s", m.Target(), m.Request)
		d.next.End(m.ID, "move to "+m.Target(), "the target was cordoned", d.q.Wall)
		d.next.Move = nil
	}
	return nil
}

// Cordon keeps a node or site from being chosen; drain has a leader there replaced, too.
func Cordon(q whatif.Question, o Options, node, site string, drain bool) (Plan, error) {
	d, err := newDraft(q, o)
	if err == nil {
		err = d.target(node, site)
	}
	if err == nil && drain {
		err = d.moving()
	}
	if err != nil {
		return Plan{}, err
	}
	c := cluster.Cordon{Node: node, Site: site, Drain: drain}
	if err := d.cordon(c); err != nil {
		return Plan{}, err
	}
	leader, at := d.leader()
	out := d.foresee()
	switch there := c.Matches(leader, at); {
	case !drain && there:
		d.say("%s is not chosen any more%s; %s, which leads, goes on", c.Target(), d.lasting(), leader)
		return d.finish("cordon of " + c.Target())
	case !drain:
		d.say("%s is not chosen any more%s", c.Target(), d.lasting())
		return d.finish("cordon of " + c.Target())
	case there && out.Led() && !c.Matches(out.Leader.ID, out.Leader.Node.Record.Site):
		d.say("%s is not chosen any more%s, and leadership moves from %s (%s) to %s (%s)", c.Target(), d.lasting(), leader, at,
			out.Leader.ID, out.Leader.Node.Record.Site)
	case there && !o.Force:
		return Plan{}, fmt.Errorf("no other member is eligible: %s; --force drains it as soon as one is", elector.Refusals(out.Last.Ranking))
	case there:
		d.say("%s is not chosen any more%s; %s leads until somebody else may", c.Target(), d.lasting(), leader)
	default:
		d.say("%s is not chosen any more%s; nobody there leads", c.Target(), d.lasting())
	}
	return d.finish("drain of " + c.Target())
}

// Uncordon lifts the cordons of a node or site, or all.
func Uncordon(q whatif.Question, o Options, node, site string, all bool) (Plan, error) {
	d, err := newDraft(q, o)
	if err != nil {
		return Plan{}, err
	}
	d.next.Cordons = slices.DeleteFunc(d.next.Cordons, func(c cluster.Cordon) bool {
		if !all && (c.Node != node || c.Site != site) {
			return false
		}
		d.say("lifted: %s", c.Words())
		d.next.End(c.ID, c.Words(), "lifted by "+o.By, q.Wall)
		return true
	})
	if len(d.plan.Messages) == 0 {
		return Plan{}, errors.New("there is no such cordon; 'zkelectd status' lists them")
	}
	if all {
		return d.finish("uncordon of all")
	}
	return d.finish("uncordon of " + cluster.Cordon{Node: node, Site: site}.Target())
}
