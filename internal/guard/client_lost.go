package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/sys/procinfo"
)

// This file contains what the daemon does if the guard is lost: it notices that, kills the work, and proves its death.

// armTimer sets the timer for checkExpired. It is a timerfd, because a timer of the Go runtime also wakes the process
// at the times of deadlines that were extended. The caller must hold mu.
func (c *Client) armTimer() {
	if c.timer == nil || !enforced {
		return
	}
	var at time.Duration
	if c.Err() == nil {
		for _, l := range c.leaderships {
			if l.overdue != 0 {
				at = earliest(at, l.overdue)
			} else {
				at = earliest(at, l.killedBy())
			}
		}
	}
	c.timer.Set(at)
}

// checkLeases calls checkExpired when the timer fires, until Close.
func (c *Client) checkLeases(fired <-chan struct{}) {
	for {
		select {
		case <-fired:
			c.checkExpired()
		case <-c.closed:
			return
		}
	}
}

// killedBy returns when the guard must have killed the work, or at least have reported that it is doing so; 0 for
// never. That is some time after the deadline that it enforces, or after an earlier one on the board. A later one on
// the board is in force at once, but a guard that does not read it is hung. A lease that was withdrawn counts until the
// guard reports that it kills the work: it may hang before. The caller must hold the client's mu.
func (l *Leadership) killedBy() time.Duration {
	requested, enforced := l.place.deadline(), max(l.place.enforced(), l.withdrawn)
	switch w := l.running; {
	case w == nil || !w.startSent || enforced == 0:
		return 0
	case w.killing || l.unkillable != "": // what the guard cannot kill, this process cannot kill either
		return 0
	case requested == 0:
		return enforced + guardOverdue
	case requested > enforced:
		return min(requested+guardOverdue, enforced+guardLate)
	}
	return requested + guardOverdue
}

// checkExpired detects work that still runs after its deadline. The guard is hung then, and the daemon kills all works
// in its place. The timer may have fired for a deadline that was extended meanwhile, so the time is checked again. If
// this process was paused, a confirmation may still be unread, so the guard gets drainTime; and guardOverdue if it has
// to read a lease from the board that is not over, as it may have been paused, too.
func (c *Client) checkExpired() {
	c.mu.Lock()
	var lost error
	now := boottime.Now()
	for _, l := range c.leaderships {
		at := l.killedBy()
		switch {
		case at == 0 || now < at:
			l.overdue = 0
		case l.overdue == 0 && now < l.place.deadline():
			l.overdue, l.noticed = now+guardOverdue, now-at
		case l.overdue == 0:
			l.overdue, l.noticed = now+drainTime, now-at
		case lost == nil && now >= l.overdue:
			lost = overdueError(l.noticed)
		}
	}
	c.armTimer()
	c.mu.Unlock()
	if lost != nil {
		c.loseGuard(lost)
	}
}

// overdueError is the error for a guard that has not reported the end of work at the end of its lease, although it may
// have killed it. late is how long after it was due this process noticed that: the whole host may have been suspended.
func overdueError(late time.Duration) error {
	suspended := ""
	if late >= guardOverdue {
		suspended = fmt.Sprintf(" (this process noticed that %s late, as if the host had been suspended)",
			late.Round(10*time.Millisecond))
	}
	return fmt.Errorf("%w: it has not reported at the end of the lease that it kills the work%s", ErrLost, suspended)
}

// loseGuard gives the guard up for good and kills it, as a guard that is merely slow must not start anything later. Its
// keepers and this process then kill all works. What kills them without a list of processes comes first.
func (c *Client) loseGuard(cause error) {
	c.mu.Lock()
	if c.Err() != nil {
		c.mu.Unlock()
		return
	}
	c.cancel(cause)
	for _, units := range []bool{false, true} { // to kill a unit, files may have to be opened
		for _, l := range c.leaderships {
			if w := l.running; w != nil && w.container != nil && (w.unit != nil) == units {
				w.container.Kill()
			}
		}
	}
	c.armTimer()
	var works []*Work
	for _, l := range c.leaderships {
		if w := l.running; w != nil {
			works = append(works, w)
		} else if l.abandoned {
			l.setGone()
		}
	}
	c.mu.Unlock()
	for _, w := range works {
		w.wakeKeeper()
	}
	if os.Getppid() == c.guard { // the kernel ignores the SIGKILL if the guard is process 1 of a container
		c.killDescendants(works)
		syscall.Kill(c.guard, syscall.SIGKILL)
	}
	for _, w := range works {
		go w.awaitDeath(cause) // ends when nothing of the work is left
	}
	c.log.Error("killing the work: "+cause.Error(), "guard", c.guard, "works", len(works))
}

// searchTime limits how long the daemon searches for works below a hung guard before it kills the guard.
const searchTime = 50 * time.Millisecond

// killDescendants kills the works among the descendants of a hung guard, while they can still be found there. It spares
// this process and their keepers, which have to report the death of the works.
func (c *Client) killDescendants(works []*Work) {
	search := c.search
	if search == nil {
		search = descendants
	}
	var keepers []int
	c.mu.Lock()
	for _, w := range works {
		if w.containment != nil {
			keepers = append(keepers, w.containment.Keeper.Pid)
		}
	}
	c.mu.Unlock()
	for again, end := len(works) > 0, boottime.Now()+searchTime; again && boottime.Now() < end; {
		again = false
		for _, pid := range search(c.guard, os.Getpid()) {
			if s, err := procinfo.ReadStat(pid); !slices.Contains(keepers, pid) && err == nil && !s.Ended() {
				again = syscall.Kill(pid, syscall.SIGKILL) == nil || again
			}
		}
	}
}

// awaitDeath kills what it can find of work whose guard is lost, until it is proven that nothing of the work is left.
// Only then is Dead closed, since neither may the session be closed nor leadership be released while a process may run
// (A3).
func (w *Work) awaitDeath(cause error) {
	w.guardLostAt = boottime.Now()
	var scan processScan
	defer scan.close()
	warned := false
	for pause := minSweepDelay; ; {
		if !w.startSent {
			break
		}
		err := killAndCheck(w.container)
		if err == nil {
			break
		}
		if pause == maxSweepDelay && !warned {
			warned = true
			w.c.log.Error("the work may still run: leadership is not released, and the session is left to expire; "+
				"stop what is left of the work",
				"group", w.leadership.name, "reason", err)
		}
		w.wakeKeeper()
		pids, last := scan.next()
		for _, pid := range withAnyEnv(pids, [][]string{w.env}) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if last {
			time.Sleep(pause)
			pause = min(2*pause, maxSweepDelay)
		}
	}
	w.c.mu.Lock()
	w.end(cause)
	if w.leadership.abandoned {
		w.leadership.setGone()
	}
	w.c.mu.Unlock()
	w.finish("was killed with the guard")
}

// wakeKeeper continues a stopped keeper: without a guard it kills the work as soon as it runs. The kernel continues it
// only if the guard's death has made the keeper's process group an orphaned one.
func (w *Work) wakeKeeper() {
	if w.containment == nil {
		return
	}
	k := w.containment.Keeper
	if s, err := procinfo.ReadStat(k.Pid); err == nil && s.Started == k.Started {
		syscall.Kill(k.Pid, syscall.SIGCONT)
	}
}

// unguardedWork is the [Container] of work whose guard is lost: its control group, if there is one, and what only its
// keeper can find.
type unguardedWork struct {
	w     *Work
	group *cgroup // nil without a control group, or if that could not be opened
}

// Kill kills the control group. The keeper kills the work without being asked.
func (c *unguardedWork) Kill() error { return c.group.Kill() }

// Empty returns nil once the keeper has reported that all of the work is dead, or the control group proves it and the
// keeper has nothing to do with that: it is dead, or had exitTime to report processes that were moved to another
// group, which it may find.
func (c *unguardedWork) Empty() error {
	w := c.w
	w.c.mu.Lock()
	reported := w.c.deadKeepers[w.containment.KeeperSeq]
	w.c.mu.Unlock()
	switch {
	case reported:
		return nil
	case c.group == nil:
		return errors.New("the keeper has not reported that all of the work is dead; nothing else can prove it")
	}
	if err := c.group.Empty(); err != nil {
		return err
	}
	started := w.pid != 0 // otherwise the keeper may still start the work
	if started && boottime.Now() >= w.guardLostAt+exitTime || w.containment.Keeper.checkEnded() == nil {
		return nil
	}
	return errors.New("the keeper has not yet reported that all of the work is dead")
}

// Close closes the control group.
func (c *unguardedWork) Close() { c.group.Close() }

// reportSize is the size of what a keeper reports when the guard is dead and all of the keeper's works are, too: its
// number. The kernel writes and reads it as a whole.
const reportSize = 8

// readReports runs until the keepers' pipe ends.
func (c *Client) readReports() {
	var report [reportSize]byte
	for {
		if _, err := io.ReadFull(c.reports, report[:]); err != nil {
			return
		}
		c.mu.Lock()
		c.deadKeepers[int(binary.BigEndian.Uint64(report[:]))] = true
		c.mu.Unlock()
	}
}
