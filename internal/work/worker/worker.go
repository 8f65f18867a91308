// Package worker runs one group's leader-only work on this host: the pre_start hook, then a process or a systemd unit
// with its probes, then the post_stop hook. The guard starts the work and ends it with the lease, whatever this process
// does (S1 in docs/protocol.md); this package sends requests to the guard and reports events. It makes no decisions
// about leadership and does not read configuration files.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"zkelectd/internal/guard"
	"zkelectd/internal/transition"
	"zkelectd/internal/work/hook"
	"zkelectd/internal/work/probe"
	"zkelectd/internal/work/workenv"
)

// Guard is the subset of the guard's methods that a worker uses.
type Guard interface {
	// Start starts work; a lease must be in force.
	Start(guard.Spec) (*guard.Work, error)
	// SetPendingHooks sets the hooks that the guard runs if this daemon dies as the leader; none clears them.
	SetPendingHooks(...guard.Spec) error
	// Owners returns the processes of the guard and the daemon.
	Owners() (guardian, daemon guard.Process)
}

// Options configures a Worker.
type Options struct {
	Guard Guard
	Log   *slog.Logger
	Spec  Spec
	// Standby is promotable work, which Start promotes instead of starting any; nil if the work runs on the leader only.
	Standby *Standby
	// Fencing returns the identity and the fencing token of the work in a term. Only PreStart, Start, PostStop and
	// SetPendingHooks call it.
	Fencing func(term int64) workenv.Fencing
	// HookTimeout bounds each hook that the guard runs after the daemon has died.
	HookTimeout time.Duration
	// Report receives the events that the methods do not return. It is called in several goroutines, and may block.
	Report func(transition.Event)
	// PublishValue receives what the work of a term publishes once it is ready. It must not block.
	PublishValue func(term int64, value string)
}

// Spec is the leader-only work.
type Spec struct {
	// Command is the work, or Unit is a systemd unit. Without both there is nothing to run, and the work is ready at once.
	Command []string
	Unit    string
	Dir     string
	// Env is added to the environment of Command and of the hooks.
	Env map[string]string
	// UnitSocket is the socket that the start of Unit connects to.
	UnitSocket  string
	StopSignal  syscall.Signal
	StopTimeout time.Duration
	Ready       probe.Readiness
	// Live is the liveness probe of work that is ready; it has no target if only the end of the work counts.
	Live  probe.Watch
	Hooks Hooks
	// Promote and Demote make the work promotable, see [Standby]; Warm says whether the standby is ready to be
	// promoted. Without a target it is when it runs, or with WarmNotify when it has sent READY=1.
	Promote, Demote Order
	Warm            probe.Watch
	WarmNotify      bool
	// Reset returns how a watchdog device covers the work that starts now; nil if none does. It returns an error if the
	// work must not run without. It may be nil.
	Reset func() (*guard.ResetSpec, error)
}

// Hooks are the commands around the work; each may be empty.
type Hooks struct {
	PreStart, PostStop, OnChange []string
	// Timeout bounds PreStart and PostStop.
	Timeout time.Duration
}

// Worker runs the work: one hook, process or unit at a time. PreStart, Start and PostStop return the events that happen
// at once; Options.Report receives all others. Stop and Kill do not wait: [transition.HookDone] or
// [transition.ChildDead] follows.
type Worker struct {
	opt     Options
	pending bool // the guard has hooks to run
	owned   sync.WaitGroup

	// The mutex of the standby guards the following.
	lease  time.Duration // see SetLease
	barred int           // see [Standby.Abandon]

	mu      sync.Mutex
	running work
}

// work is a running hook, process or unit.
type work interface {
	Stop(grace time.Duration)
	Kill()
}

// New returns a worker.
func New(opt Options) *Worker {
	w := &Worker{opt: opt}
	if opt.Standby != nil {
		opt.Standby.admit(w)
	}
	return w
}

// Wait waits for all goroutines of the worker. Then the work is dead and no hook runs.
func (w *Worker) Wait() { w.owned.Wait() }

// Stop asks the work to stop; the guard kills it after grace. A hook is killed at once, because a failed takeover does
// not need its result.
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

// SetPendingHooks sets the hooks that the guard runs if this daemon dies before it has run them (A5 in
// docs/protocol.md). change is the standard input of OnChange.
func (w *Worker) SetPendingHooks(term int64, change []byte) {
	var specs []guard.Spec
	add := func(key string, argv []string, optional bool, env func() []string, input []byte) {
		if len(argv) == 0 {
			return
		}
		path, err := exec.LookPath(argv[0])
		if err != nil {
			w.opt.Log.Warn("a pending hook cannot be stored: if this daemon dies as the leader, it does not run",
				"hook", key, "err", err)
			return
		}
		specs = append(specs, guard.Spec{Path: path, Argv: argv, Env: env(), Input: input, Timeout: w.opt.HookTimeout,
			Optional: optional})
	}
	add("hooks.post_stop", w.opt.Spec.Hooks.PostStop, false, func() []string { return w.env(term) }, nil)
	add("hooks.on_change", w.opt.Spec.Hooks.OnChange, true,
		func() []string { return workenv.Extend(os.Environ(), w.opt.Spec.Env) }, change)
	w.pending = len(specs) > 0
	if w.pending {
		w.opt.Guard.SetPendingHooks(specs...)
	}
}

// ClearPendingHooks clears them.
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

// PreStart runs the pre_start hook as part of the work: the guard kills it with the lease.
func (w *Worker) PreStart(term int64) []transition.Event {
	argv := w.opt.Spec.Hooks.PreStart
	if len(argv) == 0 {
		return []transition.Event{transition.HookDone{}}
	}
	h, err := w.begin(guard.Spec{Argv: argv, Env: w.env(term), Capture: true})
	if err != nil {
		return []transition.Event{transition.HookDone{Err: w.logHook(fmt.Errorf("hooks.pre_start %s failed: %w",
			argv[0], err))}}
	}
	w.set(hookWork{h})
	w.owned.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), w.opt.Spec.Hooks.Timeout)
		defer cancel()
		late := await(ctx, h) != nil
		w.set(nil)
		status := h.Status()
		if late {
			status = fmt.Sprintf("not done within %s", w.opt.Spec.Hooks.Timeout)
		}
		err := outcome(h, status)
		if err != nil {
			err = fmt.Errorf("hooks.pre_start %s failed: %w", argv[0], err)
		}
		w.opt.Report(transition.HookDone{Err: w.logHook(err)})
	})
	return nil
}

// begin starts a piece of work, which the watchdog device covers.
func (w *Worker) begin(spec guard.Spec) (*guard.Work, error) {
	if reset := w.opt.Spec.Reset; reset != nil {
		var err error
		if spec.Reset, err = reset(); err != nil {
			return nil, err
		}
	}
	return w.opt.Guard.Start(spec)
}

// await waits until all of a program is dead, and kills it when ctx ends. The error is then that of ctx.
func await(ctx context.Context, h *guard.Work) error {
	select {
	case <-h.Dead():
		return nil
	case <-ctx.Done():
		h.Kill()
		<-h.Dead()
		return ctx.Err()
	}
}

// outcome returns an error with the status and the output of a program that is dead, unless it has succeeded.
func outcome(h *guard.Work, status string) error {
	text := strings.TrimSpace(h.Output())
	switch {
	case h.Status() == guard.StatusSuccess:
		return nil
	case text != "":
		return fmt.Errorf("%s: %s", status, text)
	}
	return errors.New(status)
}

func (w *Worker) logHook(err error) error {
	if err != nil {
		w.opt.Log.Error("hook failed", "err", err)
	}
	return err
}

// PostStop runs the post_stop hook until it ends or times out. It needs no lease, because it only cleans up. ctx ends
// when the leadership is abandoned: then the hook is killed, or not started, as the guard runs it.
func (w *Worker) PostStop(ctx context.Context, term int64) []transition.Event {
	argv := w.opt.Spec.Hooks.PostStop
	if len(argv) == 0 {
		return []transition.Event{transition.HookDone{}}
	}
	env := w.env(term)
	w.owned.Go(func() {
		h := hook.Hook{Setting: "hooks.post_stop", Argv: argv, Env: env, Timeout: w.opt.Spec.Hooks.Timeout}
		w.opt.Report(transition.HookDone{Err: w.logHook(h.Run(ctx, nil))})
	})
	return nil
}

// Start starts the work, and reports when it becomes ready and when it ends.
func (w *Worker) Start(term int64) []transition.Event {
	switch {
	case w.opt.Standby != nil:
		return w.startPromotion(term)
	case w.opt.Spec.Unit != "":
		return w.startUnit(term)
	case len(w.opt.Spec.Command) == 0:
		return []transition.Event{transition.ChildReady{}}
	}
	return w.startProcess(term)
}
