package daemon

import (
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/elector"
	"zkelectd/internal/operator"
)

// consult puts the answer of the policy's program into the input, and has it asked if need be.
func (e *electorRole) consult(in *elector.Input) (ready bool, wake time.Duration) {
	ready, wake, ask := e.program.Consult(e.core, in)
	if ask == nil {
		return ready, wake
	}
	l, argv := e.l, e.l.d.config().Policy.Exec.Command
	l.owned.Go(func() {
		a := operator.AskProgram(l.life, argv, ask.Input, ask.Timeout)
		l.later(func() {
			e.program.Answered(ask, a, boottime.Now())
			if a.Err != "" {
				l.d.log.Warn("the policy's program gave no ranking", "reason", a.Err)
			}
		})
	})
	return ready, wake
}
