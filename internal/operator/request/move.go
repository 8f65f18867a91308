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
)

// planMove plans a move now or later, or cancels one. The target of a move without one is the best member by policy that does not
// lead, for [BestMoveFor] unless the request says how long.
func (d *draft) planMove(r Request) (Plan, error) {
	if r.Cancel {
		return d.cancelSchedule()
	}
	if r.Best {
		other, err := newDraft(d.q, d.options)
		if err == nil {
			r.Node, err = other.bestOther()
		}
		if err != nil {
			return Plan{}, err
		}
		d.options.For = cmp.Or(d.options.For, BestMoveFor)
	}
	if !r.At.IsZero() {
		return d.schedule(r.Node, r.Site, r.At)
	}
	return d.move(r.Node, r.Site)
}

// move plans to put a node or a site first.
func (d *draft) move(node, site string) (Plan, error) {
	if err := errors.Join(d.checkTarget(node, site), d.checkNoHardPause()); err != nil {
		return Plan{}, err
	}
	before := d.next.Move
	d.next.AcknowledgeSchedules(d.next.Slot())
	d.mentionSchedule(nil, "stays scheduled")
	m := &cluster.Move{Request: d.newRequest(), Node: node, Site: site, Force: d.options.Force}
	d.next.Move = m
	if r := d.next.Reelect; r != nil {
		d.addMessage("ends the reelection %s", r)
		d.next.End(r.ID, "reelection", "ended by a move", d.q.Wall)
		d.next.Reelect = nil
	}
	out := d.forecast()
	if !m.Matches(out.Leader.ID, out.Leader.Node.Record.Site) {
		return Plan{}, d.moveRefusal(m, out)
	}
	if before != nil {
		d.addMessage("replaces the move to %s %s", before.Target(), before.Request)
	}
	switch leader, at := d.leader(); {
	case m.Matches(leader, at):
		d.addMessage("%s leads already; it stays first%s", leader, d.duration())
	case leader == "":
		d.addMessage("there is no leader; %s takes over and stays first%s", out.Leader.ID, d.duration())
	default:
		d.addMessage("moves leadership from %s (%s) to %s (%s)%s", leader, at, out.Leader.ID, out.Leader.Node.Record.Site, d.duration())
	}
	return d.finish("move to " + m.Target())
}

// bestOther returns the best eligible member by policy that does not lead.
func (d *draft) bestOther() (string, error) {
	leader, _ := d.leader()
	if leader == "" {
		return "", errors.New("there is no leader to replace: name a node or a site")
	}
	out := d.forecast()
	for _, e := range out.Last.Ranking.Entries {
		if e.Eligible() && e.Member.ID != leader {
			return e.Member.ID, nil
		}
	}
	why := d.othersRefused(out, func(id, _ string) bool { return id == leader })
	d.next.Cordons = append(d.next.Cordons, cluster.Cordon{Node: leader, Drain: true})
	if then := d.forecast(); d.q.Snapshot.Slot == "" && then.HasLeader() && then.Leader.ID != leader {
		why += fmt.Sprintf("; %s has %s take over, although it has failed", d.inGroup("'zkelectd drain --node %s'", leader), then.Leader.ID)
	}
	return "", fmt.Errorf("no other member is eligible: %s", why)
}

// moveRefusal returns an error that says why m would not have the wanted outcome.
func (d *draft) moveRefusal(m *cluster.Move, out whatif.Outcome) error {
	why := moveObstacles(out, *m)
	excluded := excludedNode(out, *m)
	m.Force = true
	if forced := d.forecast(); !d.options.Force && m.Matches(forced.Leader.ID, forced.Leader.Node.Record.Site) {
		why += "; --force moves it anyway"
	} else if excluded != "" {
		why += fmt.Sprintf("; run %s first: a forced move does not ignore an exclusion", d.inGroup("'zkelectd clear-strikes %s'", excluded))
	}
	return fmt.Errorf("leadership cannot move to %s: %s", m.Target(), why)
}

// moveObstacles says why the members that m could move leadership to are not eligible, or are held back.
func moveObstacles(out whatif.Outcome, m cluster.Move) string {
	var why []string
	for _, e := range out.Last.Ranking.Entries {
		if m.Matches(e.Member.ID, e.Member.Node.Record.Site) && !e.Eligible() {
			why = append(why, e.Member.ID+": "+e.RefusalReason())
		}
	}
	if len(why) == 0 {
		return strings.TrimSpace(out.Last.Blocked.Reason + " " + out.Last.Note)
	}
	return strings.Join(why, "; ")
}

// excludedNode returns a node that m could move leadership to if it was not excluded, "" for none.
func excludedNode(out whatif.Outcome, m cluster.Move) string {
	for _, e := range out.Last.Ranking.Entries {
		for _, r := range e.Refusals {
			if r.Filter == policy.ExcludedFilter && m.Matches(e.Member.ID, e.Member.Node.Record.Site) {
				return e.Member.ID
			}
		}
	}
	return ""
}

// reelect plans one election by policy alone: without failback, damping and moves.
func (d *draft) reelect() (Plan, error) {
	if err := d.checkNoHardPause(); err != nil {
		return Plan{}, err
	}
	if d.next.Move != nil {
		d.addMessage("ends the move to %s %s", d.next.Move.Target(), d.next.Move.Request)
	}
	r := d.newRequest()
	d.next.Reelect = &r
	leader, at := d.leader()
	switch out := d.forecast(); {
	case !out.HasLeader():
		d.addMessage("%s", out.WhyNoLeader())
	case out.Leader.ID == leader:
		d.addMessage("%s (%s) is the best and stays", leader, at)
	default:
		d.addMessage("%s (%s) takes over", out.Leader.ID, out.Leader.Node.Record.Site)
	}
	return d.finish("reelection")
}

// checkCancel returns an error if a request to cancel a scheduled move says more than that.
func (r Request) checkCancel(named bool) error {
	if r.Kind != KindMove {
		return fmt.Errorf("a %s cannot be canceled", r.Kind)
	}
	if named || !r.At.IsZero() || r.Options.For > 0 || r.Options.Force {
		return errors.New("cancel ends the move that is scheduled: it takes no target, no time and no force")
	}
	return nil
}

// schedule plans a move to a node or a site at a later time. What keeps its target from leading now may be over then, so it is no
// reason to refuse it.
func (d *draft) schedule(node, site string, at time.Time) (Plan, error) {
	q := d.q
	after := at.Sub(q.Wall)
	if err := errors.Join(d.checkFutureTarget(node, site), d.checkTime(at, after), d.checkPauseEnds(after)); err != nil {
		return Plan{}, err
	}
	d.next.AcknowledgeSchedules(d.next.Slot())
	for _, before := range d.scheduled() {
		d.addMessage("replaces: %s", before.Describe(q.Wall))
		d.next.EndSchedule(before, cluster.ScheduleReplaced, "replaced by "+d.options.By, q.Wall)
	}
	m := cluster.ScheduledMove{
		Move: cluster.Move{Request: d.newRequest(), Node: node, Site: site, Force: d.options.Force},
		At:   at.UTC().Truncate(time.Millisecond), After: cluster.Duration(after), Grace: cluster.Duration(cluster.ScheduleGrace),
	}
	m.Slot = d.next.Slot()
	when := cluster.DescribeTime(at, q.Wall)
	due, err := newDraft(q, d.options)
	var now Plan
	if err == nil {
		now, err = due.move(node, site)
	}
	if err != nil {
		d.addMessage("scheduled: leadership moves to %s at %s%s", m.Target(), when, d.duration())
		d.addMessage("it would be dropped if it was due now: %v", err)
	} else {
		d.addMessage("scheduled for %s; as things are now: %s", when, now.Messages[len(now.Messages)-1])
	}
	d.addMessage("it is dropped if the target is not eligible then, if the group is paused then, or if it cannot be carried out within %s; "+
		"%s cancels it", cluster.ScheduleGrace, d.cancelHint())
	d.next.Scheduled = append(slices.Clone(d.next.Scheduled), m)
	return d.finish(fmt.Sprintf("move to %s at %s", m.Target(), at.UTC().Format(time.RFC3339)))
}

// cancelSchedule plans to cancel the move that is scheduled. It also acknowledges those that were dropped.
func (d *draft) cancelSchedule() (Plan, error) {
	q := d.q
	for _, e := range d.next.Unacknowledged(d.next.Slot()) {
		d.addMessage("acknowledged: %s", e.Describe(q.Wall))
	}
	d.next.AcknowledgeSchedules(d.next.Slot())
	for _, m := range d.scheduled() {
		d.addMessage("canceled: %s", m.Describe(q.Wall))
		d.next.EndSchedule(m, cluster.ScheduleCanceled, "canceled by "+d.options.By, q.Wall)
	}
	if len(d.plan.Messages) == 0 {
		return Plan{}, &NotAffectedError{Reason: "no move is scheduled", Done: true}
	}
	return d.finish("cancel of the scheduled move")
}

// scheduled returns the scheduled moves of this leader.
func (d *draft) scheduled() []cluster.ScheduledMove { return d.next.ScheduledIn(d.next.Slot()) }

// cancelHint returns the command that cancels the scheduled move. It names the group, or the slot, if that is known.
func (d *draft) cancelHint() string {
	return cluster.InGroup("'zkelectd move --cancel'", d.q.Options.Group)
}

// inGroup completes a hint that is about the whole group.
func (d *draft) inGroup(hint string, args ...any) string {
	return cluster.InGroup(hint, cluster.GroupOf(d.q.Options.Group), args...)
}

// resumeHint returns the command that ends a pause.
func (d *draft) resumeHint() string { return d.inGroup("'zkelectd resume'") }

// checkFutureTarget returns an error unless the target is a member, or a node that may come back.
func (d *draft) checkFutureTarget(node, site string) error {
	absent, _ := d.q.Snapshot.Absent()
	for _, n := range absent {
		if node != "" && site == "" && n.ID == node {
			return nil
		}
	}
	return d.checkTarget(node, site)
}

// checkTime returns an error for a time that is over or too far away.
func (d *draft) checkTime(at time.Time, after time.Duration) error {
	switch {
	case after <= 0:
		return fmt.Errorf("%s is in the past: it is %s now; leave out the time to move leadership at once", at.Format(time.RFC3339), d.q.Wall.In(at.Location()).Format(time.RFC3339))
	case after > cluster.MaxRequestTime:
		return fmt.Errorf("%s is too far away: a move can be scheduled for at most %s from now", at.Format(time.RFC3339), cluster.MaxRequestTime)
	}
	return nil
}

// checkPauseEnds returns an error if the group will still be paused when a move is due.
func (d *draft) checkPauseEnds(after time.Duration) error {
	p := d.next.Pause
	if p == nil || p.For > 0 && time.Duration(p.Remaining) <= after {
		return nil
	}
	return fmt.Errorf("the group is paused %s: a scheduled move is dropped if the group is paused when it is due; run %s first", p.Request, d.resumeHint())
}

// mentionSchedule adds a message about the scheduled moves, of all slots in a request for a whole group, that matches accepts; nil for all.
func (d *draft) mentionSchedule(matches func(cluster.ScheduledMove) bool, what string) {
	for _, m := range d.next.Scheduled {
		own := d.q.Snapshot.Slot == "" || m.Slot == d.q.Snapshot.Slot
		if own && (matches == nil || matches(m)) {
			d.addMessage("the move to %s scheduled for %s %s", m.Target(), cluster.DescribeTime(m.At, d.q.Wall), what)
		}
	}
}
