package request

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/policy"
	"zkelectd/internal/sys/suggest"
)

// cordon plans to keep a node or site from being elected, and with drain to replace a leader there.
func (d *draft) cordon(node, site string, drain bool) (Plan, error) {
	err := d.checkTarget(node, site)
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
	case drain && d.q.Slots != nil:
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
	d.warnOfNoStandby()
	return d.finish("cordon of " + c.Target())
}

// warnOfNoStandby warns if the plan so far leaves nobody who could take over from a leader.
func (d *draft) warnOfNoStandby() {
	before := d.q.Leaders()
	for i, q := range WithControl(d.q, d.next).Leaders() {
		leader := whatif.Run(q).Leader.ID
		if leader == "" || whatif.Succession(q, leader).HasLeader() ||
			!whatif.Succession(before[i], whatif.Run(before[i]).Leader.ID).HasLeader() {
			continue
		}
		if s := q.Snapshot.Slot; s != "" {
			leader += ", which leads slot " + s
		}
		d.addMessage("warning: no other member may lead then: nobody would take over from %s", leader)
	}
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
		d.addMessage("%s, and leadership moves from %s (%s) to %s (%s)", effect, leader, at, out.Leader.ID,
			out.Leader.Node.Record.Site)
	case !d.options.Force:
		return Plan{}, fmt.Errorf("no other member is eligible: %s; --force drains it as soon as another one is",
			d.othersRefused(out, c.Matches))
	default:
		d.addMessage("%s; %s leads until another member is eligible", effect, leader)
	}
	d.warnOfNoStandby()
	return d.finish("drain of " + c.Target())
}

// mentionFailure warns of a successor that has just failed, and takes over only because nobody else is left.
func (d *draft) mentionFailure(id string) {
	s := &d.q.Snapshot
	for _, x := range s.Control.Record.Uncleared(s.Elected.Record.Exclusions) {
		if x.Node == id && !x.Expired && d.q.Wall.Sub(x.Time) < time.Duration(x.For) {
			d.addMessage("nobody is left who has not failed: %s had strike %d: %s", id, x.Strikes, x.Reason)
		}
	}
}

// othersRefused says why the members besides those that must give way are not eligible, and how to end the cordon of
// one.
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
			command := d.inGroup("'zkelectd uncordon %s'", c.Node)
			if c.Site != "" {
				command = d.inGroup("'zkelectd uncordon --site %s'", c.Site)
			}
			return why + fmt.Sprintf("; %s lets %s be elected again", command, e.Member.ID)
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
		return fmt.Errorf("there are too many cordons: uncordon some of the nodes and sites that %s lists first",
			d.inGroup("'zkelectd status'"))
	}
	c.Request = d.newRequest()
	d.next.Cordons = append(d.next.Cordons, c)
	if m := d.next.Move; m != nil && m.Node == c.Node && m.Site == c.Site {
		d.addMessage("ends the move to %s %s", m.Target(), m.Request)
		d.next.End(m.ID, "move to "+m.Target(), "the target was cordoned", d.q.Wall)
		d.next.Move = nil
	}
	return nil
}

// uncordon plans to end the cordons of a node or site, or all cordons.
func (d *draft) uncordon(node, site string, all bool) (Plan, error) {
	d.next.Cordons = slices.DeleteFunc(d.next.Cordons, func(c cluster.Cordon) bool {
		if !all && (c.Node != node || c.Site != site) {
			return false
		}
		d.addMessage("ended: %s", c.Describe())
		d.next.End(c.ID, c.Describe(), "ended by "+d.options.By, d.q.Wall)
		return true
	})
	if len(d.plan.Messages) == 0 {
		return Plan{}, notCordoned(d.q.Snapshot, node+site)
	}
	if all {
		return d.finish("uncordon of all")
	}
	return d.finish("uncordon of " + cluster.Cordon{Node: node, Site: site}.Target())
}

// checkScope returns an error if the request is for one leader and none is named, or for a whole group and a slot is
// named.
func (r Request) checkScope(q whatif.Question) error {
	switch {
	case r.Kind.OfSlot() && q.Slots != nil:
		return fmt.Errorf("the group has several leaders: '%s' needs a slot, 0 to %d", r.Kind, len(q.Slots)-1)
	case !r.Kind.OfSlot() && q.Snapshot.Slot != "":
		return fmt.Errorf("a %s is for the whole group, not for slot %s: name the group without a slot", r.Kind,
			q.Snapshot.Slot)
	}
	return nil
}

// slotsLed returns the slots whose leaders a cordon covers.
func (d *draft) slotsLed(c cluster.Cordon) (slots []string) {
	for i := range d.q.Slots {
		s := d.q.Slots[i].Snapshot
		if node, site := whatif.LeaderOf(s); c.Matches(node, site) {
			slots = append(slots, s.Slot)
		}
	}
	return slots
}

// slotNames returns slots in words.
func slotNames(slots []string) string {
	if len(slots) == 1 {
		return "slot " + slots[0]
	}
	return "slots " + strings.Join(slots, ", ")
}

// WithControl returns the question as it would be with another record of requests, for each of the slots.
func WithControl(q whatif.Question, c cluster.Control) whatif.Question {
	q.Snapshot.Control.Exists, q.Snapshot.Control.Record = true, c.Clone()
	slots := slices.Clone(q.Slots)
	for i := range slots {
		s := &slots[i].Snapshot
		s.Control.Exists, s.Control.Record = true, c.Whole().OfSlot(s.Slot).Clone()
	}
	q.Slots = slots
	return q
}

// finishSlotDrain refuses a drain if no other member can take over a slot, unless it is forced.
func (d *draft) finishSlotDrain(c cluster.Cordon) (Plan, error) {
	effect := fmt.Sprintf("%s will not be elected%s", c.Target(), d.duration())
	led := d.slotsLed(c)
	if len(led) == 0 {
		d.addMessage("%s; it leads no slot", effect)
		return d.finish("drain of " + c.Target())
	}
	d.addMessage("%s; it leads %s", effect, slotNames(led))
	var stuck []string
	q := WithControl(d.q, d.next)
	for i, out := range whatif.RunSlots(q.Slots) {
		s := d.q.Slots[i].Snapshot
		node, site := whatif.LeaderOf(s)
		switch then := out.Leader; {
		case !c.Matches(node, site):
		case out.HasLeader() && !c.Matches(then.ID, then.Node.Record.Site):
			d.addMessage("slot %s moves from %s (%s) to %s (%s)", s.Slot, node, site, then.ID, then.Node.Record.Site)
		default:
			stuck = append(stuck, fmt.Sprintf("slot %s: %s", s.Slot, d.othersRefused(out, c.Matches)))
			d.addMessage("slot %s stays with %s until another member can lead it", s.Slot, node)
		}
	}
	if len(stuck) > 0 && !d.options.Force {
		return Plan{}, errors.New("no other member is eligible: " + strings.Join(stuck, "; ") +
			"; --force drains it as soon as another one is")
	}
	return d.finish("drain of " + c.Target())
}

// pause plans to keep the policy from moving leadership. A hard pause also keeps a leader that fails from being
// replaced.
func (d *draft) pause(hard bool) (Plan, error) {
	if before := d.next.Pause; before != nil {
		d.addMessage("replaces the pause %s", before.Request)
	}
	d.next.Pause = &cluster.Pause{Request: d.newRequest(), Hard: hard}
	if hard {
		d.addMessage("paused hard%s: the leader stays, and nobody replaces it, not even if it fails", d.duration())
		return d.finish("hard pause")
	}
	d.addMessage("paused%s: policy does not replace a healthy leader; a leader that fails is still replaced", d.duration())
	return d.finish("pause")
}

// resume plans to end a pause.
func (d *draft) resume() (Plan, error) {
	p := d.next.Pause
	if p == nil {
		return Plan{}, &NotAffectedError{Reason: "the group is not paused", Done: true}
	}
	d.addMessage("ended: the pause %s", p.Request)
	d.next.End(p.ID, "pause", "ended by "+d.options.By, d.q.Wall)
	d.next.Pause = nil
	return d.finish("resume")
}

// clearStrikes plans to clear the strikes of a node, or of all nodes if node is empty.
func (d *draft) clearStrikes(node string) (Plan, error) {
	var cleared []cluster.ClearedStrikes // terms of different slots cannot be compared
	for _, q := range d.q.Leaders() {
		if d.describeStrikes(q.Snapshot, node) {
			c := cluster.ClearedStrikes{Node: node, Term: q.Snapshot.Elected.Record.Term}
			c.Slot = q.Snapshot.Slot
			cleared = append(cleared, c)
		}
	}
	if len(cleared) == 0 {
		if node == "" {
			return Plan{}, &NotAffectedError{Reason: "no node has strikes", Done: true}
		}
		nodes, _ := members(d.q.Snapshot)
		return Plan{}, &NotAffectedError{Reason: node + " has no strikes" + suggest.DidYouMean(node, nodes),
			Done: knows(d.q.Snapshot, node)}
	}
	if d.next.Full() {
		return Plan{}, fmt.Errorf("there are too many requests: uncordon some of the nodes and sites that "+
			"%s lists first", d.inGroup("'zkelectd status'"))
	}
	for _, c := range cleared {
		slot := c.Slot
		c.Request = d.newRequest()
		c.Slot = slot
		d.next.ClearedStrikes = append(d.next.ClearedStrikes, c)
	}
	if node == "" {
		return d.finish("clear-strikes of all")
	}
	return d.finish("clear-strikes of " + node)
}

// describeStrikes describes the strikes that are cleared, and reports whether there are any.
func (d *draft) describeStrikes(s cluster.Snapshot, node string) bool {
	found := false
	for _, x := range s.Control.Record.Uncleared(s.Elected.Record.Exclusions) {
		if node != "" && x.Node != node {
			continue
		}
		found = true
		where := ""
		if s.Slot != "" {
			where = " in slot " + s.Slot
		}
		d.addMessage("cleared: strike %d of %s%s: %s", x.Strikes, x.Node, where, x.Reason)
	}
	return found
}

// forget plans to drop a node that is no longer a member from the roster, or all lost ones if node is empty.
func (d *draft) forget(node string) (Plan, error) {
	q := d.q
	for _, m := range q.Snapshot.Members {
		if node != "" && m.ID == node {
			return Plan{}, fmt.Errorf("%s is a member: only a node that has left can be forgotten; stop its daemon first", node)
		}
	}
	if err := q.Snapshot.Roster.Err; err != nil {
		return Plan{}, fmt.Errorf("the members that have left are not known: %w", err)
	}
	var left []string
	drop := make(map[string]bool)
	absent, _ := q.Snapshot.Absent()
	for _, n := range absent {
		left = append(left, n.ID)
		if n.ID == node || node == "" && n.Left.How == cluster.LeftLost {
			drop[n.ID] = true
			d.addMessage("forgotten: %s (site %s), %s", n.ID, n.Site, n.Left.How)
		}
	}
	switch {
	case len(drop) == 0 && node == "":
		return Plan{}, &NotAffectedError{Reason: "no member is lost", Done: true}
	case len(drop) == 0:
		return Plan{}, &NotAffectedError{Reason: fmt.Sprintf("no node %q has left the group", node) +
			suggest.DidYouMean(node, left)}
	}
	next := q.Snapshot.Roster.Record.Without(func(n cluster.RosterNode) bool { return drop[n.ID] })
	d.plan.Roster = &next
	what := "forget " + node
	if node == "" {
		what = "forget all lost members"
	}
	r := d.newRequest()
	d.next.End(r.ID, what, "forgotten, requested "+r.String(), q.Wall)
	return d.finish(what)
}
