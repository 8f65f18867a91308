package elector

import (
	"fmt"
	"time"

	"zkelectd/internal/policy"
)

// AnswerAge is how long a program's answer to the same question counts; the old one counts on while it is asked again.
const AnswerAge = 30 * time.Second

// Program keeps the answers of an exec policy's program, which the shell runs. It never holds an election up for longer
// than twice the program's timeout (L1).
type Program struct {
	busy     bool
	question string // that the answer is to
	answer   *policy.Answer
	since    time.Duration // of the answer
	waiting  time.Duration // since when there has been none to the present question; 0 if there is
}

// Ask is what the program is to be asked now. Its answer goes to [Program.Answered].
type Ask struct {
	Input   policy.Input
	Timeout time.Duration
	key     string
}

// Consult puts the answer into the input. ready is false while an election has to wait for it, wake is when to look again,
// ask is nil if there is nothing to ask.
func (p *Program) Consult(core *Elector, in *Input) (ready bool, wake time.Duration, ask *Ask) {
	question, wanted := core.Question(*in)
	if !wanted {
		p.waiting = 0
		return true, 0, nil
	}
	key := fmt.Sprintf("%d %s", in.Policy.Revision, policy.QuestionKey(question)) // a new policy asks anew
	known, timeout := p.answer != nil && p.question == key, time.Duration(in.Policy.Rules.ExecTimeout)
	if !p.busy && (!known || in.Now-p.since >= AnswerAge) {
		p.busy, ask = true, &Ask{question, timeout, key}
	}
	if known {
		p.waiting, in.Answer = 0, p.answer
		if p.busy {
			return true, 0, ask // the new answer wakes
		}
		return true, p.since + AnswerAge, nil
	}
	if p.waiting == 0 {
		p.waiting = in.Now
	}
	if limit := p.waiting + 2*timeout; in.Now < limit {
		return false, limit, ask
	}
	in.Answer = &policy.Answer{Err: "the group changes faster than it answers"}
	return true, 0, ask
}

// Answered takes in what the program has said.
func (p *Program) Answered(ask *Ask, a policy.Answer, now time.Duration) {
	p.busy, p.question, p.answer, p.since = false, ask.key, &a, now
}
