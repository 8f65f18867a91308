package guard

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"zkelectd/internal/sys/boottime"
)

// enforce kills the work if it may not run any longer (S1), and only then logs why.
func (g *guard) enforce(w *work, now time.Duration) {
	l := w.leadership
	if w.killing {
		return
	}
	g.readLease(l)
	var reason string
	switch {
	case w.hookDeadline != 0 && now >= w.hookDeadline:
		reason = "killing the pending hook: it has timed out"
	case w.hookDeadline != 0:
		return
	case g.mustEnd(l):
		g.startKilling(w)
		return
	case enforced && w.launched && now >= l.lease():
		reason = "killing the work: the lease has ended"
	case w.status == "" && w.killAt != 0 && now >= w.killAt:
		reason = "killing the work: it did not stop in time"
	default:
		return
	}
	g.startKilling(w)
	g.log.Error(reason, "group", l.name, w.logAttr())
}

// startKilling kills the work as far as that needs no list of processes, which may take longer the more processes
// there are: other work may have to be killed as well. sweep does the rest.
func (g *guard) startKilling(w *work) {
	w.killing = true
	if w.launched {
		w.container.Kill()
		g.reply(w, message{Kind: kindKilling})
	}
}

// sweep kills the work again, with growing delays, until it is dead. While its keeper lives, the keeper reports the
// death.
func (g *guard) sweep(w *work) {
	if !w.needsSweep() || boottime.Now() < w.nextSweep {
		return
	}
	if g.reaper.any { // it may keep forking
		w.sweepDelay = 0
	}
	w.nextSweep = boottime.Now() + nextDelay(&w.sweepDelay)
	switch {
	case !w.launched:
		g.workDied(w, "")
	case w.container.Empty() == nil:
		if w.status == "" {
			g.reply(w, message{Kind: kindExited, Status: w.assumedStatus()})
		}
		g.workDied(w, "")
	case w.killing:
		g.kill(w)
	}
}

// keptWork is the [Container] of work that a keeper runs: its control group, if there is one, and what only the keeper
// can tell from other work. Once the keeper is dead, this process has adopted the latter.
type keptWork struct {
	g *guard
	w *work
}

// Kill kills the control group, and asks the keeper, once, to kill the work.
func (c *keptWork) Kill() error {
	err := c.w.group.Kill()
	if c.w.killStarted == 0 {
		c.w.killStarted = boottime.Now()
		c.w.keeper.send(message{Kind: kindKill, Seq: c.w.task})
	}
	return err
}

// errKeeperReports is the error of [keptWork.Empty] for work whose death its keeper reports.
var errKeeperReports = errors.New("the keeper has not reported that the work is dead")

// Empty returns nil if the kernel says that nothing is left of work whose keeper is dead or hung (A3). The orphans of a
// hung keeper cannot be known, only its control groups.
func (c *keptWork) Empty() error {
	switch k := c.w.keeper; {
	case !k.dead && (!k.retired || c.w.group == nil):
		return errKeeperReports
	case !k.dead:
		return c.w.group.Empty()
	}
	if err := c.w.group.Empty(); err != nil {
		return err
	}
	return c.g.checkOrphans()
}

// Close closes the control group.
func (c *keptWork) Close() { c.w.group.Close() }

// errOrphans is the error of checkOrphans.
var errOrphans = errors.New("processes that this process has adopted still run")

// checkOrphans returns an error if there are, or may be, processes that this subreaper has adopted: children that are
// neither the daemon nor a keeper. The list of children is complete: only this goroutine waits for them, so none is
// removed while it is read.
func (g *guard) checkOrphans() error {
	if !g.noChildren && !g.children.forEach(g.isOwn) {
		return errOrphans
	}
	return nil
}

// killOrphans kills one portion of the orphans and of their descendants.
func (g *guard) killOrphans() {
	g.children.portion(func(pid int) {
		if !g.isOwn(pid) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	for _, pid := range descendants(os.Getpid(), g.ownPids()...) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// isOwn reports whether a process is the daemon or a keeper.
func (g *guard) isOwn(pid int) bool {
	return g.daemon != nil && pid == g.daemon.pid ||
		slices.ContainsFunc(g.keepers, func(k *keeperProcess) bool { return k.pid == pid })
}

// kill kills the work again, by all available means: it assists a keeper that does not act, and gives up one that is
// hung.
func (g *guard) kill(w *work) {
	w.container.Kill()
	if w.unit != nil {
		return
	}
	k := w.keeper
	waited := boottime.Now() - w.killStarted
	switch {
	case k.dead:
		g.killOrphans()
	case waited < assistAfter, w.confirmed && waited < assistLater:
	case waited > keeperHungAfter && !w.confirmed && !k.retired:
		g.giveUp(k, w)
	default:
		syscall.Kill(k.pid, syscall.SIGCONT)
		if w.group == nil {
			for _, pid := range descendants(k.pid) {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

// giveUp kills a keeper that is hung, and this process adopts what is left of its work. If other works run there, each
// in a control group, it only gets no more of them, since they would die with it. Work that is only prepared gets
// another keeper.
func (g *guard) giveUp(k *keeperProcess, w *work) {
	for _, l := range g.leaderships {
		switch other := l.work; {
		case other == nil || other == w || other.keeper != k:
		case !other.launched:
			g.refuse(other, errors.New("its keeper is hung"))
		case w.group != nil && !other.killing:
			k.retired = true
		}
	}
	if g.keeper == k {
		g.keeper = nil
	}
	if k.retired {
		g.log.Error("a keeper is hung: it gets no more work", "pid", k.pid)
		return
	}
	syscall.Kill(k.pid, syscall.SIGKILL)
}

// ownPids returns the pids of the daemon and the keepers.
func (g *guard) ownPids() []int {
	var pids []int
	if g.daemon != nil {
		pids = append(pids, g.daemon.pid)
	}
	for _, k := range g.keepers {
		pids = append(pids, k.pid)
	}
	return pids
}
