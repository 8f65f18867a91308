package elector

import (
	"fmt"
	"time"

	"zkelectd/internal/cluster"
)

// schedule knows when scheduled moves are due, by this elector's monotonic clock (docs/protocol.md, Operators). The records have it
// by the servers' clock, which this elector takes from a version of control that it has seen appear: one that it finds may be old.
type schedule struct {
	seen    bool      // control, or that it does not exist
	version int64     // of control, as last seen
	known   bool      // the servers' clock
	servers time.Time // the servers' clock, at
	at      time.Duration
	due     map[int64]dueAt // by request number
}

// dueAt is when a scheduled move is due: by the servers' clock, as recorded, and by this elector's.
type dueAt struct {
	servers time.Time
	at      time.Duration
}

// observe finds the scheduled moves that are due. It drops those that can no longer be carried out.
func (t *schedule) observe(s *cluster.Snapshot, active *activeRequests, in Input) {
	stat := s.Control.Stat
	if t.seen && s.Control.Exists && stat.Modified != t.version {
		t.known, t.servers, t.at = true, stat.Time, in.Now
	}
	t.seen, t.version = true, stat.Modified
	active.FixSchedule(stat)
	due := make(map[int64]dueAt)
	for _, m := range active.Scheduled {
		if active.dropOfRemovedSlot(m, s, in.Wall) || m.Slot != active.slot {
			continue
		}
		at, measured := t.due[m.ID]
		if !measured || !at.servers.Equal(m.Due) {
			if !t.known {
				active.changed = true // writing control shows what the servers' clock is
				continue
			}
			at = dueAt{m.Due, in.Now + t.remaining(m, in.Now)}
		}
		due[m.ID] = at
		active.checkDue(m, at.at, in)
	}
	t.due = due
}

// remaining returns how long it is until a scheduled move is due; negative if it was due before.
func (t *schedule) remaining(m cluster.ScheduledMove, now time.Duration) time.Duration {
	left := m.Due.Sub(t.servers.Add(now - t.at))
	return max(-cluster.MaxRequestTime, min(left, cluster.MaxRequestTime))
}

// checkDue makes a scheduled move the one to be carried out if it is due, or drops it if it is too late or the group is paused.
func (active *activeRequests) checkDue(m cluster.ScheduledMove, at time.Duration, in Input) {
	late, grace := in.Now-at, time.Duration(m.Grace)
	switch {
	case late < 0:
		active.wake = cluster.Earliest(active.wake, at)
	case late >= grace:
		active.dropSchedule(m, fmt.Sprintf("it could not be carried out within %s: there was no leader to move, or no elector", grace), in.Wall)
	case active.Pause != nil:
		active.dropSchedule(m, fmt.Sprintf("the group was paused %s", active.Pause.Request), in.Wall)
	case active.due == nil:
		active.due = &m
		active.wake = cluster.Earliest(active.wake, at+grace)
	}
}

// dropOfRemovedSlot drops a scheduled move of a slot that does not exist any more. That slot has no elector.
func (active *activeRequests) dropOfRemovedSlot(m cluster.ScheduledMove, s *cluster.Snapshot, wall time.Time) bool {
	if active.slot != "0" || !s.Slots.Readable() || cluster.SlotNumber(m.Slot) < s.Slots.Record.Count {
		return false
	}
	active.dropSchedule(m, fmt.Sprintf("the group has no slot %s any more", m.Slot), wall)
	active.EndedSchedules[len(active.EndedSchedules)-1].Acknowledged = true // nobody can acknowledge it in a slot that does not exist
	return true
}

func (active *activeRequests) dropSchedule(m cluster.ScheduledMove, why string, wall time.Time) {
	active.EndSchedule(m, cluster.ScheduleDropped, why, wall)
	active.changed = true
	active.events = append(active.events, fmt.Sprintf("the move to %s %s was dropped: %s", m.Target(), m.Request, why))
}

// carryOutSchedule turns the scheduled move that is due into a move, or drops it if its target is not eligible. That is written before
// anything follows from it: a move is carried out at most once. It reports whether one was due.
func (e *Elector) carryOutSchedule(b rankingInput, active *activeRequests) bool {
	if active.due == nil {
		return false
	}
	m, wall := *active.due, b.in.Wall
	b.move = &m.Move
	if why := moveObstacle(m.Move, e.rank(b).Ranking); why != "" {
		active.dropSchedule(m, why, wall)
		return true
	}
	if active.Move != nil {
		active.endMove("replaced by a scheduled move", wall)
	}
	if active.Reelect != nil {
		active.end(*active.Reelect, "reelection", "ended by a scheduled move", wall)
		active.Reelect = nil
	}
	active.EndSchedule(m, cluster.ScheduleCarriedOut, "", wall)
	active.changed = true
	active.events = append(active.events, fmt.Sprintf("moving leadership to %s as scheduled %s", m.Target(), m.Request))
	m.Move.ScheduledAt = m.At
	active.Move = &m.Move
	return true
}
