package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ScheduleGrace is how late a scheduled move may still be carried out. Later than that it is dropped: whoever ordered a move for
// 02:00 does not want it at 09:00.
const ScheduleGrace = 10 * time.Minute

// ScheduledMove is a move that begins later. It is then carried out like any other move, or dropped if that is not possible.
type ScheduledMove struct {
	Move
	// At is when it is due, by the clock of the host where it was submitted; for people.
	At time.Time `json:"at"`
	// After is how long after its submission it is due. Grace is how late it may be carried out.
	After Duration `json:"after"`
	Grace Duration `json:"grace"`
	// Due is when it is due, by the clock of the ZooKeeper servers. Only they know when it was submitted: it is zero in the version of
	// control that submitted it, and whoever writes the next version sets it, see [Control.FixSchedule].
	Due time.Time `json:"due,omitzero"`
}

// Describe says who moves when, in the time zone of wall.
func (m ScheduledMove) Describe(wall time.Time) string {
	return fmt.Sprintf("moves to %s at %s, %s", m.Target(), DescribeTime(m.At, wall), m.Request)
}

// DescribeTime returns a time in the time zone of wall, and how far away it is.
func DescribeTime(at, wall time.Time) string {
	text, left := at.In(wall.Location()).Format("2006-01-02 15:04:05 MST"), at.Sub(wall).Round(time.Second)
	switch {
	case left >= time.Hour:
		return fmt.Sprintf("%s (in %s)", text, strings.TrimSuffix(left.Round(time.Minute).String(), "0s"))
	case left > 0:
		return fmt.Sprintf("%s (in %s)", text, left)
	}
	return text
}

// ScheduleOutcome is what has become of a scheduled move.
type ScheduleOutcome string

// The outcomes of a scheduled move.
const (
	ScheduleCarriedOut ScheduleOutcome = "carried-out"
	ScheduleDropped    ScheduleOutcome = "dropped"
	ScheduleCanceled   ScheduleOutcome = "canceled"
	ScheduleReplaced   ScheduleOutcome = "replaced"
)

// EndedSchedule is a scheduled move that is over.
type EndedSchedule struct {
	ID     int64     `json:"id"`
	Slot   string    `json:"slot,omitempty"`
	Target string    `json:"target"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
	// Detail says why it was dropped, or who canceled or replaced it.
	Outcome ScheduleOutcome `json:"outcome"`
	Detail  string          `json:"detail,omitempty"`
	// Time is when it ended, by the clock of the host that wrote this.
	Time time.Time `json:"time"`
	// Acknowledged is set once an operator has ordered or canceled a move after it was dropped: then it is no longer a problem.
	Acknowledged bool `json:"acknowledged,omitempty"`
}

// Describe says what has become of the move, in the time zone of wall.
func (e EndedSchedule) Describe(wall time.Time) string {
	at := e.At.In(wall.Location()).Format("2006-01-02 15:04:05 MST")
	text := fmt.Sprintf("the move to %s that %s scheduled for %s was %s", e.Target, e.By, at, strings.ReplaceAll(string(e.Outcome), "-", " "))
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// The limits of the scheduled moves that are over: how many are kept of each leader, how many of all slots together, if each has at
// least one, and bytes of a detail.
const (
	maxEndedSchedules    = 10
	maxAllEndedSchedules = 100
	maxScheduleDetail    = 500
)

// FixSchedule sets when the scheduled moves that the version of control with this stat has submitted are due. Everyone who writes the
// next version must call it.
func (c *Control) FixSchedule(stat Stat) {
	c.Scheduled = slices.Clone(c.Scheduled)
	for i := range c.Scheduled {
		if m := &c.Scheduled[i]; m.Due.IsZero() {
			m.Due = stat.Time.Add(time.Duration(m.After)).UTC()
		}
	}
}

// ScheduledIn returns the scheduled moves of a slot; of a group with one leader, whose slot is "", that are all.
func (c Control) ScheduledIn(slot string) []ScheduledMove {
	return slices.DeleteFunc(slices.Clone(c.Scheduled), func(m ScheduledMove) bool { return m.Slot != slot })
}

// EndSchedule removes a scheduled move and records its outcome.
func (c *Control) EndSchedule(m ScheduledMove, outcome ScheduleOutcome, detail string, wall time.Time) {
	c.Scheduled = slices.DeleteFunc(slices.Clone(c.Scheduled), func(x ScheduledMove) bool { return x.ID == m.ID })
	c.EndedSchedules = append(slices.Clone(c.EndedSchedules), EndedSchedule{
		ID: m.ID, Slot: m.Slot, Target: m.Target(), By: m.By, Reason: m.Reason, At: m.At, Outcome: outcome,
		Detail: strings.ToValidUTF8(detail[:min(len(detail), maxScheduleDetail)], ""), Time: wall,
	})
	c.trimEndedSchedules()
}

// trimEndedSchedules forgets the oldest scheduled moves of each slot that are over, where there are too many.
func (c *Control) trimEndedSchedules() {
	count := make(map[string]int)
	for _, e := range c.EndedSchedules {
		count[e.Slot]++
	}
	keep := max(1, min(maxEndedSchedules, maxAllEndedSchedules/len(count)))
	c.EndedSchedules = slices.DeleteFunc(c.EndedSchedules, func(e EndedSchedule) bool {
		count[e.Slot]--
		return count[e.Slot] >= keep
	})
}

// Unacknowledged returns the scheduled moves of a slot that were dropped, and that no operator has acknowledged.
func (c Control) Unacknowledged(slot string) []EndedSchedule {
	return slices.DeleteFunc(slices.Clone(c.EndedSchedules), func(e EndedSchedule) bool {
		return e.Slot != slot || e.Outcome != ScheduleDropped || e.Acknowledged
	})
}

// AcknowledgeSchedules notes that an operator knows which scheduled moves of a slot were dropped.
func (c *Control) AcknowledgeSchedules(slot string) {
	c.EndedSchedules = slices.Clone(c.EndedSchedules)
	for i := range c.EndedSchedules {
		if e := &c.EndedSchedules[i]; e.Slot == slot && e.Outcome == ScheduleDropped {
			e.Acknowledged = true
		}
	}
}

// checkSchedule returns an error for numbers and durations that no scheduled move can have, and for more moves than there can be leaders.
func (c *Control) checkSchedule() error {
	if len(c.Scheduled) > MaxSlots {
		return fmt.Errorf("%d moves are scheduled, more than a group has leaders", len(c.Scheduled))
	}
	for _, m := range c.Scheduled {
		if err := checkRequest(m.ID, max(m.For, m.Remaining, m.After, m.Grace)); err != nil {
			return err
		}
	}
	return nil
}
