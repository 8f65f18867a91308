package request

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
)

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

// Schedule plans a move to a node or a site at a later time. What keeps its target from leading now may be over then, so it is no
// reason to refuse it.
func Schedule(q whatif.Question, o Options, node, site string, at time.Time) (Plan, error) {
	d, err := newDraft(q, o)
	if err != nil {
		return Plan{}, err
	}
	after := at.Sub(q.Wall)
	if err := errors.Join(d.checkFutureTarget(node, site), d.checkTime(at, after), d.checkPauseEnds(after)); err != nil {
		return Plan{}, err
	}
	d.next.AcknowledgeSchedules(d.next.Slot())
	for _, before := range d.scheduled() {
		d.addMessage("replaces: %s", before.Describe(q.Wall))
		d.next.EndSchedule(before, cluster.ScheduleReplaced, "replaced by "+o.By, q.Wall)
	}
	m := cluster.ScheduledMove{
		Move: cluster.Move{Request: d.newRequest(), Node: node, Site: site, Force: o.Force},
		At:   at.UTC().Truncate(time.Millisecond), After: cluster.Duration(after), Grace: cluster.Duration(cluster.ScheduleGrace),
	}
	m.Slot = d.next.Slot()
	when := cluster.DescribeTime(at, q.Wall)
	now, err := Move(q, o, node, site)
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

// CancelSchedule plans to cancel the move that is scheduled. It also acknowledges those that were dropped.
func CancelSchedule(q whatif.Question, o Options) (Plan, error) {
	d, err := newDraft(q, o)
	if err != nil {
		return Plan{}, err
	}
	for _, e := range d.next.Unacknowledged(d.next.Slot()) {
		d.addMessage("acknowledged: %s", e.Describe(q.Wall))
	}
	d.next.AcknowledgeSchedules(d.next.Slot())
	for _, m := range d.scheduled() {
		d.addMessage("canceled: %s", m.Describe(q.Wall))
		d.next.EndSchedule(m, cluster.ScheduleCanceled, "canceled by "+o.By, q.Wall)
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
