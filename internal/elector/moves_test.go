package elector

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

const noRoom = "4 groups of this elector's host move at the moment"

// failback is that of the tests, and lossPause twice its delay.
const (
	failback  = "30s"
	lossPause = time.Minute
)

// mover is a scenario in which a is better than the leader b, for an elector that has known both members for long.
func mover(t *testing.T) *scenario {
	t.Helper()
	h := newGroup("a", "b").leads("b", 7).scenario(t, cluster.Rules{Type: "priority", Failback: failback})
	h.e = New(Options{Exclusion: time.Minute, ExclusionMax: time.Hour, Group: "billing", Spread: true})
	h.group().node("a").Priority = 1
	h.leader("b", "")
	h.in.Now += lossPause
	h.group().node("a").Priority = 100
	return h
}

func TestAPreemptionWaitsItsJitter(t *testing.T) {
	h := mover(t)
	wait := jitter("billing", 7, time.Minute)
	if d := h.settle(); d.Wake != h.in.Now+wait || !strings.Contains(d.Blocked.Reason, fmt.Sprintf("a would be better than b (priority 100 against priority 99), but it waits %s so that not all groups move at once", wait.Round(time.Second))) {
		t.Fatalf("wakes %s, blocked %q, jitter %s", d.Wake-h.in.Now, d.Blocked, wait)
	}
	h.in.Now += wait - 1
	h.leader("b", "")
	h.in.Now++
	h.leader("a", cluster.CausePreempt)
}

// A preemption that is not wanted for a while waits again.
func TestTheJitterBeginsAgain(t *testing.T) {
	h := mover(t)
	h.leader("b", "")
	h.in.Now += time.Minute
	h.swap()
	h.leader("b", "")
	h.swap()
	h.leader("b", "")
	h.in.Now += time.Minute
	h.leader("a", cluster.CausePreempt)
}

func TestNoMoveAfterTheLossOfAHost(t *testing.T) {
	h := newGroup("a", "b", "c").leads("b", 7).scenario(t, cluster.Rules{Type: "priority", Failback: failback})
	h.e = New(Options{Exclusion: time.Minute, ExclusionMax: time.Hour, Group: "billing", Spread: true})
	wait := jitter("billing", 7, time.Minute)
	h.leader("b", "")
	// It has become the elector, so it does not know what became of the last one.
	h.in.Now += 30 * time.Second
	if d := h.settle(); d.Wake != h.in.Now+lossPause-30*time.Second || !strings.Contains(d.Blocked.Reason, "policy moves nothing for 1m0s after a member has vanished") {
		t.Fatalf("wakes %s, blocked %q", d.Wake, d.Blocked)
	}
	h.remove("c")
	lost := h.in.Now
	h.leader("b", "")
	h.in.Now = lost + lossPause + wait - 1
	h.leader("b", "")
	h.in.Now++
	h.leader("a", cluster.CausePreempt)
}

// A leader that stops as requested is no loss.
func TestALeaderThatLeavesIsNoLoss(t *testing.T) {
	h := newGroup("a", "b", "c").leads("c", 7).scenario(t, cluster.Rules{Type: "priority", Failback: failback})
	h.e = New(Options{Exclusion: time.Minute, ExclusionMax: time.Hour, Group: "billing", Spread: true})
	h.leader("c", "")
	h.in.Now += lossPause
	h.group().node("a").Ineligible = "an observer"
	f := h.group().fence("c", 7, cluster.FenceReleased)
	f.Fence.Record.Requested, f.Fence.Record.Stopping, f.Current = true, "c", cluster.Stored[cluster.Current]{}
	h.in.Snapshot = f.Snapshot
	h.leader("b", cluster.CauseStopped)
	h.remove("c")
	h.group().node("a").Ineligible = ""
	h.leader("b", "")
	h.in.Now += 30 * time.Second
	if d := h.settle(); !strings.Contains(d.Blocked.Reason, "so that not all groups move at once") {
		t.Errorf("blocked: %q", d.Blocked)
	}
}

func TestAMoveAwaitsRoom(t *testing.T) {
	h := mover(t)
	h.e.opt.Spread = false
	h.in.NoRoom = noRoom
	if d := h.settle(); !d.AwaitsRoom || !strings.Contains(d.Blocked.Reason, "but "+noRoom) || len(h.terms) > 0 {
		t.Fatalf("%+v", d)
	}
	h.in.NoRoom = ""
	h.leader("a", cluster.CausePreempt)
	if d := h.settle(); d.AwaitsRoom {
		t.Error("awaits room for no move")
	}
}

// The jitters of many groups, and of the terms of one, cover the whole time evenly.
func TestJitterIsEven(t *testing.T) {
	for what, of := range map[string]func(i int) time.Duration{
		"groups": func(i int) time.Duration { return jitter(fmt.Sprintf("svc-%02d", i), 1700000000, time.Minute) },
		"terms":  func(i int) time.Duration { return jitter("billing", 1700000000+int64(i), time.Minute) },
	} {
		var in [6]int
		for i := range 600 {
			j := of(i)
			if j < 0 || j > time.Minute {
				t.Fatal(j)
			}
			in[min(5, j/(10*time.Second))]++
		}
		for _, n := range in {
			if n < 70 || n > 130 {
				t.Errorf("%s: %v in each sixth of the time", what, in)
			}
		}
	}
}
