package elector

import (
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// requests measures how long operators' requests have lasted, by this elector's monotonic clock (docs/protocol.md,
// Operators).
type requests struct{ seen map[int64]requestTimer }

// requestTimer has a request's remaining and total duration when it was first seen.
type requestTimer struct{ since, remaining, total time.Duration }

// activeRequests are the requests in force at one moment. Those that have ended are in Done.
type activeRequests struct {
	cluster.Control
	slot    string        // whose they are; empty in a group with one leader
	changed bool          // it differs from what was read, and this slot's elector writes that
	wake    time.Duration // when it may change by itself
}

// saveInterval is how often the remaining time of a request is written, for the next elector: a tenth of it, at least 5
// s.
func saveInterval(total time.Duration) time.Duration { return max(5*time.Second, total/10) }

// active returns the requests in force. A record that cannot be read may hold a pause, so it counts as one.
func (t *requests) active(s *cluster.Snapshot, now time.Duration, wall time.Time) activeRequests {
	slot := s.Control
	if slot.Exists && slot.Err != nil {
		return activeRequests{Control: cluster.Control{Pause: &cluster.Pause{Request: cluster.Request{By: "zkelectd",
			Reason: slot.Err.Error()}}}}
	}
	active := activeRequests{Control: slot.Record.Clone().OfSlot(s.Slot), slot: s.Slot}
	seen := make(map[int64]requestTimer)
	expired := make(map[int64]bool)
	active.Each(func(request *cluster.Request) {
		if request.For <= 0 {
			return
		}
		at, known := t.seen[request.ID]
		if !known || at.total != time.Duration(request.For) { // another request, after control was deleted and created again
			at = requestTimer{now, time.Duration(request.Remaining), time.Duration(request.For)}
		}
		seen[request.ID] = at
		left := at.remaining - (now - at.since)
		if left <= 0 {
			expired[request.ID] = true
			return
		}
		if !active.writes(*request) {
			active.wake = cluster.Earliest(active.wake, now+left)
			return
		}
		every := saveInterval(time.Duration(request.For))
		if time.Duration(request.Remaining)-left >= every {
			request.Remaining, active.changed = cluster.Duration(left), true
		}
		active.wake = cluster.Earliest(active.wake, now+min(left, left-time.Duration(request.Remaining)+every))
	})
	t.seen = seen
	active.expire(expired, wall)
	active.endProposals(s, wall)
	active.collect(s)
	return active
}

// left returns how much is left of the time of a request in force that has an end.
func (t *requests) left(r cluster.Request, now time.Duration) time.Duration {
	at := t.seen[r.ID]
	return at.remaining - (now - at.since)
}

// writes reports whether the elector of this slot writes what becomes of a request. The requests of the whole group are
// those of slot 0, so that the electors of its slots do not all write the same.
func (active *activeRequests) writes(r cluster.Request) bool {
	return r.Slot == active.slot || (r.Slot == "" && cluster.SlotNumber(active.slot) == 0)
}

// expire ends the requests that have expired.
func (active *activeRequests) expire(expired map[int64]bool, wall time.Time) {
	const outcome = "expired"
	if active.Pause != nil && expired[active.Pause.ID] {
		active.end(active.Pause.Request, "pause", outcome, wall)
		active.Pause = nil
	}
	if active.Move != nil && expired[active.Move.ID] {
		active.endMove(outcome, wall)
	}
	for i := range active.Proposals {
		if p := &active.Proposals[i]; expired[p.ID] { // nobody has answered: it is held all the same
			p.SetAnswer(cluster.ProposalApproved, "policy.confirm_after")
			active.changed = active.changed || active.writes(p.Request)
		}
	}
	active.Cordons = slices.DeleteFunc(active.Cordons, func(c cluster.Cordon) bool {
		if expired[c.ID] {
			active.end(c.Request, c.Describe(), outcome, wall)
		}
		return expired[c.ID]
	})
}

// collect drops clear-strikes requests of this slot that no strike is left for.
func (active *activeRequests) collect(s *cluster.Snapshot) {
	before := len(active.ClearedStrikes)
	active.ClearedStrikes = slices.DeleteFunc(active.ClearedStrikes, func(f cluster.ClearedStrikes) bool {
		return f.Slot == active.slot && s.Elected.Readable() && s.Elected.Record.Term > f.Term &&
			!slices.ContainsFunc(s.Elected.Record.Exclusions, f.Covers)
	})
	active.changed = active.changed || len(active.ClearedStrikes) < before
}

func (active *activeRequests) end(r cluster.Request, what, outcome string, wall time.Time) {
	active.Control.End(r.ID, what, outcome, wall)
	active.changed = active.changed || active.writes(r)
}

func (active *activeRequests) endMove(outcome string, wall time.Time) {
	active.end(active.Move.Request, "move to "+active.Move.Target(), outcome, wall)
	active.Move = nil
}

func (active *activeRequests) endReelect(outcome string, wall time.Time) {
	if active.Move != nil {
		active.endMove("ended by a reelection", wall)
	}
	active.end(*active.Reelect, "reelection", outcome, wall)
	active.Reelect = nil
}

// endLostMove ends a move whose target is not eligible or has just failed. It returns a description, empty if no move
// ended.
func (active *activeRequests) endLostMove(r policy.Ranking, wall time.Time) string {
	if active.Move == nil {
		return ""
	}
	why := moveObstacle(*active.Move, r)
	if why == "" {
		return ""
	}
	text := fmt.Sprintf("the move to %s %s has ended: %s", active.Move.Target(), active.Move.Request, why)
	active.endMove(why, wall)
	return text
}

// moveObstacle returns why no target of a move is eligible, empty if one is.
func moveObstacle(m cluster.Move, r policy.Ranking) string {
	why := "the node is not registered"
	for _, e := range r.Entries {
		if !m.Matches(e.Member.ID, e.Member.Node.Record.Site) {
			continue
		}
		if e.Eligible() {
			return ""
		}
		why = e.RefusalReason()
	}
	if m.Node == "" {
		why = "no member there is eligible"
	}
	return why
}

// drained returns the request by which a leader's node or site is drained.
func (active *activeRequests) drained(node, site string) cluster.Request {
	for _, c := range active.Cordons {
		if c.Drain && c.Matches(node, site) {
			return c.Request
		}
	}
	return cluster.Request{}
}
