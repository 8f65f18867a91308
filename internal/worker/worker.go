// Package worker runs one group's leader-only work on this host: the pre_start hook, then a process or a systemd unit with its
// probes, then the post_stop hook. The guard starts the work and ends it with the lease, whatever this process does (S1 in
// docs/protocol.md); this package asks the guard, and reports what happens. It decides nothing about leadership and reads no
// configuration file.
package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"zkelectd/internal/guard"
	"zkelectd/internal/hook"
	"zkelectd/internal/probe"
	"zkelectd/internal/workenv"
)

// Guard is what a worker needs of the guard.
type Guard interface {
	// Start starts work, for which there must be a lease.
	Start(guard.WorkOptions) (*guard.Work, error)
	// SetPendingHooks sets the hooks that the guard runs if this daemon dies as the leader; none clears them.
	SetPendingHooks(...guard.Spec) error
	// Owners returns the guard's and the daemon's process.
	Owners() (guardian, daemon guard.Process)
}

// Options are what a worker needs.
type Options struct {
	Guard Guard
	Log   *slog.Logger
	Spec  Spec
	// Fencing returns the identity and fencing token that the work gets in a term. It is called by PreStart, Start, PostStop and
	// SetPendingHooks only.
	Fencing func(term int64) workenv.Fencing
	// HookTimeout bounds each hook that the guard runs in the place of a daemon that has died.
	HookTimeout time.Duration
	// Report takes what happens later than the call that caused it. It is called from several goroutines, and may block.
	Report func(Event)
}

// Spec is the leader-only work.
type Spec struct {
	// Command is the work, Unit a systemd unit instead. With neither of them the work has nothing to run and is ready at once.
	Command []string
	Unit    string
	Dir     string
	// Env is added to the environment of Command and of the hooks.
	Env map[string]string
	// UnitSocket is where the start of Unit is answered.
	UnitSocket  string
	StopSignal  syscall.Signal
	StopTimeout time.Duration
	Ready       probe.Readiness
	// Live watches work that is ready; without a target only the end of the work counts.
	Live  probe.Watch
	Hooks Hooks
}

// Hooks are the commands around the work; each may be empty.
type Hooks struct {
	PreStart, PostStop, OnChange []string
	// Timeout bounds PreStart and PostStop.
	Timeout time.Duration
}

// Event is something that happened to the work.
type Event interface{ event() }

type (
	// HookDone ends PreStart or PostStop.
	HookDone struct{ Err error }
	// Started means that something of the work may run.
	Started struct{}
	// Ready means that the work serves.
	Ready struct{}
	// Failed means that the work could not be started, does not become ready, serves no more or cannot be killed.
	Failed struct{ Err error }
	// Dead means that no process of the work is left. Status is how it ended.
	Dead struct{ Status string }
)

func (HookDone) event() {}
func (Started) event()  {}
func (Ready) event()    {}
func (Failed) event()   {}
func (Dead) event()     {}

// Worker runs the work, at most one at a time. PreStart, Start and PostStop return what has happened at once; the rest comes by
// Options.Report. Stop and Kill return at once: [HookDone] or [Dead] follows.
type Worker struct {
	opt     Options
	pending bool // the guard has hooks to run
	owned   sync.WaitGroup

	mu      sync.Mutex
	running work
}

// work is what runs now: a hook, a process or a unit.
type work interface {
	Stop(grace time.Duration)
	Kill()
}

// New returns a worker.
func New(opt Options) *Worker { return &Worker{opt: opt} }

// Wait returns when all goroutines of the worker have ended: nothing of the work is left, and no hook runs.
func (w *Worker) Wait() { w.owned.Wait() }

// Stop asks the work to stop, and has it killed after grace. A hook is killed at once: it has nothing to finish that a failed
// takeover needs.
func (w *Worker) Stop(grace time.Duration) {
	if r := w.current(); r != nil {
		r.Stop(grace)
	}
}

// Kill kills the work.
func (w *Worker) Kill() {
	if r := w.current(); r != nil {
		r.Kill()
	}
}

func (w *Worker) current() work {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running
}

func (w *Worker) set(r work) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = r
}

// env returns the environment of the work and of its hooks.
func (w *Worker) env(term int64) []string {
	return workenv.Build(os.Environ(), w.opt.Fencing(term), w.opt.Spec.Env)
}

// SetPendingHooks has the guard run what undoes leadership if this daemon dies before it has done so (A5 in docs/protocol.md).
// change is the standard input of OnChange.
func (w *Worker) SetPendingHooks(term int64, change []byte) {
	var specs []guard.Spec
	add := func(key string, argv, env []string, input []byte) {
		if len(argv) == 0 {
			return
		}
		path, err := exec.LookPath(argv[0])
		if err != nil {
			w.opt.Log.Warn("a hook could not be run if this daemon died as the leader", "hook", key, "err", err)
			return
		}
		specs = append(specs, guard.Spec{Path: path, Argv: argv, Env: env, Input: input, Timeout: w.opt.HookTimeout})
	}
	add("hooks.post_stop", w.opt.Spec.Hooks.PostStop, w.env(term), nil)
	add("hooks.on_change", w.opt.Spec.Hooks.OnChange, workenv.Clean(os.Environ()), change)
	w.pending = len(specs) > 0
	if w.pending {
		w.opt.Guard.SetPendingHooks(specs...)
	}
}

// ClearPendingHooks takes them back: leadership is undone.
func (w *Worker) ClearPendingHooks() {
	if w.pending {
		w.pending = false
		w.opt.Guard.SetPendingHooks()
	}
}

// hookWork is a hook that the guard runs.
type hookWork struct{ *guard.Work }

// Stop kills it.
func (h hookWork) Stop(time.Duration) { h.Kill() }

// PreStart runs the hook as part of the work: it is killed with it.
func (w *Worker) PreStart(term int64) []Event {
	argv := w.opt.Spec.Hooks.PreStart
	if len(argv) == 0 {
		return []Event{HookDone{}}
	}
	h, err := w.opt.Guard.Start(guard.WorkOptions{Command: argv, Env: w.env(term), Capture: true})
	if err != nil {
		return []Event{HookDone{Err: w.logHook(fmt.Errorf("hooks.pre_start %s failed: %w", argv[0], err))}}
	}
	w.set(hookWork{h})
	w.owned.Go(func() {
		limit := time.NewTimer(w.opt.Spec.Hooks.Timeout)
		defer limit.Stop()
		late := false
		select {
		case <-h.Dead():
		case <-limit.C:
			late = true
			h.Kill()
			<-h.Dead()
		}
		w.set(nil)
		w.opt.Report(HookDone{Err: w.logHook(w.preStartError(argv[0], h, late))})
	})
	return nil
}

// preStartError returns an error unless the hook has succeeded.
func (w *Worker) preStartError(name string, h *guard.Work, late bool) error {
	status := h.Status()
	switch {
	case status == guard.StatusSuccess:
		return nil
	case late:
		status = fmt.Sprintf("not done within %s", w.opt.Spec.Hooks.Timeout)
	}
	if text := strings.TrimSpace(h.Output()); text != "" {
		status += ": " + text
	}
	return fmt.Errorf("hooks.pre_start %s failed: %s", name, status)
}

func (w *Worker) logHook(err error) error {
	if err != nil {
		w.opt.Log.Error("hook failed", "err", err)
	}
	return err
}

// PostStop runs the hook to its end or its timeout, also when the lease is over: it only undoes.
func (w *Worker) PostStop(term int64) []Event {
	argv := w.opt.Spec.Hooks.PostStop
	if len(argv) == 0 {
		return []Event{HookDone{}}
	}
	env := w.env(term)
	w.owned.Go(func() {
		h := hook.Hook{Setting: "hooks.post_stop", Argv: argv, Env: env, Timeout: w.opt.Spec.Hooks.Timeout}
		w.opt.Report(HookDone{Err: w.logHook(h.Run(context.Background(), nil))})
	})
	return nil
}

// Start starts the work, and watches its readiness and its end.
func (w *Worker) Start(term int64) []Event {
	switch {
	case w.opt.Spec.Unit != "":
		return w.startUnit(term)
	case len(w.opt.Spec.Command) == 0:
		return []Event{Ready{}}
	}
	return w.startProcess(term)
}
