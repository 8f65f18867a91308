package elector

import (
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

func TestAnElectionWaitsForTheProgramForALimitedTime(t *testing.T) {
	const timeout = policy.ProgramTimeout
	in := newGroup("a", "b").leads("a", 7).input(t, cluster.Rules{Type: "exec"})
	began := in.Now
	e := newElector()
	var p Program
	ready, wake, ask := p.Update(e, &in)
	if ready || ask == nil || wake != began+2*timeout {
		t.Fatalf("at first: %v, wakes at %s, asks %v", ready, wake, ask)
	}
	if ready, _, again := p.Update(e, &in); ready || again != nil {
		t.Error("asked twice at once")
	}
	late := in
	late.Now = began + 2*timeout
	if ready, wake, _ := p.Update(e, &late); !ready || wake != 0 || late.Answer == nil || late.Answer.Err == "" {
		t.Errorf("an answer that does not come: %v, %+v", ready, late.Answer)
	}
	p.SetResult(ask, policy.Answer{Ranking: []string{"b"}}, began)
	if ready, wake, again := p.Update(e, &in); !ready || again != nil || wake != began+AnswerAge || in.Answer == nil || in.Answer.Ranking[0] != "b" {
		t.Errorf("once answered: %v, %+v", ready, in.Answer)
	}
}

func TestAnOldAnswerIsUsedWhileTheProgramRunsAgain(t *testing.T) {
	in := newGroup("a", "b").leads("a", 7).input(t, cluster.Rules{Type: "exec"})
	e := newElector()
	var p Program
	_, _, ask := p.Update(e, &in)
	p.SetResult(ask, policy.Answer{Ranking: []string{"a", "b"}}, in.Now)
	in.Now += AnswerAge
	in.Answer = nil
	ready, wake, ask := p.Update(e, &in)
	if !ready || ask == nil || in.Answer == nil || wake != 0 {
		t.Errorf("%v, %+v, asks %v, wakes at %s: a time in the past would make it spin", ready, in.Answer, ask, wake)
	}
	in.Answer = nil
	if ready, wake, again := p.Update(e, &in); !ready || wake != 0 || again != nil || in.Answer == nil {
		t.Errorf("while it is asked: %v, %s, %v", ready, wake, again)
	}
}

// A program that is busy with an old question gets the new one as soon as it is done, even if no election waits any more.
func TestTheProgramRunsAgainForAChangedQuestion(t *testing.T) {
	const timeout = policy.ProgramTimeout
	g := newGroup("a", "b").leads("a", 7)
	in := g.input(t, cluster.Rules{Type: "exec"})
	e := newElector()
	var p Program
	_, _, old := p.Update(e, &in)
	g.node("b").Priority = 500
	in.Snapshot = g.Snapshot
	in.Now += 2 * timeout
	p.SetResult(old, policy.Answer{Ranking: []string{"a", "b"}}, in.Now)
	if ready, _, ask := p.Update(e, &in); !ready || ask == nil || in.Answer.Err == "" {
		t.Errorf("%v, %+v, asks %v", ready, in.Answer, ask)
	}
}
