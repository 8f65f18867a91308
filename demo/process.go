package main

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a program in a new process group, which is killed when this process dies.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the program has exited
}

// startProcess starts a program that writes to output.
func startProcess(argv, env []string, output *os.File) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, output, output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// Linux sends the death signal when the thread that forked the program ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.cmd.Wait()
		syscall.Kill(-p.pid(), syscall.SIGKILL) // the processes that it left behind
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// terminate asks the program to end.
func (p *process) terminate() { p.cmd.Process.Signal(syscall.SIGTERM) }

// wait waits until the program has exited, and kills its process group after grace.
func (p *process) wait(grace time.Duration) {
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-p.done:
		return
	case <-t.C:
	}
	syscall.Kill(-p.pid(), syscall.SIGKILL)
	<-p.done
}
