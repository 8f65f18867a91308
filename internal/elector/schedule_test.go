package elector

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// scheduled is a scenario in which the servers have a clock of their own, and control versions.
type scheduled struct {
	*scenario
	servers time.Time
}

func (g *group) scheduled(t *testing.T) *scheduled {
	return &scheduled{g.scenario(t), time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// submit writes control as an operator does.
func (h *scheduled) submit(c cluster.Control) {
	stat := h.in.Snapshot.Control.Stat
	stat.Modified, stat.Time = stat.Modified+1, h.servers
	h.in.Snapshot.Control = cluster.Stored[cluster.Control]{Exists: true, Record: c, Stat: stat}
}

// change submits a change of the requests.
func (h *scheduled) change(do func(c *cluster.Control)) {
	next := h.requests().Clone()
	next.FixSchedule(h.in.Snapshot.Control.Stat)
	do(&next)
	h.submit(next)
}

func (h *scheduled) pass(d time.Duration) {
	h.scenario.pass(d)
	h.servers = h.servers.Add(d)
}

// settle lets the elector write until there is nothing to write.
func (h *scheduled) settle() (d Decision) {
	h.t.Helper()
	for range 10 {
		switch d = h.e.Decide(h.in); {
		case d.Wake != 0 && d.Wake <= h.in.Now:
			h.t.Fatalf("wakes at %s, which is past at %s", d.Wake, h.in.Now)
		case d.Elect != nil:
			h.write(d)
			h.lead()
		case d.Control != nil:
			h.submit(*d.Control)
		default:
			return d
		}
	}
	h.t.Fatalf("does not settle: %+v", h.requests())
	return d
}

// replaceElector makes another member the elector, which knows nothing.
func (h *scheduled) replaceElector() { h.e = newElector() }

func (h *scheduled) leads(id string) {
	h.t.Helper()
	if d := h.settle(); h.in.Snapshot.Elected.Record.Node != id {
		h.t.Fatalf("%s leads, want %s; blocked: %q, requests %+v", h.in.Snapshot.Elected.Record.Node, id, d.Blocked, h.requests())
	}
}

// outcome checks what has become of the only scheduled move.
func (h *scheduled) outcome(want cluster.ScheduleOutcome, detail string) {
	h.t.Helper()
	c := h.requests()
	if want == "" {
		if len(c.Scheduled) != 1 || len(c.EndedSchedules) != 0 {
			h.t.Fatalf("it is over: %+v", c)
		}
		return
	}
	if len(c.Scheduled) != 0 || len(c.EndedSchedules) != 1 {
		h.t.Fatalf("scheduled %+v, ended %+v", c.Scheduled, c.EndedSchedules)
	}
	e := c.EndedSchedules[0]
	if e.Outcome != want || !strings.Contains(e.Detail, detail) || e.ID != 1 || e.By != "ann@host" {
		h.t.Fatalf("it ended by %+v, want %s: %s", e, want, detail)
	}
}

const twoHours = 2 * time.Hour

func scheduleTo(node string) cluster.Control {
	return cluster.Control{Last: 1, Scheduled: []cluster.ScheduledMove{{
		Move: cluster.Move{Request: by(1), Node: node}, At: wall.Add(twoHours), After: cluster.Duration(twoHours), Grace: cluster.Duration(10 * time.Minute),
	}}}
}

// ledByA is led by a, and has a move to c in two hours.
func ledByA(t *testing.T) *scheduled {
	h := newGroup("a", "b", "c").leads("a", 7).scheduled(t)
	h.leads("a")
	h.submit(scheduleTo("c"))
	h.leads("a")
	return h
}

func TestAScheduledMoveIsCarriedOutWhenItIsDue(t *testing.T) {
	h := ledByA(t)
	h.pass(twoHours - time.Millisecond)
	h.leads("a")
	h.outcome("", "")
	if d := h.settle(); d.Wake != h.in.Now+time.Millisecond {
		t.Errorf("wakes at %s, it is %s", d.Wake, h.in.Now)
	}
	h.pass(time.Millisecond)
	d := h.e.Decide(h.in)
	if d.Control == nil || d.Elect != nil || d.Control.Move == nil || len(d.Scheduled) != 1 || !strings.Contains(d.Scheduled[0], "moving leadership to c as scheduled by ann@host") {
		t.Fatalf("it is not written first: %+v", d)
	}
	h.leads("c")
	h.outcome(cluster.ScheduleCarriedOut, "")
	rec := h.in.Snapshot.Elected.Record
	if rec.Cause != cluster.CauseMove || rec.Request != 1 || rec.RequestedBy != "ann@host" || rec.Reason != "moved to c, scheduled for "+wall.Add(twoHours).Format(time.RFC3339)+" by ann@host: new kernel" {
		t.Errorf("%+v", rec)
	}
	h.remove("c") // from now on it is like any other move
	h.leads("a")
	if h.requests().Move != nil {
		t.Errorf("the move is kept: %+v", h.requests().Move)
	}
}

// Each elector takes the servers' clock from a version that it sees appear, so the time without an elector counts.
func TestAScheduledMoveSurvivesItsElector(t *testing.T) {
	h := ledByA(t)
	for range 3 {
		h.pass(30 * time.Minute)
		h.replaceElector()
		h.in.Now = 5 * time.Minute // by the clock of another host
		if d := h.e.Decide(h.in); d.Control == nil {
			t.Fatalf("an elector that does not know the servers' clock writes nothing: %+v", d)
		}
		h.leads("a")
		h.outcome("", "")
	}
	h.pass(30*time.Minute - time.Second)
	h.leads("a")
	h.pass(time.Second)
	h.leads("c")
}

// It was submitted while there was no elector, or was seen by none.
func TestAScheduledMoveCountsFromItsSubmission(t *testing.T) {
	h := newGroup("a", "b", "c").leads("a", 7).scheduled(t)
	h.submit(scheduleTo("c"))
	h.pass(time.Hour)
	h.leads("a")
	h.pass(time.Hour)
	h.leads("c")
}

// Whoever writes the next version fixes the time.
func TestAnotherRequestDoesNotDelayAScheduledMove(t *testing.T) {
	h := newGroup("a", "b", "c").leads("a", 7).scheduled(t)
	h.submit(scheduleTo("c"))
	h.pass(time.Hour)
	h.change(func(*cluster.Control) {})
	h.pass(time.Hour)
	h.leads("c")
}

func TestAScheduledMoveIsDroppedRatherThanLate(t *testing.T) {
	for name, c := range map[string]struct {
		late    time.Duration
		outcome cluster.ScheduleOutcome
	}{
		"a little late": {9 * time.Minute, cluster.ScheduleCarriedOut},
		"too late":      {10 * time.Minute, cluster.ScheduleDropped},
		"much too late": {7 * time.Hour, cluster.ScheduleDropped},
	} {
		for _, replaced := range []bool{false, true} {
			h := ledByA(t)
			h.pass(twoHours + c.late)
			if replaced {
				h.replaceElector()
			}
			h.settle()
			detail := ""
			if c.outcome == cluster.ScheduleDropped {
				detail = "it could not be carried out within 10m0s"
			}
			t.Log(name, replaced)
			h.outcome(c.outcome, detail)
		}
	}
}

func TestAScheduledMoveIsDroppedIfItIsNotPossible(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(h *scheduled)
		detail  string
	}{
		"not eligible": {func(h *scheduled) { h.group().node("c").Ineligible = "full" }, "full"},
		"unhealthy":    {func(h *scheduled) { h.group().node("c").Unhealthy = "sick" }, "unhealthy: sick"},
		"gone":         {func(h *scheduled) { h.remove("c") }, "the node is not registered"},
		"cordoned": {func(h *scheduled) {
			h.change(func(c *cluster.Control) { c.Cordons = []cluster.Cordon{{Request: by(2), Node: "c"}} })
		}, "cordoned by ann@host"},
		"paused": {func(h *scheduled) {
			h.change(func(c *cluster.Control) { c.Pause = &cluster.Pause{Request: by(2)} })
		}, "the group was paused by ann@host: new kernel"},
		"paused hard": {func(h *scheduled) {
			h.change(func(c *cluster.Control) { c.Pause = &cluster.Pause{Request: by(2), Hard: true} })
		}, "the group was paused by ann@host: new kernel"},
	} {
		h := ledByA(t)
		h.pass(time.Hour)
		c.happens(h)
		h.leads("a")
		h.outcome("", "")
		h.pass(time.Hour)
		h.leads("a")
		t.Log(name)
		h.outcome(cluster.ScheduleDropped, c.detail)
		if h.requests().Move != nil {
			t.Errorf("%s: moved nevertheless", name)
		}
	}
}

func TestAScheduledMoveReplacesAnEarlierMove(t *testing.T) {
	h := ledByA(t)
	h.change(func(c *cluster.Control) { c.Move = &cluster.Move{Request: by(2), Node: "b"} })
	h.leads("b")
	h.pass(twoHours)
	h.leads("c")
	h.ended(2, "replaced by a scheduled move")

	h = ledByA(t) // if it is dropped, the earlier one stays
	h.change(func(c *cluster.Control) { c.Move = &cluster.Move{Request: by(2), Node: "b"} })
	h.remove("c")
	h.pass(twoHours)
	h.leads("b")
	h.outcome(cluster.ScheduleDropped, "not registered")
	if m := h.requests().Move; m == nil || m.ID != 2 {
		t.Errorf("the earlier move is %+v", m)
	}
}

// While there is no leader, an election comes first. If none is possible for too long, the scheduled move is dropped.
func TestAScheduledMoveWaitsForALeader(t *testing.T) {
	h := ledByA(t)
	h.pass(twoHours)
	h.remove("a")
	d := h.e.Decide(h.in)
	if d.Elect == nil || d.Elect.Cause != cluster.CauseFailure || d.Elect.Node != "b" {
		t.Fatalf("%+v", d)
	}
	h.leads("c")

	h = ledByA(t)
	for _, id := range []string{"a", "b", "c"} {
		h.group().node(id).Ineligible = "full"
	}
	h.remove("a")
	h.pass(twoHours)
	if d := h.settle(); d.Wake != h.in.Now+10*time.Minute {
		t.Errorf("wakes at %s, it is %s", d.Wake, h.in.Now)
	}
	h.outcome("", "")
	h.pass(10 * time.Minute)
	h.settle()
	h.outcome(cluster.ScheduleDropped, "there was no leader to move")
}

func TestACanceledScheduledMoveIsNotCarriedOut(t *testing.T) {
	h := ledByA(t)
	h.change(func(c *cluster.Control) { c.EndSchedule(c.Scheduled[0], cluster.ScheduleCanceled, "", wall) })
	h.pass(twoHours)
	h.leads("a")
}

// A request that has the number of one that an elector remembers, after control was deleted, is another one.
func TestScheduledMovesWithTheSameNumber(t *testing.T) {
	h := ledByA(t)
	h.pass(time.Hour)
	h.submit(scheduleTo("b"))
	h.leads("a")
	h.pass(time.Hour)
	h.leads("a")
	h.pass(time.Hour)
	h.leads("b")
}

// A forecast has no clock of the servers, and writes nothing.
func TestAForecastLeavesScheduledMovesAlone(t *testing.T) {
	h := newGroup("a", "b").leads("a", 7).scheduled(t)
	h.e = New(Options{Estimate: true})
	h.submit(scheduleTo("b"))
	h.pass(twoHours)
	if d := h.e.Decide(h.in); d.Control != nil || d.Elect != nil {
		t.Errorf("%+v", d)
	}
}

// A time that is not plausible, in a forged record, does not overflow.
func TestForgedTimesOfScheduledMoves(t *testing.T) {
	for _, due := range []time.Time{time.Unix(cluster.MaxClock, 0), time.Unix(-1<<40, 0), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
		h := newGroup("a", "b").leads("a", 7).scheduled(t)
		h.settle()
		c := scheduleTo("b")
		c.Scheduled[0].Due = due
		h.submit(c)
		h.leads("a")
		if future := due.After(h.servers); future != (len(h.requests().Scheduled) == 1) {
			t.Errorf("%s: %+v", due, h.requests())
		}
	}
}

// Each slot has an elector of its own. That of slot 0 drops the scheduled moves of slots that do not exist any more.
func TestScheduledMovesOfSlots(t *testing.T) {
	c := cluster.Control{}
	for i, slot := range []string{"0", "1", "5"} {
		m := scheduleTo("c").Scheduled[0]
		m.ID, m.Slot = int64(i+1), slot
		c.Scheduled = append(c.Scheduled, m)
	}
	for _, x := range []struct {
		slot    string
		due     int64
		dropped int
	}{{"0", 1, 1}, {"1", 2, 0}, {"2", 0, 0}} {
		var known schedule
		s := cluster.Snapshot{Slot: x.slot, Slots: cluster.Stored[cluster.Slots]{Exists: true, Record: cluster.Slots{SlotSize: cluster.SlotSize{Count: 4}}}}
		known.observe(&s, &activeRequests{slot: x.slot}, Input{}) // there is no control yet
		s.Control = cluster.Stored[cluster.Control]{Exists: true, Record: c, Stat: cluster.Stat{Modified: 1, Time: wall}}
		active := activeRequests{Control: c.Clone(), slot: x.slot}
		known.observe(&s, &active, Input{})
		if active.due != nil || active.changed != (x.dropped > 0) {
			t.Errorf("slot %s, before: %+v", x.slot, active)
		}
		active = activeRequests{Control: c.Clone(), slot: x.slot}
		known.observe(&s, &active, Input{Now: twoHours})
		if due := active.due; (due == nil) != (x.due == 0) || due != nil && due.ID != x.due {
			t.Errorf("slot %s: due %+v", x.slot, due)
		}
		if len(active.EndedSchedules) != x.dropped || len(active.Unacknowledged("5")) > 0 { // who could acknowledge it?
			t.Errorf("slot %s: ended %+v", x.slot, active.EndedSchedules)
		}
	}
}
