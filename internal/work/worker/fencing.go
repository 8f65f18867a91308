package worker

import (
	"context"
	"errors"
	"fmt"

	"zkelectd/internal/guard"
	"zkelectd/internal/work/command"
	"zkelectd/internal/work/fencer"
)

// RunUnderLease is the [fencer.Runner] of a candidate: the guard runs the program as part of the work, and kills it
// with the lease. So do Stop, Kill and the end of ctx.
func (w *Worker) RunUnderLease(ctx context.Context, c command.Command) (fencer.Result, error) {
	h, err := w.opt.Guard.Start(guard.Spec{Argv: c.Argv, Env: c.Env, Input: c.Input, Capture: true})
	if err != nil {
		return fencer.Result{}, err
	}
	w.set(hookWork{h})
	defer w.set(nil)
	if err := await(ctx, h); err != nil {
		return fencer.Result{}, err
	}
	r := fencer.Result{Output: h.Output()}
	if n, err := fmt.Sscanf(h.Status(), "exited with status %d", &r.Code); n != 1 || err != nil {
		return fencer.Result{}, errors.New(h.Status())
	}
	return r, nil
}
