package elector

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

func (h *scenario) startsWith(o Options) *scenario {
	o.Exclusion, o.ExclusionMax = time.Minute, time.Hour
	h.e = New(o)
	return h
}

func TestTheFirstElectionWaitsForOtherHosts(t *testing.T) {
	h := newGroup("b").scenario(t, cluster.Rules{Type: "priority"}).startsWith(Options{Settle: 3 * time.Second})
	d := h.settle()
	if len(h.terms) > 0 || d.Wake != h.in.Now+3*time.Second || d.Note != "first election; the first election waits 3s until other hosts have started, too (election.settle)" {
		t.Fatalf("wakes %s, %+v", d.Wake-h.in.Now, d)
	}
	joined := newGroup("a", "b")
	h.in.Snapshot.Members = joined.Members
	h.in.Now += 3*time.Second - 1
	h.settle()
	if len(h.terms) > 0 {
		t.Fatal("did not wait for election.settle")
	}
	h.in.Now++
	h.leader("a", cluster.CauseFirst)
	h.remove("a")
	h.leader("b", cluster.CauseFailure) // at once
}

// All hosts start again, after their sessions have ended.
func TestTheElectionAfterARestartOfAllWaits(t *testing.T) {
	restart := func(succeeded bool) *scenario {
		h := newGroup("b").leads("x", 7).scenario(t, cluster.Rules{Type: "priority"}).startsWith(Options{Settle: 3 * time.Second})
		for _, id := range []string{"b", "a"} {
			h.in.Snapshot.Elected.Record.Ranking = append(h.in.Snapshot.Elected.Record.Ranking, cluster.Verdict{Node: id})
		}
		h.in.Succeeded = succeeded
		return h
	}
	restart(true).leader("b", cluster.CauseFailure) // it was a standby: the leader has failed
	h := restart(false)
	if d := h.settle(); len(h.terms) > 0 || !strings.HasPrefix(d.Note, "x is gone; the first election waits 3s") {
		t.Fatalf("%+v", d)
	}
	h.in.Snapshot.Members = newGroup("a", "b").Members
	h.leader("a", cluster.CauseFailure) // all members of the last election are registered
}

// A host that was ranked below the best one that has started is not waited for: it may be lost.
func TestTheElectionAfterARestartWaitsForNoWorseHost(t *testing.T) {
	restart := func(leaving int, ids ...string) *scenario {
		h := newGroup(ids...).leads("x", 7).scenario(t, cluster.Rules{Type: "priority"}).startsWith(Options{Settle: 3 * time.Second})
		for i, id := range []string{"a", "b", "c"} {
			h.in.Snapshot.Elected.Record.Ranking = append(h.in.Snapshot.Elected.Record.Ranking, cluster.Verdict{Node: id, Rank: i + 1})
		}
		if leaving > 0 {
			h.in.Snapshot.Elected.Record.Ranking[leaving].Rank = 0
		}
		h.in.Succeeded = false
		return h
	}
	restart(0, "a").leader("a", cluster.CauseFailure)
	restart(0, "a", "b").leader("a", cluster.CauseFailure)
	for name, h := range map[string]*scenario{
		"the best":              restart(0, "b", "c"),
		"one that was stopping": restart(2, "a", "b"),
	} {
		if h.settle(); len(h.terms) > 0 {
			t.Errorf("%s is missing: did not wait", name)
		}
	}
}

func TestAnElectorThatHasSeenALeaderDoesNotWait(t *testing.T) {
	h := newGroup("a", "b").leads("a", 7).scenario(t, cluster.Rules{Type: "priority"}).startsWith(Options{Settle: time.Hour})
	h.leader("a", "")
	h.remove("a")
	h.leader("b", cluster.CauseFailure)
}
