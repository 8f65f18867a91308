package request

import (
	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
)

// Pause plans to keep the policy from moving leadership. A hard pause also keeps a leader that fails from being replaced.
func Pause(q whatif.Question, o Options, hard bool) (Plan, error) {
	d, err := newDraft(q, o)
	if err != nil {
		return Plan{}, err
	}
	if before := d.next.Pause; before != nil {
		d.addMessage("replaces the pause %s", before.Request)
	}
	d.next.Pause = &cluster.Pause{Request: d.newRequest(), Hard: hard}
	d.mentionSchedule(nil, "will be dropped if the group is still paused then")
	if hard {
		d.addMessage("paused hard%s: no member is elected, not even to replace a leader that fails", d.duration())
		return d.finish("hard pause")
	}
	d.addMessage("paused%s: policy does not replace a healthy leader; a leader that fails is still replaced", d.duration())
	return d.finish("pause")
}

// Resume plans to end a pause.
func Resume(q whatif.Question, o Options) (Plan, error) {
	d, err := newDraft(q, o)
	if err != nil {
		return Plan{}, err
	}
	p := d.next.Pause
	if p == nil {
		return Plan{}, &NotAffectedError{Reason: "the group is not paused", Done: true}
	}
	d.addMessage("ended: the pause %s", p.Request)
	d.next.End(p.ID, "pause", "ended by "+o.By, q.Wall)
	d.next.Pause = nil
	return d.finish("resume")
}
