package guard

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/sys/harden"
)

// Work is leader-only work that was started through the guard.
type Work struct {
	c           *Client
	leadership  *Leadership
	unit        *Unit              // nil unless systemd runs it
	env         []string           // environment variables by which its processes can be found
	containment *ContainmentRecord // nil until it is prepared
	container   Container          // nil until it is prepared; this process ends it if the guard is lost
	uncontained error              // why container may not be able to do that; nil if it can
	guardLostAt time.Duration      // when the guard was lost
	seq         int
	startSent   bool // some of it may run
	killing     bool // the guard has reported that it is killing it
	pid         int
	status      string
	output      string
	answers     chan error // to prepare and start
	exited      chan struct{}
	dead        chan struct{}
	unkillable  chan error
}

// Start starts work, for which there must be a lease, and waits until it runs. Only one piece of work can run at a
// time. Start returns an error only if no process of the work runs. A unit is only permitted to run: the caller asks
// systemd to start and stop it, and must call Kill or Stop when the unit ends.
func (l *Leadership) Start(spec Spec) (*Work, error) {
	w, err := l.newWork(&spec)
	if err != nil {
		return nil, err
	}
	if err = l.begin(w); err != nil {
		return nil, err
	}
	if err = w.prepare(&spec); err != nil {
		return nil, err
	}
	if err = w.start(); err != nil {
		return nil, err
	}
	harden.RefreshLocks() // from here on this process may have to act
	return w, nil
}

// newWork completes the specification of work that is not known to the guard yet.
func (l *Leadership) newWork(spec *Spec) (w *Work, err error) {
	w = &Work{
		c: l.c, leadership: l, unit: spec.Unit, answers: make(chan error, 3),
		exited: make(chan struct{}), dead: make(chan struct{}), unkillable: make(chan error, 1),
	}
	if spec.Unit != nil {
		return w, nil
	}
	if spec.Path, err = exec.LookPath(spec.Argv[0]); err != nil {
		return nil, err
	}
	if spec.StopSignal == 0 {
		spec.StopSignal = syscall.SIGTERM
	}
	w.env = identifyingEnv(spec.Env) // no process leaves a unit's control group
	if path := l.c.sessionPath(); path != "" {
		spec.StateFile = workStateFile(path, l.file)
	}
	return w, nil
}

// begin makes w the current work.
func (l *Leadership) begin(w *Work) error {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch err := c.Err(); {
	case err != nil:
		return err
	case l.abandoned:
		return ErrAbandoned
	case l.running != nil:
		return fmt.Errorf("process %d still runs", l.running.pid)
	}
	c.seq++
	w.seq, l.running = c.seq, w
	return nil
}

// prepare makes the guard prepare the work. Before any of it runs, this process and the files have what is needed to
// find all of it without the guard.
func (w *Work) prepare(spec *Spec) error {
	c := w.c
	c.send(message{Kind: kindPrepare, Leadership: w.leadership.id, Seq: w.seq, Spec: spec})
	if err := w.await(); err != nil {
		return err
	}
	if spec.StateFile != "" {
		if err := os.WriteFile(spec.StateFile, []byte(stateDead), 0o600); err != nil {
			c.log.Error("'zkelectd release' may not be able to determine whether work runs", "err", err)
		}
	}
	saved := w.leadership.lockAndSave()
	if saved != nil {
		w.leadership.voidFile()
	}
	// A unit has no keeper: what this process cannot open or save, nothing could kill if the guard, or both, were killed.
	if err := errors.Join(w.uncontained, saved); err != nil && w.unit != nil {
		w.Kill()
		<-w.dead
		return err
	}
	return nil
}

// start makes the guard start the prepared work, unless there is no lease.
func (w *Work) start() error {
	c := w.c
	c.mu.Lock()
	if err := c.Err(); err != nil {
		c.mu.Unlock()
		return err
	}
	w.startSent = true
	c.armTimer()
	c.mu.Unlock()
	c.send(message{Kind: kindStart, Seq: w.seq})
	if err := w.await(); err != nil {
		return err
	}
	w.leadership.lockAndSave()
	return nil
}

// await waits for the guard's next answer. Work whose answer is late is killed, such as a program on a disk that hangs.
// That ends this leadership only: the guard is given up if it answers nothing at all.
func (w *Work) await() error {
	limit := time.NewTimer(startTimeout)
	defer limit.Stop()
	for asked := time.Duration(0); ; limit.Reset(pingTimeout) {
		select {
		case err := <-w.answers:
			return err
		case <-limit.C:
		}
		w.c.mu.Lock()
		heard := w.c.heard
		w.c.mu.Unlock()
		if asked != 0 && heard <= asked {
			w.c.loseGuard(fmt.Errorf("%w: it answers nothing", ErrLost))
			return <-w.answers
		}
		asked = boottime.Now()
		w.Kill()
		w.c.send(message{Kind: kindLease}) // which the guard confirms
	}
}

// lockAndSave writes the leadership's file.
func (l *Leadership) lockAndSave() error {
	l.updating.Lock()
	defer l.updating.Unlock()
	return l.save()
}

// voidFile empties the leadership's file after it could not be written, as with a full disk. It says what was true
// before this work: the next start would release leadership by it while the work runs (S1). A session with a file that
// cannot be read is left to expire.
func (l *Leadership) voidFile() {
	l.updating.Lock()
	defer l.updating.Unlock()
	if path := l.c.sessionPath(); path != "" && l.unsaved != nil {
		// where nothing can be changed, the keeper refuses to start the work
		if file := leadershipFile(path, l.file); os.Truncate(file, 0) != nil {
			os.WriteFile(file, nil, 0o600)
		}
	}
}

// receive handles a message from the guard. The caller must hold the client's mu.
func (w *Work) receive(m message) {
	l := w.leadership
	switch m.Kind {
	case kindPrepared, kindStarted:
		if m.Error != "" {
			w.end(errors.New(m.Error))
			return
		}
		if m.Kind == kindPrepared {
			w.setContainment(m.Containment)
		} else {
			w.pid = m.Pid
		}
		w.answers <- nil
	case kindKilling:
		w.killing = true
	case kindExited:
		w.status = m.Status
		close(w.exited)
	case kindUnkillable:
		l.unkillable = m.Error
		w.reportUnkillable(m.Error)
	case kindDead:
		w.output = m.Output
		w.end(errKilledEarly)
		w.finish("was killed")
	}
}

// end forgets work of which nothing runs. cause is the error of a Start that still waits. The caller must hold the
// client's mu.
func (w *Work) end(cause error) {
	w.leadership.running, w.leadership.unkillable = nil, ""
	if w.container != nil {
		w.container.Close()
		w.container = nil
	}
	select {
	case w.answers <- cause:
	default:
	}
}

// finish reports the death of the work, and its status if that is not known yet.
func (w *Work) finish(status string) {
	select {
	case <-w.exited:
	default:
		w.status = status
		close(w.exited)
	}
	close(w.dead)
}

// setContainment opens what this process needs to end the work if the guard is lost. If the control group cannot be
// opened, the keeper's report can still prove the death of the work. The caller must hold the client's mu.
func (w *Work) setContainment(r *ContainmentRecord) {
	w.containment = r
	var err error
	switch {
	case w.unit != nil:
		w.container, err = newUnitContainer(*w.unit)
	case r != nil:
		c := &unguardedWork{w: w}
		if w.container = c; r.Group != "" {
			c.group, err = openCgroup(r.Group)
		}
	}
	if err != nil {
		w.uncontained = err
		w.c.log.Warn("if the guard dies, it may be impossible to prove that the work is dead", "group",
			w.leadership.name, "err", err)
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

// Unkillable returns a channel that receives an error when a process of the work turns out to be impossible to kill.
// The caller must stop the work then.
func (w *Work) Unkillable() <-chan error { return w.unkillable }

// Unit returns the unit; nil for a process.
func (w *Work) Unit() *Unit { return w.unit }

// Exited returns a channel that is closed when the main process has ended. The processes that it has left behind are
// killed.
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
