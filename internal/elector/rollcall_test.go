package elector

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// fresh is a policy by scores that are measured for each election.
var fresh = cluster.Rules{
	Type: "score", Failback: cluster.FailbackImmediate, RollCall: cluster.RollCallRules{Enabled: true, Timeout: cluster.Duration(5 * time.Second)},
}

// numbers are those of roll calls, in the order in which they are called.
func number(n uint64) string { return cluster.NewInstance(n) }

// published makes members publish scores.
func (g *group) published(scores map[string]float64) *group {
	for id, x := range scores {
		g.node(id).Score = &x
	}
	return g
}

// call makes a roll call for the elected term visible, as if the elector had just written it.
func (h *scenario) call(n uint64) {
	h.in.Now += 10 * time.Millisecond
	h.in.RollCallSeen = h.in.Now
	elected, _ := h.in.Snapshot.Terms()
	h.in.Snapshot.RollCall = cluster.Stored[cluster.RollCall]{Exists: true, Record: cluster.RollCall{Term: elected, Number: number(n)}}
}

// answer makes a member answer the roll call.
func (h *scenario) answer(id string, score float64) {
	h.in.Now += 10 * time.Millisecond
	h.group().node(id).Answer = &cluster.Answer{Number: h.in.Snapshot.RollCall.Record.Number, Score: &score}
}

// calls checks that the elector wants a roll call, and writes nothing else.
func (h *scenario) calls() Decision {
	h.t.Helper()
	d := h.decide()
	if !d.CallRoll || !d.AwaitsAnswers || d.Elect != nil || d.Control != nil || d.Wake == 0 {
		h.t.Fatalf("no roll call: %+v", d)
	}
	return d
}

// waits checks that the elector waits for answers.
func (h *scenario) waits() Decision {
	h.t.Helper()
	d := h.decide()
	if d.CallRoll || !d.AwaitsAnswers || d.Elect != nil || d.Control != nil {
		h.t.Fatalf("does not wait: %+v", d)
	}
	return d
}

// elects checks who is elected, by which roll call.
func (h *scenario) elects(id string) *cluster.Elected {
	h.t.Helper()
	d := h.decide()
	if d.Elect == nil || d.Elect.Node != id || d.CallRoll || d.AwaitsAnswers {
		h.t.Fatalf("%s is not elected: %+v", id, d)
	}
	return d.Elect
}

// lost is a group whose leader a is lost; by what they publish, b is better than c.
func lost(t *testing.T, rules cluster.Rules) *scenario {
	t.Helper()
	h := newGroup("a", "b", "c").published(map[string]float64{"a": 9, "b": 5, "c": 1}).leads("a", 7).scenario(t, rules)
	h.decide()
	h.remove("a")
	h.in.Snapshot.Current = cluster.Stored[cluster.Current]{}
	h.in.Now += time.Second
	return h
}

func TestAnElectionDoesNotWaitForeverForAnswers(t *testing.T) {
	h := lost(t, fresh)
	h.calls()
	h.call(1)
	h.answer("c", 1)
	h.waits()
	h.in.Now = h.in.RollCallSeen + 5*time.Second
	if rec := h.elects("c"); rec.Ranking[1].Answer != nil || !strings.Contains(rec.Ranking[1].Reason, "no answer to the roll call") {
		t.Errorf("%+v", rec.Ranking)
	}

	h = lost(t, fresh) // it cannot be called
	began := h.in.Now
	h.calls()
	h.in.Now = began + 5*time.Second
	if rec := h.elects("b"); rec.Ranking[0].Answer != nil {
		t.Errorf("%+v", rec.Ranking)
	}

	h = lost(t, fresh) // others call it again and again
	began = h.in.Now
	h.calls()
	for n := uint64(1); h.in.Now < began+14*time.Second; n++ {
		h.call(n)
		h.waits()
		h.in.Now += 4 * time.Second
	}
	h.elects("b")

	h = lost(t, fresh) // a newer version has
	h.in.Snapshot.RollCall = cluster.Stored[cluster.RollCall]{Exists: true, Err: &cluster.NewerVersionError{Path: "/c/rollcall", Version: 2}}
	h.elects("b")
}

// over makes the lease of a silent holder be over, which a transaction has written.
func (h *scenario) over(modified int64) {
	h.in.Lease, h.in.LeaseOver = cluster.LeaseZnodeSeen{At: 1, Stat: cluster.Stat{Modified: modified}}, true
}

func TestOnlyAnswersAfterTheLossCount(t *testing.T) {
	for name, change := range map[string]func(h *scenario){
		"called before this member looked": func(h *scenario) { h.in.RollCallSeen = 0 },
		"called before the loss":           func(h *scenario) { h.in.RollCallSeen = h.in.Now - time.Minute },
		"for the decision before":          func(h *scenario) { h.in.Snapshot.RollCall.Record.Term = 6 },
		"damaged":                          func(h *scenario) { h.in.Snapshot.RollCall.Err = cluster.ErrNoAuth },
		"before a renewal of a silent one": func(h *scenario) { h.over(61); h.in.Snapshot.RollCall.Record.Lease = 60 },
		"for another election than of a successor of a silent one": func(h *scenario) { h.over(61) },
		"before another lease was granted": func(h *scenario) {
			h.over(61)
			h.in.Snapshot.RollCall.Record.Lease, h.in.Snapshot.Fence.Stat.Modified = 61, 62
		},
		"while the holder worked on by promises": func(h *scenario) {
			h.over(61)
			h.in.Snapshot.RollCall.Record.Lease = 61
			h.in.Snapshot.Fence.Record.Failsafe = &cluster.Failsafe{Members: []cluster.FailsafeMember{{}}}
			h.in.RollCallSeen -= time.Minute
		},
		"too long ago": func(h *scenario) {
			h.over(61)
			h.in.Snapshot.RollCall.Record.Lease = 61
			h.in.RollCallSeen -= answersAge
		},
		"while nobody was known to be lost": func(h *scenario) {
			h.over(61)
			h.in.LeaseOver, h.in.Snapshot.RollCall.Record.Lease = false, 61
			h.in.RollCallSeen -= time.Minute
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := lost(t, fresh)
			h.call(1)
			h.answer("b", 1)
			h.answer("c", 2)
			change(h)
			h.calls()
		})
	}
}

// A deputy calls the roll while it waits for the end of a silent leader's lease: then TAKE waits for nothing.
func TestAnEarlyRollCallCountsForTake(t *testing.T) {
	h := newGroup("a", "b", "c").published(map[string]float64{"b": 5, "c": 1}).leads("a", 7).scenario(t, fresh).watched()
	h.decide()
	h.in.Lease = cluster.LeaseZnodeSeen{At: h.in.Now, Stat: cluster.Stat{Modified: 60}}
	h.in.Snapshot.Fence.Record.LeaseWait = cluster.Duration(4 * time.Second)
	h.in.Now += 3 * time.Second // its guard begins to kill
	h.call(1)
	h.in.Snapshot.RollCall.Record.Lease = 60
	h.answer("b", 7)
	h.answer("c", 8)
	h.in.Now += time.Second
	h.silent("a")
	d := h.decide()
	if d.Elect == nil || !d.Take || d.Elect.Node != "c" {
		t.Fatalf("%+v", d)
	}
}

func TestAPlannedMoveAsksBeforeAnythingStops(t *testing.T) {
	planned := func() *scenario {
		h := newGroup("a", "b", "c").published(map[string]float64{"a": 9, "b": 5, "c": 1}).leads("a", 7).scenario(t, fresh)
		h.decide()
		return h
	}
	for name, change := range map[string]func(h *scenario){
		"reelect": func(h *scenario) {
			h.control(cluster.Control{Last: 1, Reelect: &cluster.Request{ID: 1, By: "ann@host"}})
		},
		"move": func(h *scenario) {
			h.control(cluster.Control{Last: 1, Move: &cluster.Move{Request: by(1, time.Hour), Site: "dc2"}})
			h.group().sites("dc1", "dc2", "dc2")
		},
		"drain": func(h *scenario) {
			h.control(cluster.Control{Last: 1, Cordons: []cluster.Cordon{{Request: by(1), Node: "a", Drain: true}}})
		},
		"preemption": func(h *scenario) { h.group().published(map[string]float64{"b": 100, "c": 50}) },
		"a leaver":   func(h *scenario) { h.group().node("a").Leaving = "asked to stop" },
		"a sick one": func(h *scenario) { h.group().node("a").Unhealthy = "no disk" },
	} {
		t.Run(name, func(t *testing.T) {
			h := planned()
			change(h)
			if d := h.calls(); d.NoSuccessor {
				t.Error("a leaver does not wait for its successor")
			}
			h.call(1)
			h.answer("a", 9)
			h.answer("b", 10)
			h.waits()
			h.answer("c", 12)
			h.elects("c")
		})
	}
}

// Policy does not call the roll again and again because what members publish says something else than their answers.
func TestAnswersAgainstAPreemptionHoldForAWhile(t *testing.T) {
	h := newGroup("a", "b").published(map[string]float64{"a": 1, "b": 5}).leads("a", 7).scenario(t, fresh)
	h.calls()
	h.call(1)
	h.answer("b", 1)
	h.answer("a", 100)
	if d := h.decide(); d.Elect != nil || d.CallRoll {
		t.Fatalf("%+v", d)
	}
	answered := h.in.Now
	h.in.Now += 10 * time.Second
	d := h.decide()
	const why = "a roll call 10s ago has not led to another leader"
	if d.CallRoll || d.Elect != nil || d.Wake != answered+rollCallPause || !strings.Contains(d.Blocked.Reason, why) {
		t.Fatalf("blocked by %q, wakes at %s: %+v", d.Blocked, d.Wake, d)
	}
	h.in.Now = answered + rollCallPause
	h.calls()
	// A loss does not wait for that.
	h.call(2)
	h.answer("a", 100)
	h.answer("b", 1)
	h.decide()
	h.remove("a")
	h.in.Snapshot.Current = cluster.Stored[cluster.Current]{}
	h.calls()
}

// That holds also if what members publish changes back before they have answered.
func TestNoisyScoresCallTheRollOnceInAWhile(t *testing.T) {
	h := newGroup("a", "b").published(map[string]float64{"a": 1, "b": 5}).leads("a", 7).scenario(t, fresh)
	h.calls()
	h.call(1)
	h.group().published(map[string]float64{"b": 0})
	if d := h.decide(); d.Elect != nil || d.AwaitsAnswers {
		t.Fatalf("%+v", d)
	}
	dropped := h.in.Now
	h.group().published(map[string]float64{"b": 5})
	if d := h.decide(); d.CallRoll || d.AwaitsAnswers || d.Wake != dropped+rollCallPause {
		t.Errorf("wakes at %s: %+v", d.Wake, d)
	}
	h.in.Now = dropped + rollCallPause
	h.calls()
}

func TestAnElectionEndsThePauseOfRollCalls(t *testing.T) {
	h := lost(t, fresh)
	h.calls()
	h.call(1)
	h.answer("b", 1)
	h.answer("c", 2)
	h.elects("c")
	h.write(h.decide())
	h.lead()
	h.group().published(map[string]float64{"c": 100})
	if d := h.decide(); d.Elect != nil || d.CallRoll {
		t.Errorf("%+v", d)
	}
	h.group().published(map[string]float64{"c": 1}) // less than b
	h.calls()
}

// Another elector has decided meanwhile, and that member is lost as well.
func TestALossAfterAnotherDecisionAsksAgain(t *testing.T) {
	h := lost(t, fresh)
	h.calls()
	h.in.Snapshot = h.group().elected("x", 8).fence("x", 8, cluster.FenceReady).Snapshot
	h.call(2)
	h.answer("b", 1)
	h.answer("c", 2)
	h.calls()
}

func TestALossDuringAPlannedMoveAsksAgain(t *testing.T) {
	h := newGroup("a", "b", "c").leads("a", 7).scenario(t, fresh)
	h.group().node("a").Leaving = "asked to stop"
	h.calls()
	h.call(1)
	h.answer("b", 1)
	h.waits()
	h.in.Snapshot.Fence.Record.State, h.in.Snapshot.Fence.Record.Requested = cluster.FenceReleased, true
	h.in.Snapshot.Current = cluster.Stored[cluster.Current]{}
	h.in.Now += time.Second
	h.answer("c", 2)
	h.calls()
}

// A candidate that is overdue may have begun its work: if it is lost while it is about to be replaced, the answers are asked for again.
func TestTheLossOfAnOverdueCandidateAsksAgain(t *testing.T) {
	h := newGroup("a", "b", "c").published(map[string]float64{"a": 9, "b": 5, "c": 1}).leads("a", 7).scenario(t, fresh)
	h.in.Snapshot.Fence.Record.State = cluster.FenceHeld
	h.in.Overdue = "has not taken over within 30s"
	h.calls()
	h.call(1)
	h.answer("b", 5)
	h.remove("a")
	h.in.Overdue, h.in.Snapshot.Current = "", cluster.Stored[cluster.Current]{}
	h.calls()
	h.call(2)
	h.answer("b", 1)
	h.answer("c", 2)
	if e := h.elects("c"); e.Cause != cluster.CauseFailure {
		t.Errorf("cause %s", e.Cause)
	}
}

func TestALagLimitRefusesMembersByTheirAnswers(t *testing.T) {
	rules := fresh
	rules.Filter = []string{"best.score - member.score <= 10"}
	h := newGroup("a", "b", "c").leads("a", 7).scenario(t, rules)
	h.control(cluster.Control{Last: 1, Move: &cluster.Move{Request: by(1, time.Hour), Node: "b"}})
	h.calls()
	h.call(1)
	h.answer("a", 100)
	h.answer("b", 89)
	h.answer("c", 95)
	d := h.decide()
	if d.Elect != nil || d.Control == nil || d.Control.Move != nil {
		t.Fatalf("moved to a member that lags: %+v", d)
	}
	h.write(d)
	h.ended(1, "policy.filter does not hold: best.score - member.score <= 10")

	h = lost(t, rules) // nobody may lead: the answers are asked for again some time later
	h.group().node("c").Unhealthy = "no disk"
	h.calls()
	h.call(1)
	h.answer("c", 100)
	h.answer("b", 1)
	d = h.decide()
	if d.Elect != nil || !strings.Contains(d.Note, "best.score") || d.Wake != h.in.Now+answersAge {
		t.Fatalf("%+v", d)
	}
	h.in.Now += answersAge
	h.calls()
	h.call(2)
	h.answer("b", 95)
	h.elects("b")
}

func TestNobodyIsAskedInVain(t *testing.T) {
	off := fresh
	off.RollCall.Enabled = false
	h := lost(t, off)
	h.call(1)
	h.answer("c", 100)
	h.elects("b")

	h = lost(t, fresh) // nobody may lead
	h.group().node("b").Unhealthy, h.group().node("c").Ineligible = "no disk", "an observer"
	if d := h.decide(); d.CallRoll || d.AwaitsAnswers || d.Note == "" {
		t.Errorf("%+v", d)
	}

	h = lost(t, fresh) // people who ask what would happen
	h.e = New(Options{Exclusion: time.Minute, ExclusionMax: time.Hour, Estimate: true})
	h.elects("b")

	h = lost(t, fresh) // a slot
	h.in.Snapshot = h.group().slot(1, 1).Snapshot
	h.e = New(Options{Exclusion: time.Minute, ExclusionMax: time.Hour, Epoch: epoch})
	h.elects("b")

	h = newGroup("a", "b", "c").published(map[string]float64{"b": 5}).leads("a", 7).scenario(t, fresh) // a forecast
	if heir := h.e.Heir(h.in); heir == nil || heir.Node != "b" {
		t.Errorf("the heir is %+v", heir)
	}
}

func TestTheRankingProgramGetsTheAnswers(t *testing.T) {
	rules := fresh
	rules.Type = "exec"
	h := lost(t, rules)
	h.in.Answer = &policy.Answer{Ranking: []string{"b", "c"}}
	h.calls()
	h.call(1)
	h.answer("b", 1)
	h.answer("c", 2)
	d := h.waits()
	if d.Wake != h.in.Now+time.Millisecond {
		t.Errorf("wakes at %s, now %s", d.Wake, h.in.Now)
	}
	q, wanted := h.e.Question(h.in)
	if text := string(policy.QuestionJSON(q)); !wanted || !strings.Contains(text, `"score":2`) {
		t.Errorf("the program is asked %s", text)
	}
	h.in.Now += time.Millisecond
	h.in.Answer = &policy.Answer{Ranking: []string{"c", "b"}}
	h.elects("c")
}

// Whatever others do to roll calls and answers, a group whose leader is lost elects within three timeouts (L1), and as long as the members
// answer the elector's own roll call, the one with the highest answer is elected.
func TestAnyRollCall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newGroup("a", "b", "c", "d").leads("a", 7).scenario(t, fresh)
		h.decide()
		h.remove("a")
		h.in.Snapshot.Current = cluster.Stored[cluster.Current]{}
		began, calls, ids := h.in.Now, uint64(0), []string{"b", "c", "d"}
		for {
			d := h.decide()
			if d.Elect != nil {
				checkAnswered(t, h, d.Elect)
				return
			}
			if !d.AwaitsAnswers || h.in.Now-began >= 15*time.Second {
				t.Fatalf("%s after the loss: %+v", h.in.Now-began, d)
			}
			switch rapid.IntRange(0, 6).Draw(t, "event") {
			case 0, 1:
				calls++
				h.call(calls)
			case 2, 3:
				h.answer(rapid.SampledFrom(ids).Draw(t, "who"), float64(rapid.IntRange(-3, 3).Draw(t, "score")))
			case 4:
				h.in.Snapshot.RollCall = cluster.Stored[cluster.RollCall]{}
			case 5:
				h.in.Snapshot.RollCall.Err = cluster.ErrNoAuth
			}
			h.in.Now += time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond
			h.in.Now = min(h.in.Now, began+15*time.Second) // the elector wakes by itself
		}
	})
}

// checkAnswered checks that nobody has answered more than the elected member, if there are answers.
func checkAnswered(t *rapid.T, h *scenario, rec *cluster.Elected) {
	var most *float64
	for _, v := range rec.Ranking {
		if v.Answer != nil && v.Answer.Score != nil && (most == nil || *v.Answer.Score > *most) {
			most = v.Answer.Score
		}
	}
	if first := rec.Ranking[0]; most != nil && (first.Answer == nil || *first.Answer.Score != *most || first.Node != rec.Node) {
		t.Fatalf("%s is elected, by the ranking %+v", rec.Node, rec.Ranking)
	}
	for _, v := range rec.Ranking {
		m, _ := h.in.Snapshot.Member(v.Incarnation)
		if a := m.AnswerTo(h.in.Snapshot.RollCall.Record.Number); v.Answer != nil && (a == nil || *a.Score != *v.Answer.Score) {
			t.Fatalf("%+v is not what %s has answered: %+v", v.Answer, v.Node, a)
		}
	}
}
