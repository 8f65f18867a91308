package request

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/policy"
)

// Cordon plans to keep a node or site from being elected, and with drain to replace a leader there.
func Cordon(q whatif.Question, o Options, node, site string, drain bool) (Plan, error) {
	d, err := newDraft(q, o)
	if err == nil {
		err = d.checkTarget(node, site)
	}
	if err == nil && drain {
		err = d.checkNoHardPause()
	}
	if err != nil {
		return Plan{}, err
	}
	c := cluster.Cordon{Node: node, Site: site, Drain: drain}
	if err := d.addCordon(c); err != nil {
		return Plan{}, err
	}
	switch {
	case drain && q.Slots != nil:
		return d.finishSlotDrain(c)
	case drain:
		return d.finishDrain(c)
	}
	effect := fmt.Sprintf("%s will not be elected%s", c.Target(), d.duration())
	if leader, at := d.leader(); c.Matches(leader, at) {
		effect += fmt.Sprintf("; %s leads and continues to", leader)
	}
	if led := d.slotsLed(c); len(led) > 0 {
		effect += fmt.Sprintf("; it leads %s and continues to", slotNames(led))
	}
	d.addMessage("%s", effect)
	return d.finish("cordon of " + c.Target())
}

// finishDrain refuses a drain if no other member can take over, unless it is forced.
func (d *draft) finishDrain(c cluster.Cordon) (Plan, error) {
	leader, at := d.leader()
	out := d.forecast()
	effect := fmt.Sprintf("%s will not be elected%s", c.Target(), d.duration())
	switch leads := c.Matches(leader, at); {
	case !leads:
		d.addMessage("%s; leadership does not move", effect)
	case out.HasLeader() && !c.Matches(out.Leader.ID, out.Leader.Node.Record.Site):
		d.mentionFailure(out.Leader.ID)
		d.addMessage("%s, and leadership moves from %s (%s) to %s (%s)", effect, leader, at, out.Leader.ID, out.Leader.Node.Record.Site)
	case !d.options.Force:
		return Plan{}, fmt.Errorf("no other member is eligible: %s; --force drains it as soon as another one is", d.othersRefused(out, c.Matches))
	default:
		d.addMessage("%s; %s leads until another member is eligible", effect, leader)
	}
	return d.finish("drain of " + c.Target())
}

// mentionFailure warns of a successor that has just failed, and takes over only because nobody else is left.
func (d *draft) mentionFailure(id string) {
	for _, x := range d.q.Snapshot.Elected.Record.Exclusions {
		if x.Node == id && !x.Expired && d.q.Wall.Sub(x.Time) < time.Duration(x.For) {
			d.addMessage("nobody is left who has not failed: %s had strike %d: %s", id, x.Strikes, x.Reason)
		}
	}
}

// othersRefused says why the members besides those that must give way are not eligible, and how to end the cordon of one.
func (d *draft) othersRefused(out whatif.Outcome, givesWay func(id, site string) bool) string {
	others := out.Last.Ranking
	others.Entries = slices.DeleteFunc(slices.Clone(others.Entries), func(e policy.Entry) bool {
		return givesWay(e.Member.ID, e.Member.Node.Record.Site)
	})
	if len(others.Entries) == 0 {
		return "there is none"
	}
	why := cmp.Or(others.Refusals(), out.Last.Note, out.Last.Blocked.Reason, out.Last.Newer)
	for _, e := range others.Entries {
		for _, c := range d.q.Snapshot.Control.Record.Cordons {
			if !c.Matches(e.Member.ID, e.Member.Node.Record.Site) {
				continue
			}
			hint := d.inGroup("'zkelectd uncordon %s'", c.Node)
			if c.Site != "" {
				hint = d.inGroup("'zkelectd uncordon --site %s'", c.Site)
			}
			return why + fmt.Sprintf("; %s lets %s be elected again", hint, e.Member.ID)
		}
	}
	return why
}

// addCordon adds a cordon. It replaces an older one of the same target.
func (d *draft) addCordon(c cluster.Cordon) error {
	d.next.Cordons = slices.DeleteFunc(d.next.Cordons, func(old cluster.Cordon) bool {
		if old.Node != c.Node || old.Site != c.Site {
			return false
		}
		d.addMessage("replaces: %s", old.Describe())
		return true
	})
	if d.next.Full() {
		return fmt.Errorf("there are too many cordons: uncordon some of the nodes and sites that %s lists first", d.inGroup("'zkelectd status'"))
	}
	c.Request = d.newRequest()
	d.next.Cordons = append(d.next.Cordons, c)
	d.mentionSchedule(func(m cluster.ScheduledMove) bool { return m.Node == c.Node && m.Site == c.Site && !m.Force },
		"will be dropped if the target is still cordoned then")
	if m := d.next.Move; m != nil && m.Node == c.Node && m.Site == c.Site {
		d.addMessage("ends the move to %s %s", m.Target(), m.Request)
		d.next.End(m.ID, "move to "+m.Target(), "the target was cordoned", d.q.Wall)
		d.next.Move = nil
	}
	return nil
}

// Uncordon plans to end the cordons of a node or site, or all cordons.
func Uncordon(q whatif.Question, o Options, node, site string, all bool) (Plan, error) {
	d, err := newDraft(q, o)
	if err != nil {
		return Plan{}, err
	}
	d.next.Cordons = slices.DeleteFunc(d.next.Cordons, func(c cluster.Cordon) bool {
		if !all && (c.Node != node || c.Site != site) {
			return false
		}
		d.addMessage("ended: %s", c.Describe())
		d.next.End(c.ID, c.Describe(), "ended by "+o.By, q.Wall)
		return true
	})
	if len(d.plan.Messages) == 0 {
		return Plan{}, notCordoned(q.Snapshot, node+site)
	}
	if all {
		return d.finish("uncordon of all")
	}
	return d.finish("uncordon of " + cluster.Cordon{Node: node, Site: site}.Target())
}
