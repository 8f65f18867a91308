package elector

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// What members publish was not measured at the same time: by it a replica seems to be ahead of its leader.
func TestManualFailbackComparesNoPublishedScores(t *testing.T) {
	for _, c := range []struct {
		kind     string
		rollCall bool
		want     string
	}{{"score", false, "would be better"}, {"score", true, ""}, {"priority", true, "would be better"}} {
		h := newGroup("a", "b").leads("b", 7).scenario(t, cluster.Rules{
			Type: c.kind, Failback: cluster.FailbackManual, RollCall: cluster.RollCallRules{Enabled: c.rollCall},
		})
		score := 7.0
		h.group().node("a").Score = &score
		if d := h.settle(); !strings.Contains(d.Blocked.Reason, c.want) || c.want == "" && d.Blocked.Reason != "" {
			t.Errorf("%s, %t: %q", c.kind, c.rollCall, d.Blocked.Reason)
		}
	}
}

func TestDelayedFailbackNeedsUnbrokenEligibility(t *testing.T) {
	h := newGroup("a", "b").leads("b", 7).scenario(t, cluster.Rules{Type: "priority", Failback: "30s"})
	if d := h.settle(); d.Wake != h.in.Now+30*time.Second || !strings.Contains(d.Blocked.Reason, "delayed until it has been eligible for 30s") {
		t.Errorf("at once: wake %s, held %q", d.Wake, d.Blocked)
	}
	h.in.Now += 20 * time.Second
	h.group().node("a").Ineligible = "sick"
	if d := h.settle(); d.Blocked.Reason != "" {
		t.Errorf("one that may not lead is blocked: %q", d.Blocked)
	}
	h.group().node("a").Ineligible = ""
	h.in.Now += 20 * time.Second
	h.leader("b", "")
	h.in.Now += 29 * time.Second
	h.leader("b", "")
	h.in.Now += time.Second
	h.leader("a", cluster.CausePreempt)
}

// swap reverses which member policy prefers.
func (h *scenario) swap() {
	a, b := h.group().node("a"), h.group().node("b")
	a.Priority, b.Priority = b.Priority, a.Priority
}

func TestDampingLimitsPreemptions(t *testing.T) {
	h := newGroup("a", "b").leads("b", 7).scenario(t, cluster.Rules{Type: "priority", MaxPreemptions: 2})
	h.leader("a", cluster.CausePreempt)
	h.swap()
	rec := h.leader("b", cluster.CausePreempt)
	if len(rec.Preemptions) != 2 || rec.Preemptions[1].Term != rec.Term {
		t.Errorf("moves %v of term %d", rec.Preemptions, rec.Term)
	}
	h.swap()
	d := h.settle()
	if len(h.terms) != 2 || !strings.Contains(d.Blocked.Reason, "policy.max_preemptions allows no more") || d.Wake != h.in.Now+time.Hour {
		t.Errorf("moved %d times; blocked: %q; wake %s", len(h.terms), d.Blocked, d.Wake)
	}
	h.in.Now += time.Hour - 1
	h.leader("b", "")
	h.in.Now++
	if rec := h.leader("a", cluster.CausePreempt); len(rec.Preemptions) != 1 {
		t.Errorf("moves that no longer count are kept: %v", rec.Preemptions)
	}
}

// publish puts a policy in force with the next revision, as an operator does.
func (h *scenario) publish(rules cluster.Rules) {
	h.t.Helper()
	rec := cluster.Policy{Revision: h.in.Snapshot.Policy.Record.Revision + 1, Rules: rules}
	p, err := policy.New(rec)
	if err != nil {
		h.t.Fatal(err)
	}
	h.in.Policy, h.in.Snapshot.Policy = p, cluster.Stored[cluster.Policy]{Exists: true, Record: rec}
}

// The first preemption under a new revision is an operator's order: it is neither damped nor counted. The next one is.
func TestANewPolicyIsNotDamped(t *testing.T) {
	rules := cluster.Rules{Type: "priority", MaxPreemptions: 1}
	h := newGroup("a", "b").leads("b", 7).scenario(t, rules)
	h.publish(rules)
	if rec := h.leader("a", cluster.CausePreempt); len(rec.Preemptions) != 0 {
		t.Errorf("a preemption for a new policy counts: %v", rec.Preemptions)
	}
	h.swap()
	h.leader("b", cluster.CausePreempt)
	h.swap()
	if h.leader("b", ""); !strings.Contains(h.settle().Blocked.Reason, "policy.max_preemptions") {
		t.Fatal("not damped")
	}
	rules.Sites = map[string]int{"dc1": 5}
	h.publish(rules)
	if rec := h.leader("a", cluster.CausePreempt); len(rec.Preemptions) != 1 || rec.PolicyRevision != 2 {
		t.Errorf("preemptions %v under revision %d", rec.Preemptions, rec.PolicyRevision)
	}
	h.swap()
	h.leader("a", "")
}

// What holds a better member back is said with its remedy, and with its end if that is known.
func TestBlockedSaysWhatToDo(t *testing.T) {
	paused := func(h *scenario) {
		p := by(1, time.Hour)
		p.Time = h.in.Wall
		h.control(cluster.Control{Pause: &cluster.Pause{Request: p}})
	}
	damped := func(h *scenario) {
		h.in.Snapshot.Elected.Record.Preemptions = []cluster.Preemption{{Term: 5, Time: h.in.Wall.Add(-20 * time.Minute)}}
	}
	clock := func(after time.Duration) string { return wall.Add(after).UTC().Round(time.Second).Format(time.RFC3339) }
	for name, c := range map[string]struct {
		rules    cluster.Rules
		estimate bool
		change   func(*scenario)
		want     string
	}{
		"manual":    {cluster.Rules{Failback: cluster.FailbackManual}, false, nil, ", but failback is manual; 'zkelectd reelect' moves leadership now"},
		"delayed":   {cluster.Rules{Failback: "1h"}, false, nil, "eligible for 1h0m0s, until about " + clock(time.Hour) + "; 'zkelectd reelect' moves"},
		"paused":    {cluster.Rules{}, false, paused, "paused by ann@host: new kernel, until about " + clock(time.Hour) + "; 'zkelectd resume' ends the pause"},
		"damped":    {cluster.Rules{MaxPreemptions: 1}, false, damped, "allows no more, until about " + clock(time.Hour) + "; 'zkelectd reelect' moves"},
		"estimated": {cluster.Rules{MaxPreemptions: 1}, true, damped, "allows no more, until about " + clock(40*time.Minute) + "; 'zkelectd reelect' moves"},
	} {
		c.rules.Type = "priority"
		h := newGroup("a", "b").leads("b", 7).scenario(t, c.rules)
		h.e = New(Options{Exclusion: time.Minute, ExclusionMax: time.Hour, Estimate: c.estimate})
		if c.change != nil {
			c.change(h)
		}
		d := h.settle()
		if got := d.Blocked.Sentence(h.in.Now, h.in.Wall); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A node that comes back after it was fenced waits before it replaces the leader that has fenced it.
func TestAFencedNodeWaitsBeforeItPreempts(t *testing.T) {
	h := newGroup("a", "b").leads("b", 7).scenario(t, cluster.Rules{Type: "priority"})
	h.e.opt.Exclusion = 30 * time.Second
	f := &h.in.Snapshot.Fence.Record
	f.Fencing = []cluster.FencingResult{{Node: "a", Term: 6}}
	d := h.settle()
	if len(h.terms) > 0 || !strings.Contains(d.Blocked.Reason, "b has fenced it in term 7, and a fenced node replaces no healthy leader for 30s") || d.Wake != h.in.Now+30*time.Second {
		t.Errorf("elected %+v; blocked %q until %s", h.terms, d.Blocked, d.Wake)
	}
	h.in.Now += 29 * time.Second
	h.leader("b", "")
	h.in.Now += time.Second
	h.leader("a", cluster.CausePreempt)

	// An attempt that failed is no reason to wait, and an election is not delayed.
	h = newGroup("a", "b").leads("b", 7).scenario(t, cluster.Rules{Type: "priority"})
	h.in.Snapshot.Fence.Record.Fencing = []cluster.FencingResult{{Node: "a", Term: 6, Error: "no answer"}}
	h.leader("a", cluster.CausePreempt)
	h = newGroup("a", "b").leads("b", 7).scenario(t, cluster.Rules{Type: "priority"})
	h.in.Snapshot.Fence.Record.Fencing = []cluster.FencingResult{{Node: "a", Term: 6}}
	h.remove("b")
	h.leader("a", cluster.CauseFailure)
}
