package cluster

import (
	"slices"
	"strconv"
	"testing"
	"time"
)

// ended returns the numbers of the scheduled moves of a slot that are over.
func (c *Control) ended(slot string) (ids []int64) {
	for _, e := range c.EndedSchedules {
		if e.Slot == slot {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// endSchedules ends scheduled moves of a slot, with numbers from first on.
func (c *Control) endSchedules(slot string, first, n int64) {
	for id := first; id < first+n; id++ {
		m := ScheduledMove{Move: Move{Request: Request{ID: id, Slot: slot}, Node: "a"}}
		c.Scheduled = append(c.Scheduled, m)
		c.EndSchedule(m, ScheduleDropped, "it is cold", time.Time{})
	}
}

// A busy slot does not make the others forget what became of theirs.
func TestEndedSchedulesAreKeptForEachSlot(t *testing.T) {
	var c Control
	c.endSchedules("1", 1, 2)
	c.endSchedules("0", 10, 30)
	if got := c.ended("1"); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("slot 1: %d", got)
	}
	if got := c.ended("0"); len(got) != 10 || got[9] != 39 || !slices.IsSorted(got) {
		t.Errorf("slot 0: %d", got)
	}
	for slot := range MaxSlots {
		c.endSchedules(strconv.Itoa(slot), 100, 20)
	}
	if n := len(c.EndedSchedules); n < MaxSlots || n > MaxSlots+maxAllEndedSchedules {
		t.Errorf("%d are kept", n)
	}
	if got := c.ended("127"); !slices.Equal(got, []int64{119}) {
		t.Errorf("slot 127: %d", got)
	}
	if got := c.ended("0"); len(got) == 0 || got[len(got)-1] != 119 {
		t.Errorf("slot 0: %d", got)
	}
}

// Only a forged record has more scheduled moves than a group has leaders.
func TestForgedSchedules(t *testing.T) {
	var c Control
	for i := range MaxSlots {
		c.Scheduled = append(c.Scheduled, ScheduledMove{Move: Move{Request: Request{ID: int64(i), Slot: strconv.Itoa(i)}}})
	}
	read := func() error {
		return ReadStored[Control]("/c/control", Encode(&c), Stat{}, true).Err
	}
	if err := read(); err != nil {
		t.Error(err)
	}
	c.Scheduled = append(c.Scheduled, c.Scheduled[0])
	if err := read(); err == nil {
		t.Error("a move more than leaders is accepted")
	}
}
