package elector

import (
	"fmt"
	"time"

	"zkelectd/internal/policy"
)

// AnswerAge is how long an answer to the same question is used before the ranking program runs again. The old answer
// stays in use meanwhile.
const AnswerAge = 30 * time.Second

// Program keeps the answers of an exec policy's ranking program, which the caller runs. It never delays an election by
// more than twice the program's timeout (L1).
type Program struct {
	busy     bool   // the program is running
	question string // what the answer is to
	answer   *policy.Answer
	since    time.Duration // when the answer came
	waiting  time.Duration // since when the present question has had no answer; 0 if it has one
}

// Run is a run of the program that is due: its input and its time limit. The result is to be passed to
// [Program.SetResult].
type Run struct {
	Input policy.Input
	key   string
}

// Update sets the input's answer. ready is false while an election must wait for it; wake is when to call again, 0 if
// the result itself wakes the caller; run is nil if no run is due.
func (p *Program) Update(core *Elector, in *Input) (ready bool, wake time.Duration, run *Run) {
	question, wanted := core.Question(*in)
	if !wanted {
		p.waiting = 0
		return true, 0, nil
	}
	key := fmt.Sprintf("%d %s", in.Policy.Revision, policy.QuestionKey(question)) // a new policy asks again
	known := p.answer != nil && p.question == key
	if !p.busy && (!known || in.Now-p.since >= AnswerAge) {
		p.busy, run = true, &Run{question, key}
	}
	if known {
		p.waiting, in.Answer = 0, p.answer
		if p.busy {
			return true, 0, run // the new answer wakes the caller
		}
		return true, p.since + AnswerAge, nil
	}
	if p.waiting == 0 {
		p.waiting = in.Now
	}
	if limit := p.waiting + 2*policy.ProgramTimeout; in.Now < limit {
		return false, limit, run
	}
	in.Answer = &policy.Answer{Err: "the ranking program timed out: membership kept changing"}
	return true, 0, run
}

// SetResult records the result of a run.
func (p *Program) SetResult(run *Run, a policy.Answer, now time.Duration) {
	p.busy, p.question, p.answer, p.since = false, run.key, &a, now
}
