// Package hook runs the operator's commands at the turns of leadership.
package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"zkelectd/internal/harden"
)

// maxOutput bounds how much of a hook's output is kept, for its error.
const maxOutput = 4096

// Run runs a command to its end, in a process group of its own that is killed whole when ctx or timeout is over. key is
// the setting that it comes from, for the error.
func Run(ctx context.Context, key string, argv, env []string, stdin []byte, timeout time.Duration) error {
	out := &bounded{max: maxOutput}
	return run(ctx, key, argv, env, stdin, timeout, out, out)
}

// maxAnswer bounds what Ask takes for an answer.
const maxAnswer = 1 << 20

// Ask is Run, and returns what the command prints.
func Ask(ctx context.Context, key string, argv, env []string, stdin []byte, timeout time.Duration) ([]byte, error) {
	out, errs := &bounded{max: maxAnswer}, &bounded{max: maxOutput}
	if err := run(ctx, key, argv, env, stdin, timeout, out, errs); err != nil {
		return nil, err
	}
	return out.buf.Bytes(), nil
}

func run(ctx context.Context, key string, argv, env []string, stdin []byte, timeout time.Duration, out, errs *bounded) error {
	if len(argv) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(limited, argv[0], argv[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, bytes.NewReader(stdin), out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 100 * time.Millisecond
	err := harden.Run(cmd)
	if cmd.Process != nil {
		// A hook that is over has nothing to leave running.
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it is over, and what it has left holding its output is dead
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s %s was cut short: %w", key, argv[0], ctx.Err())
	case limited.Err() != nil:
		err = fmt.Errorf("not done within %s", timeout)
	}
	if text := strings.TrimSpace(errs.buf.String()); text != "" {
		return fmt.Errorf("%s %s failed: %w: %s", key, argv[0], err, text)
	}
	return fmt.Errorf("%s %s failed: %w", key, argv[0], err)
}

// bounded keeps the beginning of what is written.
type bounded struct {
	buf bytes.Buffer
	max int
}

func (b *bounded) Write(p []byte) (int, error) {
	if room := b.max - b.buf.Len(); room > 0 {
		b.buf.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}
