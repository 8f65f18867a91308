// Package request makes an operator's command into a change of the requests that the elector acts on, or refuses it with
// the reason. It is pure: a function from a snapshot to the next record of control.
package request

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/whatif"
)

// Options is what every command has.
type Options struct {
	// By is user@host, Reason in that person's words.
	By, Reason string
	// For is how long it holds, 0 without end.
	For time.Duration
	// Force gives it although it would be refused.
	Force bool
}

// Plan is a request to be written.
type Plan struct {
	Control cluster.Control
	// ID is its number, Messages what will happen, in words.
	ID       int64
	Messages []string
}

// draft is a request that is being made out.
type draft struct {
	q       whatif.Question
	options Options
	next    cluster.Control
	plan    Plan
}

func newDraft(q whatif.Question, o Options) (*draft, error) {
	if control := q.Snapshot.Control; control.Newer() != nil {
		return nil, fmt.Errorf("the requests cannot be changed: %w", control.Err)
	} else if control.Err != nil {
		return nil, fmt.Errorf("the requests cannot be changed: %w; 'zkelectd repair control' empties it", control.Err)
	}
	d := &draft{q: q, options: o, next: q.Snapshot.Control.Record.Clone()}
	d.next.Continue(q.Snapshot.Elected.Record.Request)
	if err := d.next.Exhausted(); err != nil {
		return nil, fmt.Errorf("the requests cannot be changed: %w; 'zkelectd repair control' empties them", err)
	}
	return d, nil
}

// number makes out the request itself.
func (d *draft) number() cluster.Request {
	o := d.next.Next(cluster.Request{By: d.options.By, Reason: d.options.Reason, For: cluster.Duration(d.options.For), Time: d.q.Wall})
	d.plan.ID = o.ID
	return o
}

func (d *draft) say(format string, args ...any) {
	d.plan.Messages = append(d.plan.Messages, fmt.Sprintf(format, args...))
}

// finish completes the request; what goes into the record for others who give one at the same time.
func (d *draft) finish(what string) (Plan, error) {
	adds := d.plan.ID != 0
	if !adds {
		d.number()
	}
	d.next.LastRequest = fmt.Sprintf("%s by %s", what, d.options.By)
	if adds && len(cluster.Encode(&d.next)) > maxControl {
		return Plan{}, errors.New("there are too many requests with long reasons: 'zkelectd uncordon' some first")
	}
	d.plan.Control = d.next
	return d.plan, nil
}

// foresee is what would come of the requests as they are made out.
func (d *draft) foresee() whatif.Outcome {
	q := d.q
	q.Snapshot.Control.Exists, q.Snapshot.Control.Record = true, d.next.Clone()
	return whatif.Run(q)
}

// moving refuses what a hard pause would keep from happening.
func (d *draft) moving() error {
	if p := d.next.Pause; p != nil && p.Hard {
		return fmt.Errorf("the group is paused hard %s: 'zkelectd resume' first", p.Request)
	}
	return nil
}

func (d *draft) lasting() string {
	if d.options.For == 0 {
		return ""
	}
	return fmt.Sprintf(" for %s", d.options.For)
}

// leader is the node that leads or is to.
func (d *draft) leader() (node, site string) {
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
func (d *draft) target(node, site string) error {
	if (node == "") == (site == "") {
		return errNamed
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
func refused(out whatif.Outcome, m cluster.Move) string {
	var why []string
	for _, e := range out.Last.Ranking.Entries {
		if m.Matches(e.Member.ID, e.Member.Node.Record.Site) && !e.Allowed() {
			why = append(why, e.Member.ID+": "+e.RefusalReason())
		}
	}
	if len(why) == 0 {
		return strings.TrimSpace(out.Last.Blocked + " " + out.Last.Note)
	}
	return strings.Join(why, "; ")
}

// Move puts a node or a site first.
func Move(q whatif.Question, o Options, node, site string) (Plan, error) {
	d, err := newDraft(q, o)
	if err == nil {
		err = errors.Join(d.target(node, site), d.moving())
	}
	if err != nil {
		return Plan{}, err
	}
	before := d.next.Move
	m := &cluster.Move{Request: d.number(), Node: node, Site: site, Force: o.Force}
	d.next.Move = m
	if asked := d.next.Reelect; asked != nil {
		d.say("ends the election asked for %s", asked)
		d.next.End(asked.ID, "reelection", "ended by a move", q.Wall)
		d.next.Reelect = nil
	}
	out := d.foresee()
	if !m.Matches(out.Leader.ID, out.Leader.Node.Record.Site) {
		why := refused(out, *m)
		m.Force = true
		if forced := d.foresee(); !o.Force && m.Matches(forced.Leader.ID, forced.Leader.Node.Record.Site) {
			why += "; --force moves it there all the same"
		}
		return Plan{}, fmt.Errorf("%s may not lead: %s", m.Target(), why)
	}
	if before != nil {
		d.say("replaces the move to %s %s", before.Target(), before.Request)
	}
	switch leader, at := d.leader(); {
	case m.Matches(leader, at):
		d.say("%s leads already; it stays first%s", leader, d.lasting())
	case leader == "":
		d.say("nobody leads: %s is to%s", out.Leader.ID, d.lasting())
	default:
		d.say("moves leadership from %s (%s) to %s (%s)%s", leader, at, out.Leader.ID, out.Leader.Node.Record.Site, d.lasting())
	}
	return d.finish("move to " + m.Target())
}
