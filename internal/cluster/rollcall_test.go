package cluster

import (
	"strings"
	"testing"
	"time"
)

func TestRollCallOfAnotherDecisionIsOver(t *testing.T) {
	call := RollCall{Term: 7, Number: NewInstance(1)}
	for name, c := range map[string]struct {
		change func(s *Snapshot)
		want   bool
	}{
		"for this decision": {func(*Snapshot) {}, true},
		"after the next":    {func(s *Snapshot) { s.Elected.Record.Term = 8 }, false},
		"no decision":       {func(s *Snapshot) { s.Elected = Stored[Elected]{} }, false},
		"none":              {func(s *Snapshot) { s.RollCall.Exists = false }, false},
		"damaged":           {func(s *Snapshot) { s.RollCall = Stored[RollCall]{Exists: true, Err: ErrNoAuth} }, false},
		"for the first": {func(s *Snapshot) {
			s.Elected, s.RollCall.Record.Term = Stored[Elected]{}, 0
		}, true},
	} {
		s := Snapshot{Elected: Stored[Elected]{Exists: true, Record: Elected{Term: 7}}, RollCall: Stored[RollCall]{Exists: true, Record: call}}
		c.change(&s)
		if got, ok := s.Called(); ok != c.want || ok && got.Number != call.Number {
			t.Errorf("%s: called: %t, %+v", name, ok, got)
		}
	}
}

func TestOnlyTheAnswerToThisRollCallCounts(t *testing.T) {
	one, two := NewInstance(1), NewInstance(2)
	m := Member{Node: Stored[Node]{Exists: true, Record: Node{Answer: &Answer{Number: one, Why: "no disk"}}}}
	if a := m.AnswerTo(one); a == nil || a.Why != "no disk" {
		t.Errorf("the answer is %+v", a)
	}
	if a := m.AnswerTo(two); a != nil {
		t.Errorf("an older answer counts: %+v", a)
	}
	m.Node.Err = ErrNoAuth
	if a := m.AnswerTo(one); a != nil {
		t.Errorf("a record that cannot be read answers %+v", a)
	}
}

func TestAnswersThatDecided(t *testing.T) {
	position := float64(1 << 53)
	ranking := []Verdict{
		{Node: "c", Answer: &Answer{Score: &position}}, {Node: "b", Answer: &Answer{Why: "no disk"}}, {Node: "d"},
	}
	if got, want := DescribeAnswers(AnswersIn(ranking)), "c 9007199254740992, b none (no disk), d none (no answer)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := AnswersIn(ranking[2:]); got != nil {
		t.Errorf("without a roll call: %v", got)
	}
}

func TestForgedRollCallsAreDamaged(t *testing.T) {
	for data, want := range map[string]string{
		`{"v":1,"term":1,"number":"0123456789abcdef","timeout":"1m0s"}`:  "",
		`{"v":1,"term":1,"number":"0123456789abcdef","timeout":"61s"}`:   "the timeout of 1m1s is above 1m0s",
		`{"v":1,"term":1,"number":"1","timeout":"1s"}`:                   "the number has 1 bytes",
		`{"v":1,"term":-1,"number":"0123456789abcdef","timeout":"1s"}`:   "term -1",
		`{"v":1,"term":1e17,"number":"0123456789abcdef","timeout":"1s"}`: "term",
	} {
		s := ReadStored[RollCall]("/c/rollcall", []byte(data), Stat{}, true)
		if (want == "") != (s.Err == nil) || s.Err != nil && !strings.Contains(s.Err.Error(), want) {
			t.Errorf("%s: %v, want %q", data, s.Err, want)
		}
	}
	if wait := (RollCallRules{Timeout: Duration(time.Hour)}).Wait(); wait != MaxRollCall {
		t.Errorf("forged rules make an election wait for %s", wait)
	}
}

func TestRollCallFromBeforeIsNotSeen(t *testing.T) {
	of := func(number string) *Snapshot {
		return &Snapshot{RollCall: Stored[RollCall]{Exists: true, Record: RollCall{Number: number}}}
	}
	var seen RollCallSeen
	for i, step := range []struct {
		number string
		want   time.Duration
	}{{"old", 0}, {"old", 0}, {"a", 3}, {"a", 3}, {"b", 5}} {
		if seen.Observe(of(step.number), time.Duration(i+1)); seen.At() != step.want {
			t.Errorf("step %d: the roll call %s was seen at %d, want %d", i, step.number, seen.At(), step.want)
		}
	}
	var first RollCallSeen
	first.Observe(&Snapshot{}, 1)
	if first.Observe(of("a"), 2); first.At() != 2 {
		t.Errorf("the first roll call of a group was seen at %d", first.At())
	}
}
