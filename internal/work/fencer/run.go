package fencer

import (
	"context"
	"errors"
	"os/exec"

	"zkelectd/internal/work/command"
)

// maxOutput bounds the output that is read, in bytes. Metadata of real agents have up to 20 KB.
const maxOutput = 1 << 20

// Run is the [Runner] of this process: the program and all that it starts are killed when ctx ends.
func Run(ctx context.Context, c command.Command) (Result, error) {
	c.MaxOutput, c.OutputInErrors = maxOutput, true
	out, err := c.Run(ctx)
	if err == nil {
		return Result{Output: string(out)}, nil
	}
	var failed *command.Error
	var exit *exec.ExitError
	if ctx.Err() == nil && errors.As(err, &failed) && errors.As(failed.Err, &exit) && exit.Exited() {
		return Result{Code: exit.ExitCode(), Output: failed.Text}, nil
	}
	return Result{}, err
}
