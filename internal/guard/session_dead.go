package guard

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/sys/procinfo"
)

// EnsureDead kills what is left of the work. It returns nil once the kernel says that all of the work is dead, and
// guard and daemon too; only then may the session be closed. It never kills guard or daemon, as they may be alive and
// well. It gives up after timeout.
func (f SessionFile) EnsureDead(timeout time.Duration) error {
	now, err := bootID()
	switch {
	case err != nil:
		return fmt.Errorf("cannot determine whether the host was restarted since: %w", err)
	case now == "":
		return errors.New("cannot determine whether the host was restarted since: the host's boot ID is empty")
	case f.Boot == "":
		return errors.New("cannot determine whether the host was restarted since: the session file does not " +
			"contain the boot ID")
	case f.Boot != now:
		return nil
	case f.Namespace == "" || f.Namespace != pidNamespace():
		return errors.New("zkelectd ran in another container or PID namespace (pid_namespaces(7)), and it is " +
			"impossible to determine from here whether it still runs: " +
			"give each zkelectd its own zookeeper.session_file, and run 'zkelectd release' where it ran; otherwise " +
			"the session expires after its timeout")
	case len(f.Processes) == 0:
		return errors.New("the session file does not name the guard and the daemon, which may still run")
	}
	for _, p := range f.Processes {
		if err := retryFor(min(timeout, exitTime), p.checkEnded); err != nil {
			return fmt.Errorf("%w: %w; stop that first", ErrOwnersMayRun, err)
		}
	}
	units, err := f.units()
	defer func() {
		for _, u := range units {
			u.Close()
		}
	}()
	if err == nil {
		err = retryFor(timeout, func() error { return f.killWorks(units) })
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrWorkMayRun, err)
	}
	return nil
}

// OfAnotherBoot reports whether the session was that of another boot. EnsureDead then knows only that nothing of it
// runs on this host: the file may have been copied, or have moved with its disk, while the host that wrote it still
// leads (S1).
func (f SessionFile) OfAnotherBoot() bool { return f.Boot != currentBootID() }

// units returns the containers of the units.
func (f SessionFile) units() (all []*unitContainer, err error) {
	for _, r := range f.all() {
		if r.Unit != nil {
			u, unitErr := newUnitContainer(*r.Unit)
			all, err = append(all, u), errors.Join(err, unitErr)
		}
	}
	return all, err
}

// killWorks kills what it can find of the works of all leaderships, and of their pending hooks, which the daemon may
// have been running. It returns nil once nothing is left.
func (f SessionFile) killWorks(units []*unitContainer) error {
	var errs []error
	for _, u := range units {
		if err := killAndCheck(u); err != nil {
			errs = append(errs, fmt.Errorf("unit %s: %w", u.unit.Name, err))
		}
	}
	var works []LeadershipRecord
	var envs, hooks [][]string
	for _, r := range f.all() {
		for _, hook := range r.PendingHooks {
			hooks = append(hooks, identifyingEnv(hook.Env))
		}
		if r.Containment == nil { // none has ever run
			continue
		}
		if err := r.Containment.Keeper.checkEnded(); err != nil { // it is killing the work, as its guard is dead
			errs = append(errs, fmt.Errorf("group %s: %w", r.Name, err))
			continue
		}
		works, envs = append(works, r), append(envs, r.Env)
		if w := r.Work; w != nil {
			if s, err := procinfo.ReadStat(w.Pid); err != nil || s.Started == w.Started {
				// else the pid belongs to another process
				syscall.Kill(-w.Pid, syscall.SIGKILL)
			}
		}
	}
	for _, pid := range pidsWithAnyEnv(envs) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, pid := range pidsWithAnyEnv(hooks) {
		syscall.Kill(pid, syscall.SIGKILL)
		errs = append(errs, fmt.Errorf("process %d, which a hook of the dead daemon has started, still runs", pid))
	}
	for _, r := range works {
		if err := r.Containment.killAndCheck(); err != nil {
			errs = append(errs, fmt.Errorf("group %s: %w", r.Name, err))
		}
	}
	return errors.Join(errs...)
}

// ErrOwnersMayRun reports that guard or daemon run, or that this could not be determined.
var ErrOwnersMayRun = errors.New("the session is in use")

// ErrWorkMayRun reports that guard and daemon have ended, but that the death of their work is not proven.
var ErrWorkMayRun = errors.New("some of the work may still run")

// exitTime is how long a process may take to exit after it was killed.
const exitTime = time.Second

// retryFor calls try until it returns nil or timeout has passed, and returns its last error.
func retryFor(timeout time.Duration, try func() error) error {
	for deadline := boottime.Now() + timeout; ; time.Sleep(maxSweepDelay) {
		if err := try(); err == nil || boottime.Now() >= deadline {
			return err
		}
	}
}
