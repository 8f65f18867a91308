package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"zkelectd/internal/guard"
	"zkelectd/internal/transition"
	"zkelectd/internal/work/probe"
)

func (w *Worker) startProcess(term int64) []transition.Event {
	env := w.env(term)
	p, socket, err := w.opt.Spec.launch(w.begin, env, w.opt.Spec.Ready.Notify, probe.Notified{
		Status:       func(text string) { w.opt.Log.Info("child reports its status", "status", text) },
		PublishValue: func(value string) { w.opt.PublishValue(term, value) },
	})
	if err != nil {
		return []transition.Event{transition.ChildFailed{Err: err}}
	}
	w.set(p)
	w.opt.Log.Info("child started", "pid", p.Pid(), "term", term)
	ctx, cancel := context.WithCancel(context.Background())
	w.owned.Go(func() {
		select {
		case err := <-p.Unkillable():
			w.opt.Report(transition.ChildFailed{Err: err})
		case <-p.Exited():
		}
		<-p.Exited()
		cancel() // a dead process never becomes ready
		<-p.Dead()
		socket.Close()
		w.set(nil)
		w.opt.Log.Info("child ended", "pid", p.Pid(), "term", term, "status", p.Status())
		w.opt.Report(transition.ChildDead{Status: p.Status()})
	})
	if w.opt.Spec.Ready.Immediate() {
		w.owned.Go(func() { w.watchLiveness(ctx, env) })
		return []transition.Event{transition.ChildStarted{}, transition.ChildReady{}} // even if it has ended by now
	}
	w.owned.Go(func() { w.watchReadiness(ctx, env, socket) })
	return []transition.Event{transition.ChildStarted{}}
}

// launch starts the command, with a socket for its notifications if it notifies.
func (s Spec) launch(start func(guard.Spec) (*guard.Work, error), env []string, notifies bool,
	to probe.Notified) (*guard.Work, *probe.Socket, error) {
	var socket *probe.Socket
	if notifies {
		var err error
		if socket, err = probe.ListenNotify(to); err != nil {
			return nil, nil, err
		}
		env = append(slices.Clone(env), "NOTIFY_SOCKET="+socket.Path())
	}
	p, err := start(guard.Spec{Argv: s.Command, Dir: s.Dir, Env: env, StopSignal: s.StopSignal})
	if err != nil {
		socket.Close()
		return nil, nil, fmt.Errorf("child.command %q cannot be started: %w", s.Command[0], err)
	}
	socket.Expect(p.Pid())
	return p, socket, nil
}

// watchReadiness reports when the work becomes ready, and when its liveness probe fails, until ctx ends.
func (w *Worker) watchReadiness(ctx context.Context, env []string, socket *probe.Socket) {
	switch err := probe.Wait(ctx, w.opt.Spec.Ready, env, socket); {
	case err == nil:
		ready := transition.ChildReady{}
		if socket != nil {
			ready.Value = socket.Value()
		}
		w.opt.Report(ready)
		w.watchLiveness(ctx, env)
	case !errors.Is(err, context.Canceled):
		w.opt.Report(transition.ChildFailed{Err: err})
	}
}

// watchLiveness reports when the work's liveness probe fails, until ctx ends.
func (w *Worker) watchLiveness(ctx context.Context, env []string) {
	if w.opt.Spec.Live.Empty() {
		return
	}
	w.opt.Spec.Live.Run(ctx, env, func(err error) {
		if err != nil {
			w.opt.Report(transition.ChildFailed{Err: err})
		}
	})
}
