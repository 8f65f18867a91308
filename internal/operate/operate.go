// Package operate makes an operator's command into a change of the orders that the elector acts on, or refuses it with
// the reason. It is pure: a function from a snapshot to the next record of control.
package operate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/forecast"
)

// Order is what every command has.
type Order struct {
	// By is user@host, Reason in that person's words.
	By, Reason string
	// For is how long it holds, 0 without end.
	For time.Duration
	// Force gives it although it would be refused.
	Force bool
}

// Given is an order to be written.
type Given struct {
	Control cluster.Control
	// ID is its number, Says what will happen, in words.
	ID   int64
	Says []string
}

// desk is where an order is made out.
type desk struct {
	q     forecast.Question
	order Order
	next  cluster.Control
	given Given
}

func open(q forecast.Question, o Order) (*desk, error) {
	if err := q.Snapshot.Control.Err; err != nil {
		return nil, fmt.Errorf("the orders cannot be changed: %w", err)
	}
	d := &desk{q: q, order: o, next: q.Snapshot.Control.Record.Clone()}
	// Numbers go on where control was deleted: the decision may still name the last one.
	d.next.Last = max(d.next.Last, q.Snapshot.Elected.Record.Order)
	return d, nil
}

// number makes out the order itself.
func (d *desk) number() cluster.Order {
	o := d.next.Next(cluster.Order{By: d.order.By, Reason: d.order.Reason, For: cluster.Duration(d.order.For), Time: d.q.Wall})
	d.given.ID = o.ID
	return o
}

func (d *desk) say(format string, args ...any) {
	d.given.Says = append(d.given.Says, fmt.Sprintf(format, args...))
}

// hand finishes the order; what goes into the record for others who give one at the same time.
func (d *desk) hand(what string) (Given, error) {
	if d.given.ID == 0 {
		d.number()
	}
	d.next.LastOrder = fmt.Sprintf("%s by %s", what, d.order.By)
	d.given.Control = d.next
	return d.given, nil
}

// foresee is what would come of the orders as they are made out.
func (d *desk) foresee() forecast.Outcome {
	q := d.q
	q.Snapshot.Control.Exists, q.Snapshot.Control.Record = true, d.next.Clone()
	return forecast.Run(q)
}

// moving refuses what a hard pause would keep from happening.
func (d *desk) moving() error {
	if p := d.next.Pause; p != nil && p.Hard {
		return fmt.Errorf("the group is paused hard %s: 'zkelectd resume' first", p.Order)
	}
	return nil
}

func (d *desk) lasting() string {
	if d.order.For == 0 {
		return ""
	}
	return fmt.Sprintf(" for %s", d.order.For)
}

// leader is the node that leads or is to.
func (d *desk) leader() (node, site string) {
	s := &d.q.Snapshot
	if s.Current.Readable() {
		return s.Current.Record.Node, s.Current.Record.Site
	}
	if s.Elected.Readable() {
		if _, alive := s.Member(s.Elected.Record.Incarnation); alive {
			return s.Elected.Record.Node, s.Elected.Record.Site
		}
	}
	return "", ""
}

// target checks that somebody is meant.
func (d *desk) target(node, site string) error {
	if (node == "") == (site == "") {
		return errors.New("name a node or a site, one of them")
	}
	var known []string
	for _, m := range d.q.Snapshot.Members {
		name := m.ID
		if site != "" {
			name = m.Node.Record.Site
		}
		if name == node+site {
			return nil
		}
		if !slices.Contains(known, name) {
			known = append(known, name)
		}
	}
	slices.Sort(known)
	kind := "node"
	if site != "" {
		kind = "site"
	}
	return fmt.Errorf("no member has the %s %q; there are %s", kind, node+site, strings.Join(known, ", "))
}

// refused says why a move's target may not lead.
func refused(out forecast.Outcome, m cluster.Move) string {
	var why []string
	for _, e := range out.Last.Ranking.Entries {
		if m.Meets(e.Member.ID, e.Member.Node.Record.Site) && !e.Allowed() {
			why = append(why, e.Member.ID+": "+e.Refused())
		}
	}
	if len(why) == 0 {
		return strings.TrimSpace(out.Last.Holding + " " + out.Last.Note)
	}
	return strings.Join(why, "; ")
}

// Move puts a node or a site first.
func Move(q forecast.Question, o Order, node, site string) (Given, error) {
	d, err := open(q, o)
	if err == nil {
		err = errors.Join(d.target(node, site), d.moving())
	}
	if err != nil {
		return Given{}, err
	}
	before := d.next.Move
	m := &cluster.Move{Order: d.number(), Node: node, Site: site, Force: o.Force}
	d.next.Move = m
	if asked := d.next.Elect; asked != nil {
		d.say("ends the election asked for %s", asked)
		d.next.End(asked.ID, "election", "ended by a move", q.Wall)
		d.next.Elect = nil
	}
	out := d.foresee()
	if !m.Meets(out.Leader.ID, out.Leader.Node.Record.Site) {
		why := refused(out, *m)
		m.Force = true
		if forced := d.foresee(); !o.Force && m.Meets(forced.Leader.ID, forced.Leader.Node.Record.Site) {
			why += "; --force moves it there all the same"
		}
		return Given{}, fmt.Errorf("%s may not lead: %s", m.Target(), why)
	}
	if before != nil {
		d.say("replaces the move to %s %s", before.Target(), before.Order)
	}
	switch leader, at := d.leader(); {
	case m.Meets(leader, at):
		d.say("%s leads already; it stays first%s", leader, d.lasting())
	case leader == "":
		d.say("nobody leads: %s is to%s", out.Leader.ID, d.lasting())
	default:
		d.say("moves leadership from %s (%s) to %s (%s)%s", leader, at, out.Leader.ID, out.Leader.Node.Record.Site, d.lasting())
	}
	return d.hand("move to " + m.Target())
}

// StepDown has the leader give up; it is not chosen for as long as the order holds.
func StepDown(q forecast.Question, o Order) (Given, error) {
	d, err := open(q, o)
	if err == nil {
		err = d.moving()
	}
	if err != nil {
		return Given{}, err
	}
	node, site := d.leader()
	if node == "" {
		return Given{}, errors.New("nobody leads")
	}
	if err := d.shut(cluster.Cordon{Node: node, Drain: true, StepDown: true}); err != nil {
		return Given{}, err
	}
	out := d.foresee()
	if !out.Led() || out.Leader.ID == node {
		return Given{}, fmt.Errorf("nobody else may lead: %s", elector.Refusals(out.Last.Ranking))
	}
	d.say("%s (%s) steps down and is not chosen%s; %s (%s) takes over", node, site, d.lasting(), out.Leader.ID, out.Leader.Node.Record.Site)
	return d.hand("step-down of " + node)
}

// shut adds a cordon, in place of an older one of the same target.
func (d *desk) shut(c cluster.Cordon) error {
	d.next.Cordons = slices.DeleteFunc(d.next.Cordons, func(old cluster.Cordon) bool { return old.Node == c.Node && old.Site == c.Site })
	if d.next.Full() {
		return errors.New("there are too many cordons: 'zkelectd uncordon' some first")
	}
	c.Order = d.number()
	d.next.Cordons = append(d.next.Cordons, c)
	if m := d.next.Move; m != nil && m.Node == c.Node && m.Site == c.Site {
		d.say("ends the move to %s %s", m.Target(), m.Order)
		d.next.End(m.ID, "move to "+m.Target(), "the target was cordoned", d.q.Wall)
		d.next.Move = nil
	}
	return nil
}

// Cordon keeps a node or site from being chosen; drain has a leader there replaced, too.
func Cordon(q forecast.Question, o Order, node, site string, drain bool) (Given, error) {
	d, err := open(q, o)
	if err == nil {
		err = d.target(node, site)
	}
	if err == nil && drain {
		err = d.moving()
	}
	if err != nil {
		return Given{}, err
	}
	c := cluster.Cordon{Node: node, Site: site, Drain: drain}
	if err := d.shut(c); err != nil {
		return Given{}, err
	}
	leader, at := d.leader()
	out := d.foresee()
	switch there := c.Meets(leader, at); {
	case !drain && there:
		d.say("%s is not chosen any more%s; %s, which leads, goes on", c.Target(), d.lasting(), leader)
		return d.hand("cordon of " + c.Target())
	case !drain:
		d.say("%s is not chosen any more%s", c.Target(), d.lasting())
		return d.hand("cordon of " + c.Target())
	case there && out.Led() && !c.Meets(out.Leader.ID, out.Leader.Node.Record.Site):
		d.say("%s is not chosen any more%s, and leadership moves from %s (%s) to %s (%s)", c.Target(), d.lasting(), leader, at,
			out.Leader.ID, out.Leader.Node.Record.Site)
	case there && !o.Force:
		return Given{}, fmt.Errorf("nobody else may lead: %s; --force drains it as soon as somebody may", elector.Refusals(out.Last.Ranking))
	case there:
		d.say("%s is not chosen any more%s; %s leads until somebody else may", c.Target(), d.lasting(), leader)
	default:
		d.say("%s is not chosen any more%s; nobody there leads", c.Target(), d.lasting())
	}
	return d.hand("drain of " + c.Target())
}

// Uncordon lifts the cordons of a node or site, or all.
func Uncordon(q forecast.Question, o Order, node, site string, all bool) (Given, error) {
	d, err := open(q, o)
	if err != nil {
		return Given{}, err
	}
	d.next.Cordons = slices.DeleteFunc(d.next.Cordons, func(c cluster.Cordon) bool {
		if !all && (c.Node != node || c.Site != site) {
			return false
		}
		d.say("lifted: %s", c.Words())
		d.next.End(c.ID, c.Words(), "lifted by "+o.By, q.Wall)
		return true
	})
	if len(d.given.Says) == 0 {
		return Given{}, errors.New("there is no such cordon; 'zkelectd status' lists them")
	}
	if all {
		return d.hand("uncordon of all")
	}
	return d.hand("uncordon of " + cluster.Cordon{Node: node, Site: site}.Target())
}

// Pause keeps policy from moving the leader; hard keeps even a dead one from being replaced.
func Pause(q forecast.Question, o Order, hard bool) (Given, error) {
	d, err := open(q, o)
	if err != nil {
		return Given{}, err
	}
	if before := d.next.Pause; before != nil {
		d.say("replaces the pause %s", before.Order)
	}
	d.next.Pause = &cluster.Pause{Order: d.number(), Hard: hard}
	if hard {
		d.say("paused hard%s: nobody is elected, not even for a leader that dies", d.lasting())
		return d.hand("hard pause")
	}
	d.say("paused%s: policy moves nobody; a leader that dies is still replaced", d.lasting())
	return d.hand("pause")
}

// Resume ends a pause.
func Resume(q forecast.Question, o Order) (Given, error) {
	d, err := open(q, o)
	if err != nil {
		return Given{}, err
	}
	p := d.next.Pause
	if p == nil {
		return Given{}, errors.New("the group is not paused")
	}
	d.say("ended: the pause %s", p.Order)
	d.next.End(p.ID, "pause", "ended by "+o.By, q.Wall)
	d.next.Pause = nil
	return d.hand("resume")
}

// Elect has the election run once by policy alone, without failback, damping and moves.
func Elect(q forecast.Question, o Order) (Given, error) {
	d, err := open(q, o)
	if err == nil {
		err = d.moving()
	}
	if err != nil {
		return Given{}, err
	}
	if d.next.Move != nil {
		d.say("ends the move to %s %s", d.next.Move.Target(), d.next.Move.Order)
	}
	number := d.number()
	d.next.Elect = &number
	leader, at := d.leader()
	switch out := d.foresee(); {
	case !out.Led():
		d.say("nobody may lead: %s", elector.Refusals(out.Last.Ranking))
	case out.Leader.ID == leader:
		d.say("%s (%s) is the best and stays", leader, at)
	default:
		d.say("%s (%s) takes over", out.Leader.ID, out.Leader.Node.Record.Site)
	}
	return d.hand("election")
}

// Forgive lifts the strikes of a node, or of all where node is empty.
func Forgive(q forecast.Question, o Order, node string) (Given, error) {
	d, err := open(q, o)
	if err != nil {
		return Given{}, err
	}
	rec := q.Snapshot.Elected.Record
	for _, x := range rec.Exclusions {
		if node == "" || x.Node == node {
			d.say("lifted: strike %d of %s: %s", x.Strikes, x.Node, x.Reason)
		}
	}
	if len(d.given.Says) == 0 {
		return Given{}, fmt.Errorf("%s has no strikes", orAll(node))
	}
	if d.next.Full() {
		return Given{}, errors.New("there are too many orders: 'zkelectd uncordon' some first")
	}
	d.next.Forgiven = append(d.next.Forgiven, cluster.Forgiven{Order: d.number(), Node: node, Term: rec.Term})
	return d.hand("forgiving of " + orAll(node))
}

func orAll(node string) string {
	if node == "" {
		return "any node"
	}
	return node
}
