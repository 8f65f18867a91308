package elector

import (
	"errors"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

func paused(hard bool, lasts ...time.Duration) cluster.Control {
	return cluster.Control{Last: 1, Pause: &cluster.Pause{Request: by(1, lasts...), Hard: hard}}
}

func unreadableControl() cluster.Stored[cluster.Control] {
	return cluster.Stored[cluster.Control]{Exists: true, Err: errors.New("znode /c/control has format version 9")}
}

func TestASoftPauseKeepsPolicyFromReplacingTheLeader(t *testing.T) {
	for name, c := range map[string]struct {
		leader  string
		happens func(h *scenario)
		want    string
		cause   cluster.Cause
		holding string
	}{
		"a better one":         {"b", func(*scenario) {}, "b", "", "a would be better than b (priority 100 against priority 99), but policy does not replace a healthy leader: paused "},
		"all is well":          {"a", func(*scenario) {}, "a", "", ""},
		"the leader is gone":   {"a", func(h *scenario) { h.remove("a") }, "b", cluster.CauseFailure, ""},
		"it gave up":           {"a", func(h *scenario) { h.in.Snapshot.Fence.Record.State = cluster.FenceReleased }, "b", cluster.CauseGaveUp, ""},
		"it is unhealthy":      {"a", func(h *scenario) { h.group().node("a").Unhealthy = "sick" }, "b", cluster.CauseUnhealthy, ""},
		"it is not eligible":   {"a", func(h *scenario) { h.group().node("a").Ineligible = "its disk is full" }, "a", "", "a is no longer eligible: its disk is full, but policy does not replace a healthy leader: paused "},
		"the takeover is late": {"a", func(h *scenario) { h.in.Overdue = "late" }, "b", cluster.CauseOverdue, ""},
	} {
		for words, control := range map[string]cluster.Stored[cluster.Control]{
			"by ann@host: new kernel":                            {Exists: true, Record: paused(false)},
			"by zkelectd: znode /c/control has format version 9": unreadableControl(),
		} {
			h := newGroup("a", "b").leads(c.leader, 7).scenario(t)
			h.in.Snapshot.Control = control
			c.happens(h)
			h.leader(c.want, c.cause)
			d := h.settle()
			if want := c.holding + words; d.Blocked.Reason != want && (c.holding != "" || d.Blocked.Reason != "") && c.cause == "" {
				t.Errorf("%s: blocked: %q, want %q", name, d.Blocked, want)
			}
		}
	}
}

func TestNothingIsDecidedUnderAHardPause(t *testing.T) {
	elect := by(2)
	for name, c := range map[string]struct {
		g       *group
		happens func(h *scenario)
		note    string
	}{
		"all is well":        {newGroup("a", "b").leads("a", 7), func(*scenario) {}, ""},
		"a better one":       {newGroup("a", "b").leads("b", 7), func(*scenario) {}, ""},
		"the leader is gone": {newGroup("b").leads("a", 7), func(*scenario) {}, "paused hard by ann@host: new kernel: a is gone; there is no election until 'zkelectd resume'"},
		"it gave up":         {newGroup("a", "b").elected("a", 7).fence("a", 7, cluster.FenceUnclean), func(*scenario) {}, "a gave up"},
		"no leader yet":      {newGroup("a", "b"), func(*scenario) {}, "first election"},
		"it is unhealthy":    {newGroup("a", "b").leads("a", 7), func(h *scenario) { h.group().node("a").Unhealthy = "sick" }, ""},
		"a drain": {newGroup("a", "b").leads("a", 7), func(h *scenario) {
			h.in.Snapshot.Control.Record.Cordons = []cluster.Cordon{{Request: by(2), Node: "a", Drain: true}}
		}, ""},
		"a move":           {newGroup("a", "b").leads("a", 7), func(h *scenario) { h.in.Snapshot.Control.Record.Move = &cluster.Move{Request: by(2), Node: "b"} }, ""},
		"an election":      {newGroup("a", "b").leads("b", 7), func(h *scenario) { h.in.Snapshot.Control.Record.Reelect = &elect }, ""},
		"a holder is late": {newGroup("a", "b").elected("a", 8).fence("b", 7, cluster.FenceReady).current("b"), func(h *scenario) { h.in.Revoke = "late" }, ""},
	} {
		h := c.g.scenario(t)
		h.control(paused(true))
		c.happens(h)
		d := h.decide()
		if d.Elect != nil || d.Revoke != nil || d.Control != nil {
			t.Errorf("%s: %+v", name, d)
		}
		if (d.Note == "") != (c.note == "") || !strings.Contains(d.Note, c.note) {
			t.Errorf("%s: noted %q, want %q", name, d.Note, c.note)
		}
	}
}

func TestARequestEndsByTheElectorsClock(t *testing.T) {
	hour := time.Hour
	for name, c := range map[string]struct {
		control       cluster.Control
		before, after string
		cause, back   cluster.Cause
	}{
		"soft pause":  {paused(false, hour), "b", "a", "", cluster.CausePreempt},
		"hard pause":  {paused(true, hour), "b", "a", "", cluster.CausePreempt},
		"move":        {cluster.Control{Move: &cluster.Move{Request: by(1, hour), Node: "c"}}, "c", "a", cluster.CauseMove, cluster.CausePreempt},
		"cordon":      {cluster.Control{Cordons: []cluster.Cordon{{Request: by(1, hour), Node: "a"}}}, "b", "a", "", cluster.CausePreempt},
		"site cordon": {cluster.Control{Cordons: []cluster.Cordon{{Request: by(1, hour), Site: "dc1"}}}, "b", "a", "", cluster.CausePreempt},
	} {
		h := newGroup("a", "b", "c").leads("b", 7).scenario(t)
		h.control(c.control)
		h.leader(c.before, c.cause)
		start := h.in.Now
		for h.in.Now < start+hour {
			d := h.settle()
			if d.Wake <= h.in.Now || d.Wake > start+hour {
				t.Fatalf("%s: at %s an early wake at %s", name, h.in.Now-start, d.Wake-start)
			}
			h.in.Now = min(d.Wake, start+hour-1)
			h.leader(c.before, "")
			if h.in.Now == start+hour-1 {
				h.in.Now++
			}
		}
		h.leader(c.after, c.back)
		h.ended(1, "expired")
		if o := h.requests(); o.Pause != nil || o.Move != nil || len(o.Cordons) > 1 {
			t.Errorf("%s: still in force: %+v", name, o)
		}
		if d := h.settle(); d.Wake != 0 {
			t.Errorf("%s: wakes at %s without a reason", name, d.Wake)
		}
	}
}

func TestTheRemainingTimeOfARequestIsWrittenForTheNextElector(t *testing.T) {
	h := newGroup("a", "b").leads("b", 7).scenario(t)
	h.control(paused(false, time.Hour))
	h.leader("b", "")
	var written int
	for range 5 {
		h.in.Now += 6 * time.Minute
		d := h.decide()
		if h.write(d) {
			written++
		}
		if d.Wake != h.in.Now+6*time.Minute {
			t.Errorf("wakes after %s to write it again", d.Wake-h.in.Now)
		}
	}
	if left := time.Duration(h.requests().Pause.Remaining); left != 30*time.Minute || written != 5 {
		t.Fatalf("%s is left after half an hour, written %d times", left, written)
	}
	h.in.Now += 6*time.Minute - 1
	if d := h.decide(); d.Control != nil {
		t.Errorf("written before a tenth is over: %+v", d.Control.Pause)
	}

	h.e, h.in.Now = newElector(), time.Second
	h.leader("b", "")
	h.in.Now += 30*time.Minute - 1
	h.leader("b", "")
	h.in.Now++
	h.leader("a", cluster.CausePreempt)
	h.ended(1, "expired")
}
