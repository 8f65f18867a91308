package guard

import (
	"errors"
	"log/slog"
	"os"
	"syscall"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/harden"
)

// work is a piece of work as the guard sees it: leader-only work, which the keeper or systemd runs, or a pending hook.
type work struct {
	seq          int
	spec         *Spec
	pid          int
	status       string        // how the main process ended; empty while it runs
	hookDeadline time.Duration // the deadline of a pending hook, which has no lease; 0 for leader-only work
	killAt       time.Duration // when the grace period of a stop ends; 0 if it was not asked to stop
	killing      bool          // it is to be killed, until it is dead
	killStarted  time.Duration // when the first attempt to kill it was made
	keeperDead   bool          // its keeper is dead: the guard has to prove its death
	unkillable   string        // the reason why it cannot be killed; empty for none
	nextSweep    time.Duration // when to sweep next
	sweepDelay   time.Duration
	group        *cgroup     // nil without a control group
	unit         *unitKiller // nil unless systemd runs it
}

// logAttr identifies the work in the log.
func (w *work) logAttr() slog.Attr {
	if w.unit != nil {
		return slog.String("unit", w.spec.Unit.Name)
	}
	return slog.Int("pid", w.pid)
}

// needsSweep reports whether sweep has to be called. For a unit that was asked to stop, only sweep notices that it has ended.
func (w *work) needsSweep() bool { return w.killing || w.unit != nil && w.killAt != 0 }

// nextCheck returns when the work has to be checked next; 0 if only after an event.
func (w *work) nextCheck() time.Duration {
	switch {
	case w.killing:
		return max(1, w.nextSweep)
	case w.unit != nil && w.killAt != 0:
		return max(1, min(w.nextSweep, w.killAt))
	case w.status == "":
		return w.killAt
	}
	return 0
}

var (
	errNoLease  = errors.New("there is no lease")
	errNoKeeper = errors.New("the keeper is being restarted")
)

// start starts work, if there is a lease for it.
func (g *guard) start(m message) {
	err := errNoLease
	if !enforced || g.lease != 0 && !past(g.lease) {
		g.work = &work{seq: m.Seq, spec: m.Spec}
		err = g.launch(g.work)
	}
	if err != nil {
		g.releaseWork(g.work)
		g.sendToDaemon(message{Kind: kindStarted, Seq: m.Seq, Error: err.Error()})
		return
	}
	harden.RefreshLocks()
	if g.work.unit != nil {
		g.sendToDaemon(message{Kind: kindStarted, Seq: m.Seq})
	}
}

// launch lets systemd or the keeper start the work.
func (g *guard) launch(w *work) (err error) {
	if w.spec.Unit != nil {
		w.unit, err = newUnitKiller(*w.spec.Unit)
		if err == nil {
			err = w.spec.Unit.grantPermit()
		}
		return err
	}
	if g.keeper == nil {
		return errNoKeeper
	}
	m := message{Kind: kindStart, Seq: w.seq, Spec: w.spec, At: g.workDeadline()}
	if g.opt.Containment == CgroupContainment {
		if w.group, err = newCgroup(g.cgroupParent, w.seq); err != nil {
			return err
		}
		m.Dir = w.group.dir
	}
	g.keeper.killing = false
	return g.keeper.sendStart(m)
}

// containmentRecord describes how the work is contained.
func (g *guard) containmentRecord(w *work) *ContainmentRecord {
	h := &ContainmentRecord{Mode: g.opt.Containment, Keeper: g.keeper.Process, StateFile: w.spec.StateFile}
	if w.group != nil {
		h.Group, h.Inode = w.group.dir, w.group.inode
	}
	return h
}

// stop carries out a stop or kill message.
func (g *guard) stop(w *work, m message) {
	switch {
	case m.Grace <= 0: // always so in a kill message
		w.killing = true
	case w.killAt == 0:
		w.killAt = boottime.Now() + m.Grace
		if w.unit == nil { // the daemon asks systemd to stop a unit
			g.keeper.send(m)
		}
	}
}

// enforce kills the work if it may not run any longer (S1), and only then logs why.
func (g *guard) enforce(w *work) {
	if w.killing {
		return
	}
	var reason string
	switch {
	case past(w.hookDeadline):
		reason = "killing the pending hook: it has timed out"
	case w.hookDeadline != 0:
		return
	case g.daemon == nil, g.daemon.abandoned:
		w.killing = true
		g.kill(w)
		return
	case g.leaseExpired():
		reason = "killing the work: the lease has ended"
	case w.status == "" && past(w.killAt):
		reason = "killing the work: it did not stop in time"
	default:
		return
	}
	w.killing = true
	g.kill(w)
	g.log.Error(reason, w.logAttr())
}

// sweep kills the work again, with growing delays, until it is dead. While its keeper lives, the keeper reports the death.
func (g *guard) sweep(w *work) {
	if !w.needsSweep() || boottime.Now() < w.nextSweep {
		return
	}
	w.nextSweep = boottime.Now() + nextDelay(&w.sweepDelay)
	switch {
	case w.unit != nil:
		if w.unit.sweep(w.killing) {
			g.sendToDaemon(message{Kind: kindExited, Seq: w.seq, Status: w.unitStatus()})
			g.workDied(w, "")
		}
	case w.keeperDead && g.isWorkDead(w):
		if w.status == "" {
			g.sendToDaemon(message{Kind: kindExited, Seq: w.seq, Status: "was killed with its keeper"})
		}
		g.workDied(w, "")
	default:
		g.kill(w)
	}
}

// isWorkDead reports whether the kernel says that nothing is left of work whose keeper is dead (A3): its PID namespace has
// ended with the keeper; or this process, which adopts all orphans, has no children, and the control group is empty.
func (g *guard) isWorkDead(w *work) bool {
	if g.opt.Containment == PidnsContainment {
		return true
	}
	return g.noChildren && !w.group.populated()
}

// kill kills the work by all available means: it kills the control group, asks the keeper, assists a keeper that does not act,
// and kills one that is hung. The first steps need no file to be opened.
func (g *guard) kill(w *work) {
	if w.unit != nil {
		w.unit.sweep(true)
		return
	}
	w.group.kill()
	if w.killStarted == 0 {
		w.killStarted = boottime.Now()
		g.keeper.send(message{Kind: kindKill, Seq: w.seq})
	}
	waited := boottime.Now() - w.killStarted
	switch k := g.keeper; {
	case k == nil:
		g.killOrphans()
	case waited < assistAfter:
	case waited > keeperHungAfter && !k.killing:
		syscall.Kill(k.pid, syscall.SIGKILL) // this process adopts what is left of the work
	default:
		for _, pid := range descendants(k.pid) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		syscall.Kill(k.pid, syscall.SIGCONT)
	}
}

// killOrphans kills what a dead keeper has left behind: all descendants of this process except the daemon and its own.
func (g *guard) killOrphans() {
	var spare int
	if g.daemon != nil {
		spare = g.daemon.pid
	}
	g.children.forEach(func(pid int) {
		if pid != spare {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	for _, pid := range descendants(os.Getpid(), spare) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// workDied handles the death of the work and reports it to the daemon.
func (g *guard) workDied(w *work, output string) {
	g.releaseWork(w)
	if w.hookDeadline == 0 {
		g.sendToDaemon(message{Kind: kindDead, Seq: w.seq, Output: output})
	}
}

// releaseWork releases the resources of work that is dead or was never started.
func (g *guard) releaseWork(w *work) {
	g.work = nil
	if w == nil {
		return
	}
	if w.unit != nil {
		w.unit.close()
	}
	if err := w.group.remove(); err != nil {
		g.log.Warn("cannot remove a control group", "err", err)
	}
	w.group.close()
}

// reportUnkillable handles the report that a process of the work cannot be killed, or, if reason is empty, that this is resolved.
// While such a process lives, leadership is not released and the session is not closed.
func (g *guard) reportUnkillable(w *work, reason string) {
	if reason != w.unkillable && reason != "" {
		g.log.Error("cannot kill the work; leadership is not released while it runs", "reason", reason)
	}
	w.unkillable = reason
	g.sendToDaemon(message{Kind: kindUnkillable, Seq: w.seq, Error: reason})
}

// unitStatus returns the Status of a unit, as far as the guard knows it.
func (w *work) unitStatus() string {
	if w.killing {
		return "was killed"
	}
	return "has stopped"
}
