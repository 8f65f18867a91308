// Package child runs a process group that is started, stopped and killed whole and does not outlive the process that
// started it, and makes the environments of children. Leader-only work, which must not outlive a lease either, is run by
// package guard.
package child

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options say what to run.
type Options struct {
	Command []string
	Dir     string
	// Env is the complete environment, see [Environment].
	Env []string
	// StopSignal asks the group to end; default SIGTERM.
	StopSignal syscall.Signal
	// Stdout and Stderr are handed to the child as they are; nil for the daemon's own.
	Stdout, Stderr *os.File
	Log            *slog.Logger
}

// Process is a running process group.
type Process struct {
	opt    Options
	cmd    *exec.Cmd
	exited chan struct{}
	dead   chan struct{}
	stop   sync.Once
	kill   sync.Once
	force  chan struct{}
}

// Start starts the command as the leader of a process group of its own.
func Start(opt Options) (*Process, error) {
	if len(opt.Command) == 0 {
		return nil, errors.New("child.command is empty")
	}
	if opt.StopSignal == 0 {
		opt.StopSignal = syscall.SIGTERM
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	cmd := exec.Command(opt.Command[0], opt.Command[1:]...)
	cmd.Dir, cmd.Env = opt.Dir, opt.Env
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if opt.Stdout != nil {
		cmd.Stdout = opt.Stdout
	}
	if opt.Stderr != nil {
		cmd.Stderr = opt.Stderr
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &Process{opt: opt, cmd: cmd, exited: make(chan struct{}), dead: make(chan struct{}), force: make(chan struct{})}
	started := make(chan error)
	go p.own(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("child.command %q cannot be started: %w", opt.Command[0], err)
	}
	return p, nil
}

// own starts, waits for and buries the group. It keeps its thread until the end, because the death signal that ties the
// child to this process follows the thread that forked it.
func (p *Process) own(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.cmd.Wait()
	close(p.exited)
	// Whoever the main process left behind must not work on without it.
	for wait := time.Millisecond; !p.gone(); wait = min(2*wait, 20*time.Millisecond) {
		syscall.Kill(-p.Pid(), syscall.SIGKILL)
		time.Sleep(wait) // bounded by the kernel: nothing survives SIGKILL but uninterruptible I/O
	}
	close(p.dead)
}

// gone tells that no live process of the group is left; zombies, which others have to reap, do no work.
func (p *Process) gone() bool {
	if err := syscall.Kill(-p.Pid(), 0); errors.Is(err, syscall.ESRCH) {
		return true
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return false
	}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		// pid (comm) state ppid pgrp …; comm may hold anything, so count from its end.
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		if len(fields) > 2 && fields[2] == strconv.Itoa(p.Pid()) && fields[0] != "Z" && fields[0] != "X" {
			return false
		}
	}
	return true
}

// Pid is the main process', and the group's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Exited is closed when the main process has exited. What it left behind is killed.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Dead is closed when no process of the group is left.
func (p *Process) Dead() <-chan struct{} { return p.dead }

// Status says how the main process ended, as in "exited with status 3"; only after Exited.
func (p *Process) Status() string {
	state := p.cmd.ProcessState
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return fmt.Sprintf("was killed by signal %d (%s)", ws.Signal(), ws.Signal())
	}
	return fmt.Sprintf("exited with status %d", state.ExitCode())
}

// Stop asks the group to end and kills it after grace. It returns at once; Dead tells.
func (p *Process) Stop(grace time.Duration) {
	p.stop.Do(func() {
		if grace <= 0 {
			p.Kill()
			return
		}
		syscall.Kill(-p.Pid(), p.opt.StopSignal)
		// A stopped process can't handle the signal before it goes on.
		syscall.Kill(-p.Pid(), syscall.SIGCONT)
		go func() { // ends when the main process has, after grace at the latest
			t := time.NewTimer(grace)
			defer t.Stop()
			select {
			case <-t.C:
				p.opt.Log.Warn("the child did not stop in time and is killed", "pid", p.Pid(), "grace", grace)
				p.Kill()
			case <-p.force:
			case <-p.exited:
			}
		}()
	})
}

// Kill ends the group at once. It returns at once; Dead tells.
func (p *Process) Kill() {
	p.kill.Do(func() {
		close(p.force)
		select {
		case <-p.dead: // the id may be another's by now
		default:
			syscall.Kill(-p.Pid(), syscall.SIGKILL)
		}
	})
}
