package request

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
)

const dropped = "it is dropped if the target is not eligible then, if the group is paused then, or if it cannot be carried out within 10m0s; " +
	"'zkelectd move --cancel' cancels it"

func TestSchedule(t *testing.T) {
	lasting := bob()
	lasting.For = time.Hour
	for name, c := range map[string]struct {
		prepare  func(h *testGroup)
		options  Options
		node     string
		site     string
		messages []string
	}{
		"to a node": {nil, lasting, "b1", "", []string{
			"scheduled for 2026-05-04 14:30:00 UTC (in 2h30m); as things are now: moves leadership from a1 (dc1) to b1 (dc2) for 1h0m0s", dropped,
		}},
		"to a site": {nil, bob(), "", "dc2", []string{
			"scheduled for 2026-05-04 14:30:00 UTC (in 2h30m); as things are now: moves leadership from a1 (dc1) to b1 (dc2)", dropped,
		}},
		"not eligible now": {func(h *testGroup) { h.node("b2").Unhealthy = "no disk" }, bob(), "b2", "", []string{
			"scheduled: leadership moves to b2 at 2026-05-04 14:30:00 UTC (in 2h30m)",
			"it would be dropped if it was due now: leadership cannot move to b2: b2: unhealthy: no disk; --force moves it anyway", dropped,
		}},
		"lost now": {func(h *testGroup) {
			h.q.Snapshot.Roster = exists(cluster.Roster{Nodes: []cluster.RosterNode{{ID: "c1", Site: "dc3", Left: &cluster.Left{How: cluster.LeftLost}}}})
		}, bob(), "c1", "", []string{
			"scheduled: leadership moves to c1 at 2026-05-04 14:30:00 UTC (in 2h30m)", "it would be dropped if it was due now: no member has", dropped,
		}},
		"the pause ends before": {func(h *testGroup) {
			h.control().Pause = &cluster.Pause{Request: ann(1)}
			h.control().Pause.For, h.control().Pause.Remaining = cluster.Duration(5*time.Hour), cluster.Duration(time.Hour)
		}, bob(), "a1", "", []string{"scheduled for 2026-05-04 14:30:00 UTC (in 2h30m); as things are now: a1 leads already; it stays first", dropped}},
		"replacing another": {func(h *testGroup) {
			h.control().Scheduled = []cluster.ScheduledMove{{Move: cluster.Move{Request: ann(1), Node: "a2"}, At: wall.Add(time.Hour)}}
			h.control().Last = 1
		}, bob(), "b1", "", []string{
			"replaces: moves to a2 at 2026-05-04 13:00:00 UTC (in 1h0m), by ann@host: new kernel",
			"scheduled for 2026-05-04 14:30:00 UTC (in 2h30m); as things are now: moves leadership from a1 (dc1) to b1 (dc2)", dropped,
		}},
	} {
		h := group(t).leads("a1")
		if c.prepare != nil {
			c.prepare(h)
		}
		plan, err := h.planFor(schedule(c.options, c.node, c.site, 150*time.Minute))
		if err != nil || !slices.EqualFunc(plan.Messages, c.messages, strings.HasPrefix) {
			t.Errorf("%s: %v, messages %q", name, err, plan.Messages)
			continue
		}
		all := plan.Control.Scheduled
		if len(all) != 1 {
			t.Fatalf("%s: planned %+v", name, all)
		}
		m := all[0]
		if m.ID != plan.ID || m.Node != c.node || m.Site != c.site || time.Duration(m.After) != 150*time.Minute || time.Duration(m.Grace) != cluster.ScheduleGrace ||
			!m.At.Equal(wall.Add(150*time.Minute)) || !m.Due.IsZero() || m.For != cluster.Duration(c.options.For) || m.Remaining != m.For {
			t.Errorf("%s: planned %+v", name, m)
		}
		if plan.Control.Move != nil {
			t.Errorf("%s: moves at once: %+v", name, plan.Control.Move)
		}
		if out := h.after(plan); out.Leader.ID != "a1" {
			t.Errorf("%s: %s leads before it is due", name, out.Leader.ID)
		}
	}
}

func TestSchedulesThatAreRefused(t *testing.T) {
	paused := func(hard bool) func(h *testGroup) {
		return func(h *testGroup) { h.control().Pause = &cluster.Pause{Request: ann(1), Hard: hard} }
	}
	for name, c := range map[string]struct {
		prepare func(h *testGroup)
		node    string
		after   time.Duration
		want    string
	}{
		"in the past":   {nil, "b1", -time.Minute, "2026-05-04T11:59:00Z is in the past: it is 2026-05-04T12:00:00Z now; leave out the time"},
		"too far away":  {nil, "b1", 11 * 365 * 24 * time.Hour, "too far away"},
		"nobody":        {nil, "b9", time.Hour, `no member has the node "b9"`},
		"paused":        {paused(false), "b1", time.Hour, "run 'zkelectd resume' first"},
		"paused hard":   {paused(true), "b1", time.Hour, "run 'zkelectd resume' first"},
		"without names": {nil, "", time.Hour, "name exactly one of node and site"},
	} {
		h := group(t).leads("a1")
		if c.prepare != nil {
			c.prepare(h)
		}
		if _, err := h.planFor(schedule(bob(), c.node, "", c.after)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// scheduled returns a group in which ann has scheduled a move to b1.
func scheduled(t *testing.T) *testGroup {
	h := group(t).leads("a1")
	h.control().Last = 1
	h.control().Scheduled = []cluster.ScheduledMove{{Move: cluster.Move{Request: ann(1), Node: "b1"}, At: wall.Add(time.Hour), After: cluster.Duration(time.Hour)}}
	h.q.Snapshot.Control.Stat.Time = wall.Add(time.Minute)
	return h
}

func cancel(q whatif.Question) (Plan, error) {
	return Request{Kind: KindMove, Cancel: true, Options: bob()}.Plan(q)
}

func TestCancelSchedule(t *testing.T) {
	h := scheduled(t)
	plan, err := h.planFor(cancel)
	if err != nil || len(plan.Control.Scheduled) != 0 || plan.Messages[0] != "canceled: moves to b1 at 2026-05-04 13:00:00 UTC (in 1h0m), by ann@host: new kernel" {
		t.Fatalf("%v, %+v", err, plan)
	}
	if e := plan.Control.EndedSchedules; len(e) != 1 || e[0].Outcome != cluster.ScheduleCanceled || e[0].Detail != "canceled by bob@host" || e[0].By != "ann@host" {
		t.Errorf("%+v", e)
	}
	*h.control() = plan.Control
	_, err = h.planFor(cancel)
	var none *NotAffectedError
	if !errors.As(err, &none) || !none.Done {
		t.Errorf("nothing is scheduled: %v", err)
	}
}

func TestCancelAcknowledgesWhatWasDropped(t *testing.T) {
	for name, plans := range map[string]command{
		"cancel": cancel, "move": move(bob(), "b1", ""), "schedule": schedule(bob(), "b1", "", time.Hour),
	} {
		h := scheduled(t)
		h.control().EndSchedule(h.control().Scheduled[0], cluster.ScheduleDropped, "it is cold", wall)
		plan, err := h.planFor(plans)
		if err != nil || len(plan.Control.Unacknowledged("")) != 0 {
			t.Errorf("%s: %v, %+v", name, err, plan.Control.EndedSchedules)
		}
	}
}

// Requests say what they mean for a scheduled move. They leave it as it is, and fix its time.
func TestOtherRequestsMentionTheScheduledMove(t *testing.T) {
	for name, c := range map[string]struct {
		command command
		want    string
	}{
		"move":             {move(bob(), "a2", ""), "stays scheduled"},
		"pause":            {pause(bob(), false), "will be dropped if the group is still paused then"},
		"cordon":           {cordon(bob(), "b1", "", false), "will be dropped if the target is still cordoned then"},
		"cordon of others": {cordon(bob(), "b2", "", false), ""},
	} {
		h := scheduled(t)
		plan, err := h.planFor(c.command)
		if err != nil || len(plan.Control.Scheduled) != 1 {
			t.Errorf("%s: %v, %+v", name, err, plan.Control.Scheduled)
			continue
		}
		if due := plan.Control.Scheduled[0].Due; !due.Equal(wall.Add(61 * time.Minute)) {
			t.Errorf("%s: it is due at %s", name, due)
		}
		text := strings.Join(plan.Messages, "; ")
		if says := strings.Contains(text, "the move to b1 scheduled for 2026-05-04 13:00:00 UTC (in 1h0m) "+c.want); says != (c.want != "") {
			t.Errorf("%s: %q", name, plan.Messages)
		}
	}
}

func TestCancelTakesNothingElse(t *testing.T) {
	for _, r := range []Request{
		{Kind: KindMove, Cancel: true, Node: "a"}, {Kind: KindMove, Cancel: true, At: wall}, {Kind: KindMove, Cancel: true, Options: Options{Force: true}},
		{Kind: KindMove, Cancel: true, Options: Options{For: time.Hour}}, {Kind: KindPause, Cancel: true},
	} {
		if r.Check() == nil {
			t.Errorf("%+v is accepted", r)
		}
	}
}

// The commands in messages name the group, or the slot.
func TestHintsAboutSchedulesNameTheGroup(t *testing.T) {
	h := group(t).leads("a1")
	h.q.Options.Group = "ingest/3"
	inAnHour := schedule(bob(), "b1", "", time.Hour)
	plan, err := inAnHour(h.q)
	if text := strings.Join(plan.Messages, "\n"); err != nil || !strings.Contains(text, "'zkelectd move --cancel -g ingest/3' cancels it") {
		t.Errorf("%v: %s", err, text)
	}
	h.control().Pause = &cluster.Pause{Request: ann(1)}
	if _, err := inAnHour(h.q); err == nil || !strings.Contains(err.Error(), "'zkelectd resume -g ingest' first") {
		t.Errorf("paused: %v", err)
	}
}
