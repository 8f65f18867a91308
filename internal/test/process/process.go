// Package process starts programs for tests, and finds the processes of a zkelectd.
package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Process is a program that a test has started.
type Process struct {
	*exec.Cmd
	Log  string        // the path of its output
	Done chan struct{} // closed when it has ended
}

// Start starts a program. Unless it has an output, that is appended to the file log.
func Start(t testing.TB, cmd *exec.Cmd, log string) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, Log: log, Done: make(chan struct{})}
	if cmd.Stdout == nil {
		out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd.Stdout, cmd.Stderr = out, out
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.Done)
		cmd.Wait()
	}()
	return p
}

// Output returns what the program has printed.
func (p *Process) Output() string {
	data, _ := os.ReadFile(p.Log)
	return string(data)
}

// Signal sends a signal to the process, if it has not ended.
func (p *Process) Signal(sig syscall.Signal) { p.Process.Signal(sig) }

// Exit waits until the process has ended, and returns its exit status. After limit the test fails.
func (p *Process) Exit(t testing.TB, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.Done:
	case <-time.After(limit):
		t.Fatalf("%s does not end", p)
	}
	return p.ProcessState.ExitCode()
}

// Stop ends the process with a signal. After limit it kills the process, and the test has failed.
func (p *Process) Stop(t testing.TB, sig syscall.Signal, limit time.Duration) {
	t.Helper()
	p.Signal(syscall.SIGCONT)
	p.Signal(sig)
	select {
	case <-p.Done:
	case <-time.After(limit):
		t.Errorf("%s does not end", p)
		p.Process.Kill()
		<-p.Done
	}
}

// The processes of a zkelectd. The first is the process that is started.
const (
	Guard  = "guard"
	Daemon = "daemon"
	Keeper = "keeper"
)

// Of returns the processes of a zkelectd with this guard, by name. With several groups there may be several keepers.
func Of(guard int) map[string][]int {
	all := map[string][]int{Guard: {guard}}
	for _, pid := range Children(guard) {
		if args := CommandLine(pid); len(args) > 1 && (args[1] == Daemon || args[1] == Keeper) {
			all[args[1]] = append(all[args[1]], pid)
		}
	}
	return all
}

// Children returns the children of a process.
func Children(pid int) (all []int) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil
	}
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// CommandLine returns a process's program and arguments; nil if it has ended.
func CommandLine(pid int) []string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
}
