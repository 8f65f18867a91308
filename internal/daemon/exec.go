package daemon

import (
	"context"
	"fmt"
	"os"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/child"
	"zkelectd/internal/config"
	"zkelectd/internal/elector"
	"zkelectd/internal/hook"
	"zkelectd/internal/policy"
)

// answerAge is how long a program's answer to the same question counts; the old one counts on while it is asked again.
const answerAge = 30 * time.Second

// program asks the exec policy's program, outside the core, and never holds an election up for longer than twice its
// timeout (L1).
type program struct {
	l        *loop
	busy     bool
	question string // that the answer is to
	answer   *policy.Answer
	since    time.Duration // of the answer
	waiting  time.Duration // since when there has been none to the present question; 0 if there is
}

// consult puts the answer into the input. ready is false while an election has to wait for it; wake is when to look again.
func (p *program) consult(core *elector.Elector, in *elector.Input) (ready bool, wake time.Duration) {
	ask, wanted := core.Question(*in)
	if !wanted {
		p.waiting = 0
		return true, 0
	}
	key := fmt.Sprintf("%d %s", in.Policy.Revision, policy.Key(ask)) // a new policy asks anew
	known := p.answer != nil && p.question == key
	if !p.busy && (!known || in.Now-p.since >= answerAge) {
		p.run(key, ask, time.Duration(in.Policy.Rules.ExecTimeout))
	}
	if known {
		p.waiting, in.Answer = 0, p.answer
		if p.busy {
			return true, 0 // the new answer wakes
		}
		return true, p.since + answerAge
	}
	if p.waiting == 0 {
		p.waiting = in.Now
	}
	limit := p.waiting + 2*time.Duration(in.Policy.Rules.ExecTimeout)
	if in.Now < limit {
		return false, limit
	}
	in.Answer = &policy.Answer{Err: "the group changes faster than it answers"}
	return true, 0
}

func (p *program) run(key string, ask policy.Input, timeout time.Duration) {
	argv := p.l.d.cfg.Policy.Exec.Command
	p.busy = true
	done := func(a policy.Answer) {
		p.busy, p.question, p.answer, p.since = false, key, &a, boottime.Now()
		if a.Err != "" {
			p.l.d.log.Warn("the policy's program gave no ranking", "reason", a.Err)
		}
	}
	p.l.owned.Go(func() {
		a := askProgram(p.l.life, argv, ask, timeout)
		p.l.later(func() { done(a) })
	})
}

func askProgram(ctx context.Context, argv []string, ask policy.Input, timeout time.Duration) policy.Answer {
	if len(argv) == 0 {
		return policy.Answer{Err: "policy.exec.command is not set on this host"}
	}
	out, err := hook.Ask(ctx, "policy.exec.command", argv, child.Clean(os.Environ()), policy.Ask(ask), timeout)
	if err != nil {
		return policy.Answer{Err: err.Error()}
	}
	return policy.Hear(out, ask)
}

// Asker asks the program of a configuration, for a forecast.
func Asker(c config.Config) func(policy.Input) *policy.Answer {
	return func(in policy.Input) *policy.Answer {
		a := askProgram(context.Background(), c.Policy.Exec.Command, in, c.Policy.Exec.Timeout)
		return &a
	}
}
