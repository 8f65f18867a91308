package guard

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/procinfo"
)

// This file contains what the daemon does if the guard is lost: it notices that, kills the work, and proves its death.

// armTimer sets the timer for checkExpired. The caller must hold mu.
func (c *Client) armTimer() {
	c.lastChance = false
	c.timer.Stop()
	if enforced && c.running != nil && c.confirmed != 0 && c.Err() == nil {
		c.timer.Reset(max(0, c.workDeadline()+guardOverdue-boottime.Now()))
	}
}

// workDeadline returns when the guard has to have killed the work: at the deadline that it has confirmed, or at an earlier one
// that it was sent since. A lease that was withdrawn leaves the confirmed deadline in force. The caller must hold mu.
func (c *Client) workDeadline() time.Duration {
	if c.requested == 0 {
		return c.confirmed
	}
	return min(c.confirmed, c.requested)
}

// checkExpired detects work that still runs after its deadline. The guard is hung then, and the daemon kills the work in its
// place. The timer's clock stops while the host is suspended, but that of the lease does not, so the time is checked again.
func (c *Client) checkExpired() {
	c.mu.Lock()
	due := c.running != nil && c.confirmed != 0 && c.Err() == nil
	switch {
	case due && boottime.Now() < c.workDeadline()+guardOverdue:
		c.armTimer()
		due = false
	case due && c.unkillable != "":
		due = false // the guard is trying: what it cannot kill, this process cannot kill either
	case due && !c.lastChance:
		// If this process was paused, a confirmation may still be unread.
		c.lastChance, due = true, false
		c.timer.Reset(drainTime)
	}
	c.mu.Unlock()
	if due {
		c.loseGuard(fmt.Errorf("%w: it has not killed the work at the end of the lease", ErrLost))
	}
}

// loseGuard gives the guard up for good and kills it, as a guard that is merely slow must not start anything later. Its keeper
// and this process then kill the work.
func (c *Client) loseGuard(cause error) {
	c.mu.Lock()
	if c.Err() != nil {
		c.mu.Unlock()
		return
	}
	c.cancel(cause)
	w := c.running
	c.timer.Stop()
	c.mu.Unlock()
	if os.Getppid() == c.guard { // the kernel ignores the SIGKILL if the guard is process 1 of a container
		c.killDescendants(w)
		syscall.Kill(c.guard, syscall.SIGKILL)
	}
	if w != nil {
		go w.awaitDeath(cause) // ends when nothing of the work is left
	}
	c.log.Error("killing the work: "+cause.Error(), "guard", c.guard)
}

// killDescendants kills the work among the descendants of a hung guard, while they can still be found there. It spares this
// process and the keeper, which has to report the death of the work.
func (c *Client) killDescendants(w *Work) {
	var keeper int
	c.mu.Lock()
	if c.containment != nil {
		keeper = c.containment.Keeper.Pid
	}
	c.mu.Unlock()
	for again, sweeps := w != nil, 0; again && sweeps < eagerSweeps; sweeps++ {
		again = false
		for _, pid := range descendants(c.guard, os.Getpid()) {
			if s, err := procinfo.ReadStat(pid); pid != keeper && err == nil && !s.Ended() {
				again = syscall.Kill(pid, syscall.SIGKILL) == nil || again
			}
		}
	}
}

// awaitDeath kills what it can find of work whose guard is lost, until it is proven that nothing of the work is left. Only then
// is Dead closed, since neither may the session be closed nor leadership be released while a process may run (A3).
func (w *Work) awaitDeath(cause error) {
	w.guardLostAt = boottime.Now()
	var killer *unitKiller // nil unless systemd runs the work
	if w.unit != nil {
		killer, _ = newUnitKiller(*w.unit) // cannot fail, as the guard has created one for the same unit
		defer killer.close()
	}
	warned := false
	for pause := minSweepDelay; ; pause = min(2*pause, maxSweepDelay) {
		err := w.killAndCheck(killer)
		if err == nil {
			break
		}
		if pause == maxSweepDelay && !warned {
			warned = true
			w.c.log.Error("the work may still run: leadership is not released, and the session is left to expire; stop what is left of the work", "reason", err)
		}
		for _, pid := range pidsWithEnv(w.env) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		w.c.wakeKeeper()
		select {
		case <-w.c.report.dead:
		case <-time.After(pause):
		}
	}
	w.c.mu.Lock()
	w.c.running = nil
	w.close()
	w.c.mu.Unlock()
	select {
	case <-w.exited:
	default:
		w.status = "was killed with the guard"
		close(w.exited)
	}
	close(w.dead)
	select {
	case w.started <- cause:
	default:
	}
}

// wakeKeeper continues a stopped keeper: without a guard it kills the work as soon as it runs. The kernel continues it only if
// the guard's death has made the keeper's process group an orphaned one.
func (c *Client) wakeKeeper() {
	c.mu.Lock()
	r := c.containment
	c.mu.Unlock()
	if r == nil {
		return
	}
	if s, err := procinfo.ReadStat(r.Keeper.Pid); err == nil && s.Started == r.Keeper.Started {
		syscall.Kill(r.Keeper.Pid, syscall.SIGCONT)
	}
}

// killAndCheck kills what it can find and returns nil once all of the work is dead.
func (w *Work) killAndCheck(killer *unitKiller) error {
	if w.unit != nil {
		if killer.sweep(true) {
			return nil
		}
		return fmt.Errorf("the unit %s may still run", w.unit.Name)
	}
	select {
	case <-w.c.report.dead:
		return nil
	default:
	}
	p := w.handle
	if p == nil {
		p = w.c.keeperHandle
	}
	if p == nil {
		return errors.New("the keeper has not reported that all of the work is dead; nothing else can prove it")
	}
	err := p.killAndCheck()
	if err == nil && p.record.Mode == CgroupContainment {
		err = w.checkLeftovers()
	}
	return err
}

// checkLeftovers returns an error if the keeper may still find processes of work whose control group is empty, because they were
// moved to another group. A live keeper gets exitTime to report.
func (w *Work) checkLeftovers() error {
	if w.handle == nil {
		return errors.New("the control group of the work is unknown")
	}
	select {
	case <-w.c.report.closed:
		return nil
	default:
	}
	if boottime.Now() < w.guardLostAt+exitTime {
		return errors.New("the keeper has not yet reported that all of the work is dead")
	}
	return nil
}

// keeperReport receives what the keeper reports when the guard is dead.
type keeperReport struct {
	pipe   *os.File
	dead   chan struct{} // closed when the keeper has reported that all of the work is dead
	closed chan struct{} // closed when the pipe has ended
}

// read runs until the pipe ends.
func (r *keeperReport) read() {
	defer close(r.closed)
	var report [1]byte
	if n, err := r.pipe.Read(report[:]); err == nil && n == 1 && report[0] == reportDead {
		close(r.dead)
	}
}
