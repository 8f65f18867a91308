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
	if enforced && w.launched && w.hookDeadline == 0 && l.lease != 0 {
		if !g.mustEnd(l) {
			g.readLease(l)
		}
		l.leaseEnd = lastChance(l.lease, l.leaseEnd, now)
	}
	if w.killing {
		return
	}
	var reason string
	switch {
	case w.hookDeadline != 0 && now >= w.hookDeadline:
		reason = "killing the pending hook: it has timed out"
	case w.hookDeadline != 0:
		return
	case g.mustEnd(l):
		g.startKilling(w)
		return
	case enforced && w.launched && (l.lease == 0 || l.leaseEnd != 0 && now >= l.leaseEnd):
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
		g.killAtOnce(w)
		g.reply(w, message{Kind: kindKilling})
	}
}

// sweep kills the work again, with growing delays, until it is dead. While its keeper lives, the keeper reports the death.
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
	case w.unit != nil:
		if w.unit.sweep(w.killing) {
			g.reply(w, message{Kind: kindExited, Status: w.unitStatus()})
			g.workDied(w, "")
		}
	case (w.keeper.dead || w.keeper.retired) && g.isWorkDead(w):
		if w.status == "" {
			g.reply(w, message{Kind: kindExited, Status: "was killed with its keeper"})
		}
		g.workDied(w, "")
	default:
		g.kill(w)
	}
}

// isWorkDead reports whether the kernel says that nothing is left of work whose keeper is dead or hung (A3). This
// process adopts the orphans of a dead keeper, so it must have none, and the control group must be empty. The orphans of a hung keeper cannot be known, only its control groups.
func (g *guard) isWorkDead(w *work) bool {
	if !w.keeper.dead {
		return w.group != nil && !w.group.populated()
	}
	return !w.group.populated() && (g.noChildren || !g.hasOrphans())
}

// hasOrphans reports whether this process has, or may have, children other than the daemon and the keepers. The list of children
// is complete: only this goroutine waits for them, so none is removed while it is read.
func (g *guard) hasOrphans() bool {
	return !g.children.forEach(g.isOwn)
}

// isOwn reports whether a process is the daemon or a keeper.
func (g *guard) isOwn(pid int) bool {
	return g.daemon != nil && pid == g.daemon.pid || slices.ContainsFunc(g.keepers, func(k *keeperProcess) bool { return k.pid == pid })
}

// killAtOnce kills the control group of the work, or its unit, and asks its keeper to kill it.
func (g *guard) killAtOnce(w *work) {
	if w.unit != nil {
		w.unit.sweep(true)
		return
	}
	w.group.kill()
	if w.killStarted == 0 {
		w.killStarted = boottime.Now()
		w.keeper.send(message{Kind: kindKill, Seq: w.task})
	}
}

// kill kills the work by all available means: after killAtOnce it assists a keeper that does not act, and gives up one
// that is hung.
func (g *guard) kill(w *work) {
	g.killAtOnce(w)
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

// giveUp kills a keeper that is hung, and this process adopts what is left of its work. If other works run there, each in a
// control group, it only gets no more of them, since they would die with it. Work that is only prepared gets another keeper.
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

// killOrphans kills what a dead keeper has left behind, in one portion: descendants of this process except the daemon,
// the keepers, and their own.
func (g *guard) killOrphans() {
	listed := 0
	g.children.forEach(func(pid int) (more bool) {
		if !g.isOwn(pid) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		listed++
		return listed < portionListed
	})
	for _, pid := range descendants(os.Getpid(), g.ownPids()...) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
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
