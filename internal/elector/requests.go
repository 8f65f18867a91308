package elector

import (
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// requests keeps the time of what operators have asked for, by this elector's monotonic clock.
type requests struct{ seen map[int64]span }

// span is what was left of a request, of the whole, when it was first seen.
type span struct{ since, left, whole time.Duration }

// standing are the requests in force at one moment, and what has become of those that no longer are.
type standing struct {
	cluster.Control
	changed bool
	wake    time.Duration
}

// noteEvery is how often what is left of a request is written down, for the next elector: a tenth of it, and not below 5 s.
func noteEvery(whole time.Duration) time.Duration { return max(5*time.Second, whole/10) }

// standing brings the requests up to date. What cannot be read may be a pause: then policy moves nobody.
func (t *requests) standing(s *cluster.Snapshot, now time.Duration, wall time.Time) standing {
	slot := s.Control
	if slot.Exists && slot.Err != nil {
		return standing{Control: cluster.Control{Pause: &cluster.Pause{Request: cluster.Request{By: "zkelectd", Reason: slot.Err.Error()}}}}
	}
	o := standing{Control: slot.Record.Clone()}
	seen := make(map[int64]span)
	over := make(map[int64]bool)
	o.Each(func(request *cluster.Request) {
		if request.For <= 0 {
			return
		}
		at, known := t.seen[request.ID]
		if !known || at.whole != time.Duration(request.For) { // another request, where control was deleted and made anew
			at = span{now, time.Duration(request.Remaining), time.Duration(request.For)}
		}
		seen[request.ID] = at
		left := at.left - (now - at.since)
		if left <= 0 {
			over[request.ID] = true
			return
		}
		every := noteEvery(time.Duration(request.For))
		if time.Duration(request.Remaining)-left >= every {
			request.Remaining, o.changed = cluster.Duration(left), true
		}
		o.wake = cluster.Earliest(o.wake, now+min(left, left-time.Duration(request.Remaining)+every))
	})
	t.seen = seen
	o.expire(over, wall)
	o.collect(s)
	return o
}

// expire drops the requests whose time is over.
func (o *standing) expire(over map[int64]bool, wall time.Time) {
	const outcome = "its time is over"
	if o.Pause != nil && over[o.Pause.ID] {
		o.end(o.Pause.ID, "pause", outcome, wall)
		o.Pause = nil
	}
	if o.Move != nil && over[o.Move.ID] {
		o.endMove(outcome, wall)
	}
	o.Cordons = slices.DeleteFunc(o.Cordons, func(c cluster.Cordon) bool {
		if over[c.ID] {
			o.end(c.ID, c.Words(), outcome, wall)
		}
		return over[c.ID]
	})
}

// collect drops pardons that no strike is left for.
func (o *standing) collect(s *cluster.Snapshot) {
	before := len(o.ClearedStrikes)
	o.ClearedStrikes = slices.DeleteFunc(o.ClearedStrikes, func(f cluster.ClearedStrikes) bool {
		return s.Elected.Readable() && s.Elected.Record.Term > f.Term && !slices.ContainsFunc(s.Elected.Record.Exclusions, f.Covers)
	})
	o.changed = o.changed || len(o.ClearedStrikes) < before
}

func (o *standing) end(id int64, what, outcome string, wall time.Time) {
	o.Control.End(id, what, outcome, wall)
	o.changed = true
}

func (o *standing) endMove(outcome string, wall time.Time) {
	o.end(o.Move.ID, "move to "+o.Move.Target(), outcome, wall)
	o.Move = nil
}

func (o *standing) endElect(outcome string, wall time.Time) {
	if o.Move != nil {
		o.endMove("ended by an election", wall)
	}
	o.end(o.Reelect.ID, "election", outcome, wall)
	o.Reelect = nil
}

// lost ends a move whose target may not lead, or has just failed, and says so.
func (o *standing) lost(r policy.Ranking, v verdict, s *cluster.Snapshot, wall time.Time) string {
	if o.Move == nil {
		return ""
	}
	why := "it is gone"
	for _, e := range r.Entries {
		if !o.Move.Matches(e.Member.ID, e.Member.Node.Record.Site) {
			continue
		}
		if e.Allowed() {
			return ""
		}
		why = e.RefusalReason()
	}
	if o.Move.Node == "" {
		why = "no member there may lead"
	}
	text := fmt.Sprintf("the move to %s %s is over: %s", o.Move.Target(), o.Move.Request, why)
	o.endMove(why, wall)
	return text
}

// clearStrikes leaves out the strikes that operators have cleared.
func (o *standing) clearStrikes(list []cluster.Exclusion, ages []time.Duration) (kept []cluster.Exclusion, keptAges []time.Duration) {
	for i, x := range list {
		if slices.ContainsFunc(o.ClearedStrikes, func(f cluster.ClearedStrikes) bool { return f.Covers(x) }) {
			continue
		}
		kept = append(kept, x)
		if i < len(ages) {
			keptAges = append(keptAges, ages[i])
		}
	}
	return kept, keptAges
}

// drained finds out how, and by whom, a leader was asked to go.
func (o *standing) drained(node, site string) (cluster.Cause, cluster.Request) {
	for _, c := range o.Cordons {
		if c.Drain && c.Matches(node, site) {
			if c.StepDown {
				return cluster.CauseStepDown, c.Request
			}
			return cluster.CauseDrain, c.Request
		}
	}
	return cluster.CauseDrain, cluster.Request{}
}
