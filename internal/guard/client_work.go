package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"syscall"
	"time"

	"zkelectd/internal/harden"
)

// WorkOptions specify leader-only work.
type WorkOptions struct {
	Command []string
	Dir     string
	// Env is the complete environment.
	Env []string
	// StopSignal is the signal that asks the process group to stop; the default is SIGTERM.
	StopSignal syscall.Signal
	// Capture keeps the beginning of the output for Output instead of passing it through.
	Capture bool
	// Unit is a unit that is permitted to run, instead of a command that is started. The caller asks systemd to start and
	// stop it, and must call Kill or Stop when the unit ends.
	Unit *Unit
}

// Work is leader-only work that was started through the guard.
type Work struct {
	c           *Client
	unit        *Unit              // nil unless systemd runs it
	env         []string           // environment variables by which its processes can be found
	containment *ContainmentRecord // nil until it has started
	handle      *containmentHandle
	guardLostAt time.Duration // when the guard was lost
	seq         int
	pid         int
	status      string
	output      string
	started     chan error
	exited      chan struct{}
	dead        chan struct{}
	unkillable  chan error
}

// Start starts work, for which there must be a lease, and waits until it runs. Only one piece of work can run at a time. Start
// returns an error only if no process of the work runs.
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
	w := &Work{
		c: c, unit: opt.Unit, started: make(chan error, 1), exited: make(chan struct{}), dead: make(chan struct{}), unkillable: make(chan error, 1),
	}
	if opt.Unit == nil {
		w.env = identifyingEnv(opt.Env) // no process leaves a unit's control group
	}
	spec := &Spec{Path: path, Argv: opt.Command, Dir: opt.Dir, Env: opt.Env, StopSignal: opt.StopSignal, Capture: opt.Capture, Unit: opt.Unit}
	if err := c.begin(w, spec); err != nil {
		return nil, err
	}
	c.send(message{Kind: kindStart, Seq: w.seq, Spec: spec})
	limit := time.NewTimer(startTimeout)
	defer limit.Stop()
	select {
	case err = <-w.started:
	case <-limit.C:
		c.loseGuard(fmt.Errorf("%w: it does not start the work", ErrLost))
		err = <-w.started
	}
	if err != nil {
		return nil, err
	}
	harden.RefreshLocks() // from here on this process may have to act
	c.updating.Lock()
	defer c.updating.Unlock()
	if err := c.writeSessionFile(); err != nil && opt.Unit != nil {
		w.Kill() // if guard and daemon were killed at once, nothing would kill the unit
		return nil, err
	}
	return w, nil
}

// begin makes w the current work and watches the guard from now on.
func (c *Client) begin(w *Work, spec *Spec) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.Err(); err != nil {
		return err
	}
	if c.running != nil {
		return fmt.Errorf("process %d still runs", c.running.pid)
	}
	if c.session != nil && c.session.File != "" && spec.Unit == nil {
		spec.StateFile = workStateFile(c.session.File)
	}
	c.seq++
	w.seq, c.running = c.seq, w
	c.armTimer()
	return nil
}

// setContainment records how the work is contained. If that cannot be opened, the keeper's report can still prove the death of
// the work. The caller must hold the client's mu.
func (w *Work) setContainment(r *ContainmentRecord) {
	w.containment = r
	if r == nil {
		return
	}
	var err error
	w.handle, err = openContainment(*r)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a control group that does not exist means that the work has ended
		w.c.log.Warn("if the guard dies, it may be impossible to prove that the work is dead", "err", err)
	}
}

func (w *Work) close() {
	if w.handle != nil {
		w.handle.close()
		w.handle = nil
	}
}

func (w *Work) reportUnkillable(reason string) {
	if reason == "" {
		return
	}
	select {
	case w.unkillable <- errors.New(reason):
	default:
	}
}

// Pid returns the pid of the main process, which is also the id of the process group.
func (w *Work) Pid() int { return w.pid }

// Unkillable returns a channel that receives an error when a process of the work turns out to be impossible to kill. The caller
// must stop the work then.
func (w *Work) Unkillable() <-chan error { return w.unkillable }

// UnitMayRun reports whether a process of the unit runs, or may run.
func (w *Work) UnitMayRun() bool { return w.unit.MayRun() }

// Exited returns a channel that is closed when the main process has ended. The processes that it has left behind are killed.
func (w *Work) Exited() <-chan struct{} { return w.exited }

// Dead returns a channel that is closed when no process of the work is left, inside or outside of its process group.
func (w *Work) Dead() <-chan struct{} { return w.dead }

// Status describes how the main process ended, as in "exited with status 3". It is set once Exited is closed.
func (w *Work) Status() string { return w.status }

// Output returns the captured output. It is set once Dead is closed.
func (w *Work) Output() string { return w.output }

// Stop asks the work to stop and has it killed after grace. It does not wait; see Dead.
func (w *Work) Stop(grace time.Duration) {
	w.c.send(message{Kind: kindStop, Seq: w.seq, Grace: grace})
}

// Kill kills the work. It does not wait; see Dead.
func (w *Work) Kill() { w.c.send(message{Kind: kindKill, Seq: w.seq}) }
