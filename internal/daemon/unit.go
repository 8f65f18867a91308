package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"

	"zkelectd/internal/admission"
	"zkelectd/internal/guard"
	"zkelectd/internal/systemd"
	"zkelectd/internal/transition"
	"zkelectd/internal/workenv"
)

// Timing of the leader-only unit.
const (
	unitLook    = 100 * time.Millisecond // between two looks whether it still runs
	unitAnswers = 2 * time.Second        // for what systemd has only to look up
)

// unitRun is one life of the leader-only unit. systemd starts and stops it; the guard ends it with the lease, whether
// systemd answers or not (S1).
type unitRun struct {
	t        *task
	name     string
	term     int64
	starting context.Context // over when it is to end
	cancel   context.CancelFunc

	mu      sync.Mutex
	work    *guard.Work       // nil until there is a permit
	answers *admission.Server // for the unit's start; nil until it may start
}

// startUnit starts the unit and watches over its readiness and its end.
func (t *task) startUnit(term int64) {
	r := &unitRun{t: t, name: t.l.d.config().Child.Unit, term: term}
	r.starting, r.cancel = context.WithCancel(context.Background())
	t.setUnit(r)
	t.l.inline = append(t.l.inline, transition.ChildStarted{})
	t.l.owned.Go(r.live)
}

// live is over when nothing of the unit is left.
func (r *unitRun) live() {
	log := r.t.l.d.log.With("unit", r.name, "term", r.term)
	defer r.cancel()
	w, err := r.start()
	switch {
	case err == nil:
		log.Info("unit started")
	case r.starting.Err() == nil:
		log.Error("the unit could not be started", "err", err)
		r.t.l.report(transition.ChildFailed{Err: err}) // which has it stopped
	}
	status := "was not started"
	if w != nil {
		serving, over := context.WithCancel(context.Background())
		if err == nil {
			r.t.l.owned.Go(func() { r.t.serving(serving, r.term, nil) })
			r.watch(w)
			r.cancel() // whatever its own Restart= says
		}
		<-w.Dead()
		over()
		status = r.outcome(w)
		log.Info("unit ended", "status", status)
	}
	r.silence()
	r.t.setUnit(nil)
	r.t.l.report(transition.ChildDead{Status: status})
}

// silence ends the answers for the unit's start.
func (r *unitRun) silence() {
	r.mu.Lock()
	s := r.answers
	r.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// start returns what is to be ended again, if anything, even if it fails.
func (r *unitRun) start() (*guard.Work, error) {
	c := r.t.l.d.config()
	ctx, cancel := context.WithTimeout(r.starting, c.Child.Ready.Timeout)
	defer cancel()
	u, err := admission.CheckUnit(ctx, c.Child.Unit)
	if err != nil {
		return nil, err
	}
	own := ties{permit: guard.PermitDir(), socket: c.UnitSocket(os.Getenv), service: guard.OwnService()}
	if err := own.check(u); err != nil {
		return nil, err
	}
	if !u.Idle() {
		r.t.l.d.log.Warn("the unit runs without leadership and is stopped first", "unit", r.name, "state", u.State)
		if err := systemd.Stop(ctx, r.name); err != nil {
			return nil, err
		}
	}
	w, err := r.permit(u)
	if err != nil {
		return nil, err
	}
	if err := systemd.Start(ctx, r.name); err != nil {
		return w, err
	}
	if err := permitted(u).CheckKillGranted(); err != nil {
		return w, fmt.Errorf("%s has not entrusted its control group: %w", r.name, err)
	}
	return w, nil
}

// permit has the guard let the unit run, unless it is to end already.
func (r *unitRun) permit(u systemd.Unit) (*guard.Work, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.starting.Err(); err != nil {
		return nil, err
	}
	client := r.t.l.d.opt.Guard
	a := admission.Answer{Group: u.Group, Fencing: r.t.fencing(r.term)}
	a.Guard, a.Daemon = client.Owners()
	var err error
	if r.answers, err = admission.Serve(u.Socket, a); err != nil {
		return nil, err
	}
	context.AfterFunc(r.starting, r.answers.Close)
	g := permitted(u)
	w, err := client.Start(guard.WorkOptions{Unit: &g})
	if err != nil {
		return nil, fmt.Errorf("%s gets no permit: %w", r.name, err)
	}
	r.work = w
	return w, nil
}

func permitted(u systemd.Unit) guard.Unit {
	return guard.Unit{Name: u.Name, Group: u.Group, Permit: u.Permit}
}

// watch returns when the unit is ending: by itself, or because it was asked to.
func (r *unitRun) watch(w *guard.Work) {
	t := time.NewTicker(unitLook)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-w.Dead():
			return
		case <-r.starting.Done():
			return // somebody has asked it to stop
		}
		if !w.UnitMayRun() {
			w.Stop(r.t.l.d.config().Child.StopTimeout) // what it does after its end may take so long
			return
		}
	}
}

func (r *unitRun) outcome(w *guard.Work) string {
	ctx, cancel := context.WithTimeout(context.Background(), unitAnswers)
	defer cancel()
	if told := systemd.ExitStatus(ctx, r.name); told != "" {
		return told
	}
	return w.Status()
}

// stop asks systemd to stop the unit, and has the guard kill it after grace.
func (r *unitRun) stop(grace time.Duration) {
	r.cancel()
	w := r.permitted()
	if w == nil {
		return
	}
	w.Stop(grace)
	r.t.l.owned.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), max(grace, unitLook))
		defer cancel()
		if err := systemd.Stop(ctx, r.name); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			r.t.l.d.log.Error("the unit cannot be asked to stop and is killed", "unit", r.name, "err", err)
			w.Kill()
		}
	})
}

func (r *unitRun) kill() {
	r.cancel()
	if w := r.permitted(); w != nil {
		w.Kill()
	}
}

func (r *unitRun) permitted() *guard.Work {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.work
}

// ties are what a unit has to name to be tied to this very daemon.
type ties struct{ permit, socket, service string }

// check returns an error unless the unit names them.
func (own ties) check(u systemd.Unit) error {
	differs := func(what, has, is string) error {
		return fmt.Errorf("child.unit: %s has %s %s, and that of this zkelectd is %s: correct its drop-in (systemctl edit %s)", u.Name, what, has, is, u.Name)
	}
	switch {
	case own.permit == "":
		return errors.New("child.unit: zkelectd itself has to be a systemd service with Delegate=yes, where the unit's permit is kept")
	case own.socket == "":
		return errors.New("child.unit: zkelectd itself has to be a systemd service with RuntimeDirectory=, where the start of the unit finds it")
	case u.Permit != own.permit:
		return differs("the permit", u.Permit, own.permit)
	case u.Socket != own.socket:
		return differs("the socket", u.Socket, own.socket)
	case own.service != "" && !slices.Contains(u.BindsTo, own.service):
		return fmt.Errorf("child.unit: %s is bound to %v, and this zkelectd is %s: correct BindsTo= in its drop-in (systemctl edit %s)", u.Name, u.BindsTo, own.service, u.Name)
	}
	return nil
}

// fencing is what the work learns of its leadership.
func (t *task) fencing(term int64) workenv.Fencing {
	c := t.l.d.config()
	return workenv.Fencing{
		Node: c.Node.ID, Site: c.Node.Site, Group: path.Base(c.ZooKeeper.Root), Term: strconv.FormatInt(term, 10), Root: c.ZooKeeper.Root,
	}
}
