// Package hook runs the operator's commands at the turns of leadership.
package hook

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// maxOutput bounds how much of a hook's output is kept, for its error.
const maxOutput = 4096

// Run runs a hook to its end, in a process group of its own that is killed whole when ctx or timeout is over. name goes
// into the error.
func Run(ctx context.Context, name string, argv, env []string, stdin []byte, timeout time.Duration) error {
	if len(argv) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(limited, argv[0], argv[1:]...)
	out := &bounded{}
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, bytes.NewReader(stdin), out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 100 * time.Millisecond
	err := cmd.Run()
	if cmd.Process != nil {
		// A hook that is over has nothing to leave running.
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("hooks.%s %s was cut short: %w", name, argv[0], ctx.Err())
	case limited.Err() != nil:
		err = fmt.Errorf("not done within %s", timeout)
	}
	if text := strings.TrimSpace(out.buf.String()); text != "" {
		return fmt.Errorf("hooks.%s %s failed: %w: %s", name, argv[0], err, text)
	}
	return fmt.Errorf("hooks.%s %s failed: %w", name, argv[0], err)
}

// bounded keeps the beginning of what is written.
type bounded struct{ buf bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if room := maxOutput - b.buf.Len(); room > 0 {
		b.buf.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}
