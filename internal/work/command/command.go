// Package command runs configured commands to their end: hooks, probes and the program that ranks members. Leader-only
// work, which must not outlive a lease, is run by package guard.
package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"zkelectd/internal/sys/harden"
)

// maxErrorText bounds the output in an error, unless the command sets another bound.
const maxErrorText = 4096

// outputDelay is how long a process that the command left behind may hold its output open. On a busy machine this
// process needs some of that to read what was written.
const outputDelay = 500 * time.Millisecond

// Command is a program with its arguments and environment.
type Command struct {
	Argv, Env []string
	// Input is the standard input.
	Input []byte
	// MaxOutput is how many bytes of the standard output Run returns. With 0 they are part of an error's text instead.
	MaxOutput int
	// OutputInErrors makes an error contain the standard output if there is nothing on the standard error, also with
	// MaxOutput.
	OutputInErrors bool
	// MaxErrorText is how many bytes of output an error contains; 0 stands for 4096.
	MaxErrorText int
}

// Error reports that a command failed.
type Error struct {
	Err error
	// Text is the beginning of the command's output.
	Text string
}

func (e *Error) Error() string {
	if e.Text == "" {
		return e.Err.Error()
	}
	return e.Err.Error() + ": " + e.Text
}

func (e *Error) Unwrap() error { return e.Err }

// Run runs the command in a new session, without a terminal that could stop it, and kills its process group when the
// command exits or ctx ends. If the command fails, the error is an [*Error]. A command that a kill does not end is
// given up soon after ctx has ended, and is not started again while it exists.
func (c Command) Run(ctx context.Context) ([]byte, error) {
	text := &boundedBuffer{max: cmp.Or(c.MaxErrorText, maxErrorText)}
	out := text
	if c.MaxOutput > 0 {
		out = &boundedBuffer{max: c.MaxOutput}
	}
	select {
	case <-harden.ReadProgram(c.Argv[0], ""):
	case <-ctx.Done():
		return nil, &Error{Err: fmt.Errorf("%s cannot be read: does its disk answer? %w", c.Argv[0], context.Cause(ctx))}
	}
	if err := c.mayStart(); err != nil {
		return nil, &Error{Err: err}
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Env, bytes.NewReader(c.Input), out, text
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = outputDelay
	err := harden.WithChildScore(cmd.Start)
	if err == nil {
		err = c.wait(ctx, cmd)
	}
	if cmd.Process != nil {
		// A command that has ended must not leave anything running.
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	switch {
	case errors.Is(err, errNotEnded): // the output may still be written
		return nil, &Error{Err: err}
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		// for ErrWaitDelay, the process that held the output open is dead now
		said := strings.TrimSpace(text.buf.String())
		if said == "" && c.OutputInErrors { // some programs say on their standard output why they have failed
			said = strings.TrimSpace(string(out.buf.Bytes()[:min(out.buf.Len(), text.max)]))
		}
		return nil, &Error{Err: err, Text: said}
	case c.MaxOutput == 0:
		return nil, nil
	}
	return out.buf.Bytes(), nil
}

// killTime is how long a command may take to end once it is killed.
const killTime = 2 * time.Second

// errNotEnded is the error of a command that was killed and has not ended. It waits in the kernel, as for a disk or a
// file server that does not answer.
var errNotEnded = errors.New("was killed, but has not ended: it waits for something that does not answer, such as a " +
	"disk")

// notEnded are the commands that were killed and have not ended, by their arguments and environment. Each keeps a
// thread of this process. So none of them is started again: a probe would otherwise use up all threads.
var notEnded = struct {
	sync.Mutex
	commands map[string]bool
}{commands: make(map[string]bool)}

func (c Command) key() string { return fmt.Sprintf("%q %q", c.Argv, c.Env) }

// mayStart returns an error if an earlier run of the command has not ended.
func (c Command) mayStart() error {
	notEnded.Lock()
	defer notEnded.Unlock()
	if notEnded.commands[c.key()] {
		return fmt.Errorf("an earlier run of %s %w", c.Argv[0], errNotEnded)
	}
	return nil
}

// wait waits for a command that was started. It gives up one that has not ended killTime after it was killed.
func (c Command) wait(ctx context.Context, cmd *exec.Cmd) error {
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }() // ends with the command
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	t := time.NewTimer(killTime)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
	}
	notEnded.Lock()
	defer notEnded.Unlock()
	notEnded.commands[c.key()] = true
	go func() { // ends with the command
		<-done
		notEnded.Lock()
		defer notEnded.Unlock()
		delete(notEnded.commands, c.key())
	}()
	return fmt.Errorf("process %d %w", cmd.Process.Pid, errNotEnded)
}

// boundedBuffer keeps the beginning of what is written to it.
type boundedBuffer struct {
	buf bytes.Buffer
	max int
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if room := b.max - b.buf.Len(); room > 0 {
		b.buf.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}
