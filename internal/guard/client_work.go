package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"syscall"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/harden"
	"zkelectd/internal/procinfo"
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
	// Unit is permitted instead of a command being started. The caller has to report its end by Kill, and to ask systemd
	// for a stop beside Stop.
	Unit *Unit
}

// Work is leader-only work that the guard runs.
type Work struct {
	c       *Client
	unit    *Unit              // nil unless it is one
	stamp   []string           // the variables by which its processes may be found, wherever they hide
	hold    *ContainmentRecord // nil until it is started
	proof   *proof
	lost    time.Duration // when the guard was
	seq     int
	pid     int
	status  string
	output  string
	started chan error
	exited  chan struct{}
	dead    chan struct{}
	alarm   chan error
}

// Start has the guard start work, for which there must be a lease, and waits until it runs. There is one at a time. It
// returns an error only when nothing of the work runs.
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
		c: c, unit: opt.Unit, started: make(chan error, 1), exited: make(chan struct{}), dead: make(chan struct{}), alarm: make(chan error, 1),
	}
	if opt.Unit == nil {
		w.stamp = stamp(opt.Env) // nothing escapes from a unit's control group
	}
	spec := &Spec{Path: path, Argv: opt.Command, Dir: opt.Dir, Env: opt.Env, StopSignal: opt.StopSignal, Capture: opt.Capture, Unit: opt.Unit}
	if err := c.begin(w, spec); err != nil {
		return nil, err
	}
	c.send(message{Kind: kindStart, Seq: w.seq, Spec: spec})
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
	harden.RefreshLocks() // from here on this process may have to act
	if err := c.keep(); err != nil && opt.Unit != nil {
		w.Kill() // nobody would end it if guard and daemon were killed at once
		return nil, err
	}
	return w, nil
}

// begin makes w the work, and has the guard watched from here on.
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
		spec.StateFile = markFile(c.session.File)
	}
	c.seq++
	w.seq, c.running = c.seq, w
	c.watch()
	return nil
}

// take takes in what holds the work. Without a proof the keeper's word is still one. The client's mu is held.
func (w *Work) take(h *ContainmentRecord) {
	w.hold = h
	if h == nil {
		return
	}
	var err error
	if w.proof, err = newProof(*h); err != nil && !errors.Is(err, fs.ErrNotExist) { // else it is over already
		w.c.log.Warn("should the guard be lost, the end of the work may not be proven", "err", err)
	}
}

func (w *Work) close() {
	if w.proof != nil {
		w.proof.close()
		w.proof = nil
	}
}

func (w *Work) alarmed(text string) {
	if text == "" {
		return
	}
	select {
	case w.alarm <- errors.New(text):
	default:
	}
}

// Pid is the main process', and the group's id.
func (w *Work) Pid() int { return w.pid }

// Alarm receives an error when something of the work turns out not to be killable. It must be stopped then.
func (w *Work) Unkillable() <-chan error { return w.alarm }

// Runs reports whether something of the unit runs, or may run.
func (w *Work) UnitMayRun() bool { return w.unit.MayRun() }

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

// mourn waits for the end of work whose guard is lost, and kills what it can find. It does not end before the kernel says
// that nothing of the work is left: the session must not be closed, nor anything released, while something may run (A3).
func (w *Work) mourn(cause error) {
	w.lost = boottime.Now()
	ending, _ := w.ending()
	if ending != nil {
		defer ending.close()
	}
	warned := false
	for pause := sweepLeast; ; pause = min(2*pause, sweepMost) {
		err := w.end(ending)
		if err == nil {
			break
		}
		if pause == sweepMost && !warned {
			warned = true
			w.c.log.Error("the work may still run: nothing is released, and the session is left to expire; stop what is left of it", "reason", err)
		}
		for _, pid := range stamped(w.stamp) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		w.c.rouse()
		select {
		case <-w.c.word.dead:
		case <-time.After(pause):
		}
	}
	w.c.mu.Lock()
	w.c.running = nil
	w.close()
	w.c.mu.Unlock()
	select {
	case <-w.exited:
	default:
		w.status = "was killed with the guard"
		close(w.exited)
	}
	close(w.dead)
	select {
	case w.started <- cause:
	default:
	}
}

// rouse has a keeper that is stopped go on: without a guard it ends the work as soon as it runs. The kernel does so only
// where the guard's death leaves the keeper's process group without a parent in the session.
func (c *Client) rouse() {
	c.mu.Lock()
	h := c.hold
	c.mu.Unlock()
	if h == nil {
		return
	}
	if s, err := procinfo.ReadStat(h.Keeper.Pid); err == nil && s.Started == h.Keeper.Started {
		syscall.Kill(h.Keeper.Pid, syscall.SIGCONT)
	}
}

// ending is how to end a unit; nil for other work.
func (w *Work) ending() (*end, error) {
	if w.unit == nil {
		return nil, nil
	}
	return newEnd(*w.unit) // the guard could make one, too
}

// end returns nil once all of the work is dead.
func (w *Work) end(ending *end) error {
	if w.unit != nil {
		if ending != nil && ending.sweep(true) {
			return nil
		}
		return fmt.Errorf("the unit %s may still run", w.unit.Name)
	}
	select {
	case <-w.c.word.dead:
		return nil
	default:
	}
	p := w.proof
	if p == nil {
		p = w.c.keeper
	}
	if p == nil {
		return errors.New("the keeper, which would say so, has not")
	}
	err := p.kill()
	if err == nil && p.hold.Mode == CgroupContainment {
		err = w.left()
	}
	return err
}

// left says what may be left of work whose control group is empty: nothing, unless something was moved to another group,
// which the keeper alone would find. It has a moment to say so, if it lives.
func (w *Work) left() error {
	if w.proof == nil {
		return errors.New("its control group is not known")
	}
	select {
	case <-w.c.word.ended:
		return nil
	default:
	}
	if boottime.Now() < w.lost+dying {
		return errors.New("the keeper has not said yet that nothing is left")
	}
	return nil
}
