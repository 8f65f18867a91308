package guard

import (
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// WorkOptions say what to run.
type WorkOptions struct {
	Command []string
	Dir     string
	// Env is the complete environment.
	Env []string
	// StopSignal asks the process group to end; default SIGTERM.
	StopSignal syscall.Signal
	// Capture keeps the beginning of the output for Output instead of passing it on.
	Capture bool
	// Unit is permitted instead of a command being started. Env becomes its environment. Whoever starts it has to report its
	// end by Kill, and to ask systemd for a stop beside Stop.
	Unit *Unit
}

// Work is leader-only work that the guard runs.
type Work struct {
	c       *Client
	unit    *Unit    // nil unless it is one
	stamp   []string // the variables by which its processes are known, wherever they hide
	seq     int
	pid     int
	status  string
	output  string
	started chan error
	exited  chan struct{}
	dead    chan struct{}
}

// Start has the guard start work, for which there must be a lease, and waits until it runs. There is one at a time.
func (c *Client) Start(opt WorkOptions) (*Work, error) {
	var path string
	var err error
	if opt.Unit == nil {
		if path, err = exec.LookPath(opt.Command[0]); err != nil {
			return nil, err
		}
	}
	if opt.StopSignal == 0 {
		opt.StopSignal = syscall.SIGTERM
	}
	w := &Work{c: c, unit: opt.Unit, started: make(chan error, 1), exited: make(chan struct{}), dead: make(chan struct{})}
	if opt.Unit == nil {
		w.stamp = stamp(opt.Env) // nothing escapes from a unit's control group
	}
	c.mu.Lock()
	if err := c.Err(); err != nil || c.running != nil {
		defer c.mu.Unlock()
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("process %d still runs", c.running.pid)
	}
	c.seq++
	w.seq, c.running = c.seq, w
	c.mu.Unlock()
	c.send(message{Kind: kindStart, Seq: w.seq, Spec: &Spec{
		Path: path, Argv: opt.Command, Dir: opt.Dir, Env: opt.Env, StopSignal: opt.StopSignal, Capture: opt.Capture, Unit: opt.Unit,
	}})
	limit := time.NewTimer(answerLimit)
	defer limit.Stop()
	select {
	case err = <-w.started:
	case <-limit.C:
		c.abandon(fmt.Errorf("%w: it starts nothing", ErrLost))
		err = <-w.started
	}
	if err != nil {
		return nil, err
	}
	if err := c.keep(); err != nil && opt.Unit != nil {
		w.Kill() // nobody would end it if guard and daemon were killed at once
		return nil, err
	}
	return w, nil
}

// Pid is the main process', and the group's id.
func (w *Work) Pid() int { return w.pid }

// Runs tells that something of the unit runs.
func (w *Work) Runs() bool { return w.unit.Runs() }

// Exited is closed when the main process has ended. What it left behind is killed.
func (w *Work) Exited() <-chan struct{} { return w.exited }

// Dead is closed when no process of the work is left, whether it is still in its group or not.
func (w *Work) Dead() <-chan struct{} { return w.dead }

// Status says how the main process ended, as in "exited with status 3"; only after Exited.
func (w *Work) Status() string { return w.status }

// Output is the beginning of what was captured; only after Dead.
func (w *Work) Output() string { return w.output }

// Stop asks the work to end and has it killed after grace. It returns at once; Dead tells.
func (w *Work) Stop(grace time.Duration) {
	w.c.send(message{Kind: kindStop, Seq: w.seq, Grace: grace})
}

// Kill ends the work at once. It returns at once; Dead tells.
func (w *Work) Kill() { w.c.send(message{Kind: kindKill, Seq: w.seq}) }

// mourn kills the work in the guard's stead and waits for its end. left are those that were found below the guard; what
// had left the group before the guard died is known by its environment.
func (w *Work) mourn(left []int) {
	var ending *end
	if w.unit != nil {
		ending, _ = newEnd(*w.unit) // the guard could make one, too
	}
	// Twice in a row, since one may be born behind the back of a search.
	for clean, pause := 0, time.Millisecond; clean < 2; pause = min(2*pause, 20*time.Millisecond) {
		clean++
		for _, pid := range append(stamped(w.stamp), left...) {
			if s, err := readStat(pid); err == nil && !s.zombie {
				syscall.Kill(pid, syscall.SIGKILL)
				clean = 0
			}
		}
		if w.pid != 0 && !groupGone(w.pid) {
			syscall.Kill(-w.pid, syscall.SIGKILL)
			clean = 0
		}
		if ending != nil && !ending.sweep(true) {
			clean = 0
		}
		if clean < 2 {
			time.Sleep(pause) // bounded by the kernel: nothing survives SIGKILL but uninterruptible I/O
		}
	}
	select {
	case <-w.exited:
	default:
		w.status = "was killed with the guard"
		close(w.exited)
	}
	close(w.dead)
}
