package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"zkelectd/internal/guard"
	"zkelectd/internal/hook"
	"zkelectd/internal/probe"
	"zkelectd/internal/transition"
	"zkelectd/internal/workenv"
)

// task is the leader-only work of this host, the pre_start hook and the child. The guard runs it and ends it with the
// lease (S1), so that it is over in time even while this process is busy, stopped or dead.
type task struct {
	l *loop

	mu   sync.Mutex
	work *guard.Work
	hook bool // it is the hook that runs
	owed bool // the guard has something to undo
	unit *unitRun
}

func (t *task) setUnit(r *unitRun) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unit = r
}

func (t *task) runningUnit() *unitRun {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unit
}

func (t *task) set(w *guard.Work, hook bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.work, t.hook = w, hook
}

func (t *task) running() (w *guard.Work, hook bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.work, t.hook
}

// env is the child's and the hooks' environment.
func (t *task) env(term int64) []string {
	return workenv.Build(os.Environ(), t.fencing(term), t.l.d.config().Child.Env)
}

// owe has the guard run what undoes leadership, should this daemon not live to do it (A5 in docs/protocol.md).
func (t *task) owe(term int64) {
	d := t.l.d
	var undo []guard.Spec
	add := func(key string, argv, env []string, input []byte) {
		if len(argv) == 0 {
			return
		}
		path, err := exec.LookPath(argv[0])
		if err != nil {
			d.log.Warn("should this daemon die as the leader, a hook cannot be run", "hook", key, "err", err)
			return
		}
		undo = append(undo, guard.Spec{Path: path, Argv: argv, Env: env, Input: input, Timeout: t.l.budget.Kill})
	}
	add("hooks.post_stop", d.config().Hooks.PostStop, t.env(term), nil)
	lost := d.change(transition.Standby, term, "the daemon has died as the leader")
	if data, err := json.Marshal(lost); err == nil {
		add("hooks.on_change", d.config().Hooks.OnChange, workenv.Clean(os.Environ()), append(data, '\n'))
	}
	t.owed = len(undo) > 0
	if t.owed {
		d.opt.Guard.SetPendingHooks(undo...)
	}
}

// settle says that what undoes leadership has been run.
func (t *task) settle() {
	if t.owed {
		t.owed = false
		t.l.d.opt.Guard.SetPendingHooks()
	}
}

// preStart runs the hook as part of the work: it is killed with it.
func (t *task) preStart(term int64) {
	argv := t.l.d.config().Hooks.PreStart
	if len(argv) == 0 {
		t.l.inline = append(t.l.inline, transition.HookDone{})
		return
	}
	w, err := t.l.d.opt.Guard.Start(guard.WorkOptions{Command: argv, Env: t.env(term), Capture: true})
	if err != nil {
		t.l.inline = append(t.l.inline, transition.HookDone{Err: t.hookFailed(fmt.Errorf("hooks.pre_start %s failed: %w", argv[0], err))})
		return
	}
	t.set(w, true)
	t.l.owned.Go(func() {
		limit := time.NewTimer(t.l.d.config().Hooks.Timeout)
		defer limit.Stop()
		late := false
		select {
		case <-w.Dead():
		case <-limit.C:
			late = true
			w.Kill()
			<-w.Dead()
		}
		t.set(nil, false)
		t.l.report(transition.HookDone{Err: t.hookFailed(t.judge(argv[0], w, late))})
	})
}

// judge makes an error of how the hook went.
func (t *task) judge(name string, w *guard.Work, late bool) error {
	how := w.Status()
	switch {
	case how == guard.StatusSuccess:
		return nil
	case late:
		how = fmt.Sprintf("not done within %s", t.l.d.config().Hooks.Timeout)
	}
	if text := strings.TrimSpace(w.Output()); text != "" {
		how += ": " + text
	}
	return fmt.Errorf("hooks.pre_start %s failed: %s", name, how)
}

func (t *task) hookFailed(err error) error {
	if err != nil {
		t.l.d.log.Error("hook failed", "err", err)
	}
	return err
}

// postStop runs the hook to its end or its timeout, also when the lease is over: it only undoes.
func (t *task) postStop(term int64) {
	argv := t.l.d.config().Hooks.PostStop
	if len(argv) == 0 {
		t.l.inline = append(t.l.inline, transition.HookDone{})
		return
	}
	t.l.owned.Go(func() {
		h := hook.Hook{Setting: "hooks.post_stop", Argv: argv, Env: t.env(term), Timeout: t.l.d.config().Hooks.Timeout}
		err := h.Run(context.Background(), nil)
		t.l.report(transition.HookDone{Err: t.hookFailed(err)})
	})
}

// start starts the child and watches over its readiness and its end.
func (t *task) start(term int64) {
	c := t.l.d.config().Child
	if c.Unit != "" {
		t.startUnit(term)
		return
	}
	if len(c.Command) == 0 {
		t.l.inline = append(t.l.inline, transition.ChildReady{})
		return
	}
	w, socket, err := t.launch(term)
	if err != nil {
		t.l.inline = append(t.l.inline, transition.ChildFailed{Err: err})
		return
	}
	t.set(w, false)
	t.l.d.log.Info("child started", "pid", w.Pid(), "term", term)
	t.l.inline = append(t.l.inline, transition.ChildStarted{})
	waiting, cancel := context.WithCancel(context.Background())
	t.l.owned.Go(func() {
		select {
		case err := <-w.Unkillable():
			t.l.report(transition.ChildFailed{Err: err})
		case <-w.Exited():
		}
		<-w.Exited()
		cancel() // what is dead never gets ready
		<-w.Dead()
		if socket != nil {
			socket.Close()
		}
		t.set(nil, false)
		t.l.d.log.Info("child ended", "pid", w.Pid(), "term", term, "status", w.Status())
		t.l.report(transition.ChildDead{Status: w.Status()})
	})
	if t.readiness().Immediate() {
		t.l.inline = append(t.l.inline, transition.ChildReady{}) // whatever becomes of it
		t.l.owned.Go(func() { t.live(waiting, term) })
		return
	}
	t.l.owned.Go(func() { t.serving(waiting, term, socket) })
}

func (t *task) readiness() probe.Readiness {
	c := t.l.d.config().Child.Ready
	return probe.Readiness{
		Exec: c.Exec, HTTP: c.HTTP, TCP: c.TCP, Notify: c.Notify, Delay: c.Delay, Interval: c.Interval, Timeout: c.Timeout,
	}
}

// serving reports when the work is ready, and when it serves no more, for as long as it lives.
func (t *task) serving(life context.Context, term int64, socket *probe.Socket) {
	var err error
	if ready := t.readiness(); !ready.Immediate() {
		err = probe.Wait(life, ready, t.env(term), socket)
	}
	switch {
	case err == nil:
		t.l.report(transition.ChildReady{})
		t.live(life, term)
	case !errors.Is(err, context.Canceled):
		t.l.report(transition.ChildFailed{Err: err})
	}
}

// live has leadership given up when the child is alive but serves no more.
func (t *task) live(life context.Context, term int64) {
	c := t.l.d.config().Child.Live
	if target(c.Check).None() {
		return
	}
	w := probe.Watch{Target: target(c.Check), Section: "child.live", Interval: c.Interval, Timeout: c.Timeout, Rise: 1, Fall: c.Fall}
	w.Run(life, t.env(term), func(err error) {
		if err != nil {
			t.l.report(transition.ChildFailed{Err: err})
		}
	})
}

func (t *task) launch(term int64) (*guard.Work, *probe.Socket, error) {
	c := t.l.d.config().Child
	env := t.env(term)
	var socket *probe.Socket
	if c.Ready.Notify {
		var err error
		if socket, err = probe.ListenNotify(func(text string) { t.l.d.log.Info("child says", "status", text) }); err != nil {
			return nil, nil, err
		}
		env = append(env, "NOTIFY_SOCKET="+socket.Path())
	}
	w, err := t.l.d.opt.Guard.Start(guard.WorkOptions{Command: c.Command, Dir: c.Dir, Env: env, StopSignal: c.Signal()})
	if err != nil {
		if socket != nil {
			socket.Close()
		}
		return nil, nil, fmt.Errorf("child.command %q cannot be started: %w", c.Command[0], err)
	}
	if socket != nil {
		socket.Expect(w.Pid())
	}
	return w, socket, nil
}

// stop asks the child to stop, and has it killed after grace. A hook is simply killed: it has nothing to finish that a
// failed takeover needs.
func (t *task) stop(grace time.Duration) {
	w, hook := t.running()
	switch u := t.runningUnit(); {
	case u != nil:
		u.stop(grace)
	case w == nil:
	case hook:
		w.Kill()
	default:
		w.Stop(grace)
	}
}

func (t *task) kill() {
	if u := t.runningUnit(); u != nil {
		u.kill()
	} else if w, _ := t.running(); w != nil {
		w.Kill()
	}
}
