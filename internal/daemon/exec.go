package daemon

import (
	"context"
	"os"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/child"
	"zkelectd/internal/config"
	"zkelectd/internal/elector"
	"zkelectd/internal/hook"
	"zkelectd/internal/policy"
)

// consult puts the answer of the policy's program into the input, and has it asked if need be.
func (e *electorRole) consult(in *elector.Input) (ready bool, wake time.Duration) {
	ready, wake, ask := e.program.Consult(e.core, in)
	if ask == nil {
		return ready, wake
	}
	l, argv := e.l, e.l.d.config().Policy.Exec.Command
	l.owned.Go(func() {
		a := askProgram(l.life, argv, ask.Input, ask.Timeout)
		l.later(func() {
			e.program.Answered(ask, a, boottime.Now())
			if a.Err != "" {
				l.d.log.Warn("the policy's program gave no ranking", "reason", a.Err)
			}
		})
	})
	return ready, wake
}

func askProgram(ctx context.Context, argv []string, ask policy.Input, timeout time.Duration) policy.Answer {
	if len(argv) == 0 {
		return policy.Answer{Err: "policy.exec.command is not set on this host"}
	}
	program := hook.Hook{Setting: "policy.exec.command", Argv: argv, Env: child.Clean(os.Environ()), Timeout: timeout}
	out, err := program.Output(ctx, policy.QuestionJSON(ask))
	if err != nil {
		return policy.Answer{Err: err.Error()}
	}
	return policy.ParseAnswer(out, ask)
}

// Asker asks the program of a configuration, for a forecast, while ctx lasts.
func Asker(ctx context.Context, c config.Config) func(policy.Input) *policy.Answer {
	return func(in policy.Input) *policy.Answer {
		a := askProgram(ctx, c.Policy.Exec.Command, in, c.Policy.Exec.Timeout)
		return &a
	}
}
