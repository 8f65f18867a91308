package daemon

import (
	"encoding/json"
	"os"
	"path"
	"strconv"
	"time"

	"zkelectd/internal/config"
	"zkelectd/internal/probe"
	"zkelectd/internal/status"
	"zkelectd/internal/transition"
	"zkelectd/internal/workenv"
	"zkelectd/internal/worker"
)

// workSpec returns the leader-only work of a configuration, with the stop timeout of a session.
func workSpec(c config.Config, stop time.Duration) worker.Spec {
	ready, live, hooks := c.Child.Ready, c.Child.Live, c.Hooks
	return worker.Spec{
		Command: c.Child.Command, Unit: c.Child.Unit, UnitSocket: c.UnitSocket(os.Getenv), Dir: c.Child.Dir, Env: c.Child.Env,
		StopSignal: c.Child.Signal(), StopTimeout: stop,
		Ready: probe.Readiness{
			Exec: ready.Exec, HTTP: ready.HTTP, TCP: ready.TCP, Notify: ready.Notify, Delay: ready.Delay, Interval: ready.Interval, Timeout: ready.Timeout,
		},
		Live: probe.Watch{
			Target: target(live.Check), Section: "child.live", Interval: live.Interval, Timeout: live.Timeout, Rise: 1, Fall: live.Fall,
		},
		Hooks: worker.Hooks{PreStart: hooks.PreStart, PostStop: hooks.PostStop, OnChange: hooks.OnChange, Timeout: hooks.Timeout},
	}
}

// newWorker returns the worker of a loop.
func (l *loop) newWorker() *worker.Worker {
	return worker.New(worker.Options{
		Guard: l.d.opt.Guard, Log: l.d.log, Spec: workSpec(l.d.config(), l.budget.Stop), Fencing: l.d.fencing, HookTimeout: l.budget.Kill,
		Report: func(ev worker.Event) { l.report(workEvent(ev)) },
	})
}

// fencing returns what the work learns of its leadership.
func (d *Daemon) fencing(term int64) workenv.Fencing {
	c := d.config()
	return workenv.Fencing{
		Node: c.Node.ID, Site: c.Node.Site, Group: path.Base(c.ZooKeeper.Root), Term: strconv.FormatInt(term, 10), Root: c.ZooKeeper.Root,
	}
}

// workEvent returns an event of the worker as the machine takes it.
func workEvent(ev worker.Event) transition.Event {
	switch ev := ev.(type) {
	case worker.HookDone:
		return transition.HookDone{Err: ev.Err}
	case worker.Started:
		return transition.ChildStarted{}
	case worker.Ready:
		return transition.ChildReady{}
	case worker.Failed:
		return transition.ChildFailed{Err: ev.Err}
	case worker.Dead:
		return transition.ChildDead{Status: ev.Status}
	}
	panic("daemon: an event of the worker that does not exist")
}

// worked feeds the machine what has happened at once, before anything else.
func (l *loop) worked(events []worker.Event) {
	for _, ev := range events {
		l.inline = append(l.inline, workEvent(ev))
	}
}

// setPendingHooks has the guard run what undoes leadership if this daemon dies.
func (l *loop) setPendingHooks(term int64) {
	change := l.d.change(transition.Standby, term, "the daemon has died as the leader")
	l.worker.SetPendingHooks(term, encodeChange(change))
}

// encodeChange returns the standard input of hooks.on_change.
func encodeChange(c status.Change) []byte {
	data, err := json.Marshal(c)
	if err != nil {
		return nil // not reached: plain values
	}
	return append(data, '\n')
}
