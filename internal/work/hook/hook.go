// Package hook runs the operator's commands: hooks at changes of leadership, and the program that ranks members.
package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"zkelectd/internal/work/command"
)

// Hook is a command from the configuration.
type Hook struct {
	// Setting is the configuration key of the command, for errors.
	Setting string
	// Argv is the command; if it is empty, there is nothing to run.
	Argv, Env []string
	// Timeout bounds each run.
	Timeout time.Duration
	// Failed is called after each run in a [Queue] that has failed; nil for nothing.
	Failed func()
	// Limit limits how many hooks run at once. The timeout begins when the hook may run.
	Limit command.Limit
}

// JSON returns the input of a hook: a plain value as JSON, in one line.
func JSON(v any) []byte {
	data, _ := json.Marshal(v) // never fails: plain values
	return append(data, '\n')
}

// Run runs the hook to its end, in a new process group that is killed as a whole when ctx ends or Timeout has passed.
func (h Hook) Run(ctx context.Context, input []byte) error {
	_, err := h.run(ctx, command.Command{Input: input})
	return err
}

// maxOutput bounds what Output returns.
const maxOutput = 1 << 20

// Output is [Hook.Run] and returns what the command prints.
func (h Hook) Output(ctx context.Context, input []byte) ([]byte, error) {
	return h.run(ctx, command.Command{Input: input, MaxOutput: maxOutput})
}

func (h Hook) run(ctx context.Context, c command.Command) ([]byte, error) {
	if len(h.Argv) == 0 {
		return nil, nil
	}
	if err := h.Limit.Enter(ctx); err != nil {
		return nil, fmt.Errorf("%s %s was cut short: %w", h.Setting, h.Argv[0], err)
	}
	defer h.Limit.Leave()
	limited, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	c.Argv, c.Env = h.Argv, h.Env
	out, err := c.Run(limited)
	if err == nil {
		return out, nil
	}
	var failed *command.Error
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s %s was cut short: %w", h.Setting, h.Argv[0], ctx.Err())
	case limited.Err() != nil && errors.As(err, &failed):
		err = &command.Error{Err: fmt.Errorf("not done within %s", h.Timeout), Text: failed.Text}
	}
	return nil, fmt.Errorf("%s %s failed: %w", h.Setting, h.Argv[0], err)
}
