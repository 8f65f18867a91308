package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"zkelectd/internal/guard"
	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/transition"
	"zkelectd/internal/work/admission"
	"zkelectd/internal/work/systemd"
	"zkelectd/internal/work/workenv"
)

// Timing of the leader-only unit.
const (
	unitPoll      = 100 * time.Millisecond // between two checks whether the unit still runs
	unitQueryTime = 2 * time.Second        // bounds a query to systemd
)

// unit is one run of a systemd unit, which is the leader-only work or a standby. systemd starts and stops it; the guard
// ends it with the lease, even if systemd does not answer (S1).
type unit struct {
	spec    Spec
	owners  func() (guardian, daemon guard.Process)
	begin   func(guard.Spec) (*guard.Work, error) // makes the guard permit the unit
	log     *slog.Logger
	fencing workenv.Fencing
	owned   *sync.WaitGroup // the requests to systemd to stop the unit
	ctx     context.Context // canceled when the unit must end
	cancel  context.CancelFunc

	mu      sync.Mutex
	work    *guard.Work       // nil until there is a permit
	answers *admission.Server // to the unit's start; nil until the unit may start
}

func (w *Worker) startUnit(term int64) []transition.Event {
	u := &unit{
		spec: w.opt.Spec, owners: w.opt.Guard.Owners, begin: w.begin, log: w.opt.Log.With("unit", w.opt.Spec.Unit,
			"term", term),
		fencing: w.opt.Fencing(term), owned: &w.owned,
	}
	u.ctx, u.cancel = context.WithCancel(context.Background())
	w.set(u)
	env := w.env(term)
	w.owned.Go(func() { w.runUnit(u, env) })
	return []transition.Event{transition.ChildStarted{}}
}

// runUnit starts the unit, and returns when all of it is dead.
func (w *Worker) runUnit(u *unit, env []string) {
	defer u.cancel()
	work, err := u.start()
	switch {
	case err == nil:
		u.log.Info("unit started")
	case u.ctx.Err() == nil:
		u.log.Error("cannot start the unit", "err", err)
		w.opt.Report(transition.ChildFailed{Err: err}) // the group then stops the work
	}
	status := "was not started"
	if work != nil {
		ctx, cancel := context.WithCancel(context.Background())
		if err == nil {
			w.owned.Go(func() { w.watchReadiness(ctx, env, nil) })
			u.watch(work)
			u.cancel() // also if its own Restart= would start it again
		}
		<-work.Dead()
		cancel()
		status = u.exitStatus(work)
		u.log.Info("unit ended", "status", status)
	}
	u.closeAnswers()
	w.set(nil)
	w.opt.Report(transition.ChildDead{Status: status, Unused: work == nil})
}

// closeAnswers stops answering the unit's start.
func (u *unit) closeAnswers() {
	u.mu.Lock()
	s := u.answers
	u.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// start starts the unit. It returns the work if the permit was created, even with an error; the caller must end it.
func (u *unit) start() (*guard.Work, error) {
	name := u.spec.Unit
	ctx, cancel := context.WithTimeout(u.ctx, u.spec.Ready.Timeout)
	defer cancel()
	found, err := admission.CheckUnit(ctx, name)
	if err != nil {
		return nil, err
	}
	own := dropIn{permit: guard.PermitDir(name), socket: u.spec.UnitSocket, service: procinfo.Unit(os.Getpid())}
	if err := own.check(found); err != nil {
		return nil, err
	}
	if !found.Idle() {
		u.log.Warn("the unit already runs, not started by this daemon: it is stopped first", "state", found.State)
		if err := systemd.Stop(ctx, name); err != nil {
			return nil, err
		}
	}
	work, err := u.permit(found)
	if err != nil {
		return nil, err
	}
	if err := systemd.Start(ctx, name); err != nil {
		return work, err
	}
	if err := work.Unit().CheckKillGranted(); err != nil {
		return work, fmt.Errorf("the drop-in of %s did not grant zkelectd the right to kill it: %w", name, err)
	}
	return work, nil
}

// permit makes the guard create the permit for the unit, unless the unit must end already.
func (u *unit) permit(found systemd.Unit) (*guard.Work, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.ctx.Err(); err != nil {
		return nil, err
	}
	a := admission.Answer{Group: found.Group, Fencing: u.fencing}
	a.Guard, a.Daemon = u.owners()
	var err error
	if u.answers, err = admission.Serve(found.Socket, a); err != nil {
		return nil, err
	}
	context.AfterFunc(u.ctx, u.answers.Close)
	work, err := u.begin(guard.Spec{Unit: &guard.Unit{Name: found.Name, Group: found.Group, Permit: found.Permit}})
	if err != nil {
		return nil, fmt.Errorf("cannot create the permit for %s: %w", u.spec.Unit, err)
	}
	u.work = work
	return work, nil
}

// watch returns when the unit ends, or when it must end.
func (u *unit) watch(work *guard.Work) {
	t := time.NewTicker(unitPoll)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-work.Dead():
			return
		case <-u.ctx.Done():
			return
		}
		if !work.Unit().MayRun() {
			work.Stop(u.spec.StopTimeout) // its ExecStopPost= may take so long
			return
		}
	}
}

// exitStatus returns how the unit ended.
func (u *unit) exitStatus(work *guard.Work) string {
	ctx, cancel := context.WithTimeout(context.Background(), unitQueryTime)
	defer cancel()
	if status := systemd.ExitStatus(ctx, u.spec.Unit); status != "" {
		return status
	}
	return work.Status()
}

// Stop asks systemd to stop the unit; the guard kills it after grace. Once systemd has stopped it, a kill removes the
// permit at once; by itself the guard would wait for another process of the unit, such as an ExecStopPost=.
func (u *unit) Stop(grace time.Duration) {
	u.cancel()
	work := u.permitted()
	if work == nil {
		return
	}
	work.Stop(grace)
	u.owned.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), max(grace, unitPoll))
		defer cancel()
		if err := systemd.Stop(ctx, u.spec.Unit); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			u.log.Error("cannot ask systemd to stop the unit; killing it", "err", err)
		}
		work.Kill()
	})
}

// Kill makes the guard kill the unit.
func (u *unit) Kill() {
	u.cancel()
	if work := u.permitted(); work != nil {
		work.Kill()
	}
}

func (u *unit) permitted() *guard.Work {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.work
}

// dropIn holds the settings that tie a unit to this daemon.
type dropIn struct{ permit, socket, service string }

// check returns an error unless the unit has these settings.
func (own dropIn) check(u systemd.Unit) error {
	differs := func(what, has, is string) error {
		return fmt.Errorf("child.unit: the drop-in of %s names %s %s, but this daemon uses %s: correct it "+
			"(systemctl edit %s)", u.Name, what, has, is, u.Name)
	}
	switch {
	case own.permit == "":
		return errors.New("child.unit: zkelectd must run as a systemd service with Delegate=yes, because the permit " +
			"is a control group below it")
	case own.socket == "":
		return errors.New("child.unit: zkelectd must run as a systemd service with RuntimeDirectory=, because the " +
			"socket for the unit is there")
	case u.Permit != own.permit:
		return differs("the permit", u.Permit, own.permit)
	case u.Socket != own.socket:
		return differs("the socket", u.Socket, own.socket)
	case strings.HasSuffix(own.service, ".service") && !slices.Contains(u.BindsTo, own.service):
		return fmt.Errorf("child.unit: %s is bound to %v, but this daemon is %s: correct BindsTo= in its drop-in "+
			"(systemctl edit %s)", u.Name, u.BindsTo, own.service, u.Name)
	}
	return nil
}
