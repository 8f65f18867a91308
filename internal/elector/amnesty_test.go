package elector

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// fail lets the elected member release without having been stopped, and time pass until another one is elected. It returns that time. With
// replaced, each failure also ends the elector.
func (h *scenario) fail(replaced bool) (waited time.Duration) {
	h.t.Helper()
	rec := h.in.Snapshot.Elected.Record
	h.in.Snapshot = h.group().fence(rec.Node, rec.Term, cluster.FenceReleased).Snapshot
	h.in.Snapshot.Fence.Record.Reason = "the child exited"
	h.in.Snapshot.Current = cluster.Stored[cluster.Current]{}
	if replaced {
		h.e = newElector()
	}
	for began := h.in.Now; ; {
		d := h.decide()
		if d.Elect != nil {
			h.write(d)
			h.lead()
			return h.in.Now - began
		}
		if d.Wake == 0 {
			h.t.Fatalf("no leader, and no time to retry: %q", d.Note)
		}
		h.pass(d.Wake - h.in.Now)
	}
}

// L3 without using up terms: what fails everywhere is tried again with growing pauses, by all members in turn.
func TestThePausesGrowWhenEveryMemberHasFailed(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		for members, first := range map[int]int{1: 1, 2: 2, 4: 4} {
			h := newGroup([]string{"a", "b", "c", "d"}[:members]...).scenario(t)
			h.leader("a", cluster.CauseFirst)
			var waits []time.Duration
			turns := make(map[string]int)
			for range first + 20 {
				waits = append(waits, h.fail(replaced))
				turns[h.in.Snapshot.Elected.Record.Node]++
			}
			want := slices.Repeat([]time.Duration{0}, first)
			for pause := 500 * time.Millisecond; len(want) < len(waits); pause *= 2 {
				want = append(want, min(pause, 30*time.Second))
			}
			if !slices.Equal(waits, want) {
				t.Errorf("%d members, another elector each time: %t: waits\n%v, want\n%v", members, replaced, waits, want)
			}
			for id, n := range turns {
				if n < (first+20)/members-1 {
					t.Errorf("%d members: %s had %d turns of %d: %v", members, id, n, first+20, turns)
				}
			}
		}
	}
}

// As long as a member has not failed, it is elected at once, and nothing is wrong with the group.
func TestNoPauseWhileAMemberHasNotFailed(t *testing.T) {
	h := newGroup("a", "b", "c").scenario(t)
	h.leader("a", cluster.CauseFirst)
	for _, want := range []string{"b", "c"} {
		if waited := h.fail(false); waited > 0 || h.in.Snapshot.Elected.Record.Node != want {
			t.Fatalf("%s was elected after %s, want %s", h.in.Snapshot.Elected.Record.Node, waited, want)
		}
		if d := h.decide(); d.Failing != nil {
			t.Errorf("while %s leads: %s", want, d.Failing.Describe(true))
		}
	}
	h.fail(false)
	d := h.decide()
	if d.Failing == nil {
		t.Fatal("all three have failed, and nothing says so")
	}
	want := fmt.Sprintf("every member that could lead has failed since %s; the last reason: c gave up: the child exited", wall.UTC().Format(time.RFC3339))
	want += "; if this attempt fails as well, the next one begins 500ms later"
	if got := d.Failing.Describe(true); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	h.remove("a")
	if d = h.decide(); d.Elect == nil || d.Elect.Node != "b" {
		t.Errorf("after the loss of a leader, which is no failure of its work: %+v, %s", d.Elect, d.Note)
	}
}

// During the pause, each member says why it is not elected.
func TestThePauseIsExplained(t *testing.T) {
	h := newGroup("a", "b").scenario(t)
	h.leader("a", cluster.CauseFirst)
	h.fail(false)
	h.fail(false)
	rec := h.in.Snapshot.Elected.Record
	h.in.Snapshot = h.group().fence(rec.Node, rec.Term, cluster.FenceReleased).Snapshot
	h.in.Snapshot.Current = cluster.Stored[cluster.Current]{}
	d := h.decide()
	if d.Elect != nil || d.Wake != h.in.Now+500*time.Millisecond || !strings.HasPrefix(d.Note, "every member that could lead has failed") {
		t.Fatalf("%+v, note %q", d.Elect, d.Note)
	}
	for _, entry := range d.Ranking.Entries {
		if want := "; the next attempt begins 500ms after the last failure"; !strings.HasSuffix(entry.RefusalReason(), want) {
			t.Errorf("%s: %s", entry.Member.ID, entry.RefusalReason())
		}
	}
	if want := "; the next attempt begins at " + d.Failing.Last.Time.Add(500*time.Millisecond).UTC().Format(time.TimeOnly) + " UTC"; !strings.HasSuffix(d.Note, want) {
		t.Errorf("the note is %q", d.Note)
	}
	if !d.AwaitsRetry(h.in.Snapshot) {
		t.Error("a forecast would end here")
	}
}

// A strike that every other member has as well keeps its node out no longer than it takes to try all.
func TestStrikesOfACommonCauseAreShort(t *testing.T) {
	h := newGroup("a", "b").scenario(t)
	h.leader("a", cluster.CauseFirst)
	for range 12 {
		h.fail(false)
	}
	for _, x := range h.in.Exclusions {
		if x.Strikes < 6 || time.Duration(x.For) > 3*time.Minute {
			t.Errorf("strike %d of %s excludes it for %s", x.Strikes, x.Node, x.For)
		}
	}
}

// Attempts may take long. That does not make a failure count as over before all others have been tried.
func TestSlowFailuresOfACommonCause(t *testing.T) {
	h := newGroup("a", "b", "c").scenario(t)
	h.e = New(Options{Exclusion: time.Minute, ExclusionMax: time.Hour, Takeover: 2 * time.Minute})
	h.leader("a", cluster.CauseFirst)
	var waited time.Duration
	for i := range 40 {
		h.pass(2 * time.Minute)
		waited = h.fail(false)
		if d := h.decide(); i > 20 && d.Failing == nil {
			t.Errorf("after %d failures, the last of %s, nothing says that all have failed", i+1, h.in.Snapshot.Elected.Record.PreviousNode)
		}
	}
	if waited != 30*time.Second {
		t.Errorf("waits %s", waited)
	}
}

func TestAmnestySparesTheLastFailureWhereverItIsListed(t *testing.T) {
	in := newGroup("a", "b").elected("b", 9).fence("b", 9, cluster.FenceReady).input(t)
	in.Snapshot.Members = in.Snapshot.Members[:0:0]
	in.Snapshot.Members = newGroup("a", "c").Members
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		all := []cluster.Exclusion{
			{Node: "a", Strikes: 3, For: cluster.Duration(time.Minute), Term: 5, Reason: "x"},
			{Node: "c", Strikes: 1, For: cluster.Duration(time.Minute), Term: 8, Reason: "y"},
		}
		in.Exclusions = []cluster.Exclusion{all[order[0]], all[order[1]]}
		d := newElector().Decide(in)
		if d.Elect == nil || d.Elect.Node != "a" {
			t.Fatalf("elected %+v (%s)", d.Elect, d.Note)
		}
		for _, x := range d.Elect.Exclusions {
			if x.Suspended != (x.Node == "a") || !x.Failed() {
				t.Errorf("%+v", x)
			}
		}
	}
}

// An operator who wants the leader to go gets whoever is left. Otherwise a leader that at least works stays.
func TestWhoReplacesALeaderWhenTheOthersHaveFailed(t *testing.T) {
	drained := cluster.Control{Cordons: []cluster.Cordon{{Request: by(1), Node: "a", Drain: true}}}
	for name, c := range map[string]struct {
		change func(h *scenario)
		leader string
		cause  cluster.Cause
	}{
		"drained":    {func(h *scenario) { h.control(drained) }, "b", cluster.CauseDrain},
		"leaving":    {func(h *scenario) { h.group().node("a").Leaving = "it is shut down" }, "b", cluster.CauseStopped},
		"unhealthy":  {func(h *scenario) { h.group().node("a").Unhealthy = "sick" }, "a", ""},
		"ineligible": {func(h *scenario) { h.group().node("a").Ineligible = "an observer" }, "a", ""},
	} {
		h := newGroup("a", "b").leads("a", 7).scenario(t)
		h.exclude([]cluster.Exclusion{{Node: "b", Strikes: 1, For: cluster.Duration(time.Minute), Term: 6, Reason: "its child exited"}})
		c.change(h)
		h.leader(c.leader, c.cause)
		if c.cause == "" && !strings.Contains(h.decide().Blocked.Reason, "but only members that have failed could replace it: b: excluded for 1m0s after strike 1: its child exited") {
			t.Errorf("%s: %s", name, h.decide().Blocked)
		}
	}
}
