package worker

import (
	"context"
	"errors"
	"fmt"

	"zkelectd/internal/guard"
	"zkelectd/internal/transition"
	"zkelectd/internal/work/probe"
)

func (w *Worker) startProcess(term int64) []transition.Event {
	env := w.env(term)
	p, socket, err := w.launch(term, env)
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
		if socket != nil {
			socket.Close()
		}
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

func (w *Worker) launch(term int64, env []string) (*guard.Work, *probe.Socket, error) {
	spec := w.opt.Spec
	var socket *probe.Socket
	if spec.Ready.Notify {
		var err error
		if socket, err = probe.ListenNotify(probe.Notified{
			Status:  func(text string) { w.opt.Log.Info("child reports its status", "status", text) },
			Publish: func(value string) { w.opt.Publish(term, value) },
		}); err != nil {
			return nil, nil, err
		}
		env = append(env, "NOTIFY_SOCKET="+socket.Path())
	}
	p, err := w.begin(guard.Spec{Argv: spec.Command, Dir: spec.Dir, Env: env, StopSignal: spec.StopSignal})
	if err != nil {
		if socket != nil {
			socket.Close()
		}
		return nil, nil, fmt.Errorf("child.command %q cannot be started: %w", spec.Command[0], err)
	}
	if socket != nil {
		socket.Expect(p.Pid())
	}
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
