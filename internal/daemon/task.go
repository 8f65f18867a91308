package daemon

import (
	"context"
	"errors"
	"os"
	"path"
	"strconv"
	"sync"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/child"
	"zkelectd/internal/hook"
	"zkelectd/internal/probe"
	"zkelectd/internal/transition"
)

// task is the leader-only work of this host: the hooks and the child. Its lease is enforced by a timer of its own, so
// that the work is over in time even while the loop is busy (S1).
type task struct {
	l *loop

	mu       sync.Mutex
	process  *child.Process
	cancel   context.CancelFunc // of the hook that runs; nil if none does
	deadline time.Duration
	timer    *time.Timer
}

func newTask(l *loop) *task {
	t := &task{l: l}
	t.timer = time.AfterFunc(time.Hour, t.expire)
	return t
}

func (t *task) close() { t.timer.Stop() }

// lease moves the deadline; 0 says that nothing works any more.
func (t *task) lease(deadline time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deadline = deadline
	if deadline == 0 {
		t.timer.Stop()
		return
	}
	t.timer.Reset(max(0, deadline-boottime.Now()))
}

// expire kills the work at the lease's end. The timer's clock stands still while the host is suspended, the lease's
// doesn't: so it looks again.
func (t *task) expire() {
	t.mu.Lock()
	left := t.deadline - boottime.Now()
	due := t.deadline != 0 && left <= 0
	if t.deadline != 0 && left > 0 {
		t.timer.Reset(left)
	}
	t.mu.Unlock()
	if due {
		t.kill()
	}
}

func (t *task) set(p *child.Process, cancel context.CancelFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.process, t.cancel = p, cancel
}

func (t *task) running() (*child.Process, context.CancelFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.process, t.cancel
}

// env is the child's and the hooks' environment.
func (t *task) env(term int64) []string {
	c := t.l.d.cfg
	return child.Environment(os.Environ(), child.Fencing{
		Node: c.Node.ID, Site: c.Node.Site, Group: path.Base(c.ZooKeeper.Root), Term: strconv.FormatInt(term, 10), Root: c.ZooKeeper.Root,
	}, c.Child.Env)
}

// preStart runs the hook as part of the work: it is killed with it.
func (t *task) preStart(term int64) {
	ctx, cancel := context.WithCancel(context.Background())
	t.set(nil, cancel)
	t.hook(ctx, cancel, "pre_start", t.l.d.cfg.Hooks.PreStart, term)
}

// postStop runs the hook to its end or its timeout, also when the lease is over: it only undoes.
func (t *task) postStop(term int64) {
	t.hook(context.Background(), func() {}, "post_stop", t.l.d.cfg.Hooks.PostStop, term)
}

func (t *task) hook(ctx context.Context, cancel context.CancelFunc, name string, argv []string, term int64) {
	if len(argv) == 0 {
		cancel()
		t.set(nil, nil)
		t.l.inline = append(t.l.inline, transition.HookDone{})
		return
	}
	t.l.owned.Go(func() {
		defer cancel()
		err := hook.Run(ctx, name, argv, t.env(term), nil, t.l.d.cfg.Hooks.Timeout)
		t.set(nil, nil)
		if err != nil {
			t.l.d.log.Error("hook failed", "err", err)
		}
		t.l.report(transition.HookDone{Err: err})
	})
}

// start starts the child and watches over its readiness and its end.
func (t *task) start(term int64) {
	c := t.l.d.cfg.Child
	if len(c.Command) == 0 {
		t.l.inline = append(t.l.inline, transition.ChildReady{})
		return
	}
	p, socket, err := t.launch(term)
	if err != nil {
		t.l.inline = append(t.l.inline, transition.ChildFailed{Err: err})
		return
	}
	t.set(p, nil)
	t.l.d.log.Info("child started", "pid", p.Pid(), "term", term)
	t.l.inline = append(t.l.inline, transition.ChildStarted{})
	ready := probe.Readiness{
		Exec: c.Ready.Exec, HTTP: c.Ready.HTTP, TCP: c.Ready.TCP, Notify: c.Ready.Notify, Delay: c.Ready.Delay,
		Interval: c.Ready.Interval, Timeout: c.Ready.Timeout,
	}
	waiting, cancel := context.WithCancel(context.Background())
	t.l.owned.Go(func() {
		<-p.Exited()
		cancel() // what is dead never gets ready
		<-p.Dead()
		if socket != nil {
			socket.Close()
		}
		t.set(nil, nil)
		t.l.d.log.Info("child ended", "pid", p.Pid(), "term", term, "status", p.Status())
		t.l.report(transition.ChildDead{Status: p.Status()})
	})
	if ready.Immediate() {
		t.l.inline = append(t.l.inline, transition.ChildReady{})
		return
	}
	t.l.owned.Go(func() {
		switch err := probe.Wait(waiting, ready, t.env(term), socket); {
		case err == nil:
			t.l.report(transition.ChildReady{})
		case !errors.Is(err, context.Canceled):
			t.l.report(transition.ChildFailed{Err: err})
		}
	})
}

func (t *task) launch(term int64) (*child.Process, *probe.Socket, error) {
	c := t.l.d.cfg.Child
	env := t.env(term)
	var socket *probe.Socket
	if c.Ready.Notify {
		var err error
		if socket, err = probe.ListenNotify(func(text string) { t.l.d.log.Info("child says", "status", text) }); err != nil {
			return nil, nil, err
		}
		env = append(env, "NOTIFY_SOCKET="+socket.Path())
	}
	p, err := child.Start(child.Options{
		Command: c.Command, Dir: c.Dir, Env: env, StopSignal: c.Signal(),
		Stdout: t.l.d.opt.Stdout, Stderr: t.l.d.opt.Stderr, Log: t.l.d.log,
	})
	if socket != nil && err != nil {
		socket.Close()
	}
	if socket != nil && err == nil {
		socket.Expect(p.Pid())
	}
	return p, socket, err
}

// stop asks the child to stop, and kills it after grace. A hook is simply killed: it has nothing to finish that a failed
// takeover needs.
func (t *task) stop(grace time.Duration) {
	p, cancel := t.running()
	if p != nil {
		p.Stop(grace)
	}
	if cancel != nil {
		cancel()
	}
}

func (t *task) kill() {
	p, cancel := t.running()
	if p != nil {
		p.Kill()
	}
	if cancel != nil {
		cancel()
	}
}
