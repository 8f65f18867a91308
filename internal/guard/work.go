package guard

import (
	"log/slog"
	"os"
	"syscall"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/harden"
)

// work is what runs on the strength of a lease, as the guard sees it: a task of the keeper's, or a unit of systemd's.
type work struct {
	seq    int
	spec   *Spec
	pid    int
	status string        // how the main process has ended
	limit  time.Duration // of an undo, which has no lease
	killAt time.Duration // when the grace of a stop is over
	doomed bool          // to be killed
	since  time.Duration // when the first attempt to kill was made
	unkept bool          // its keeper is dead
	alarm  string        // what of it can't be killed
	next   time.Duration // when to sweep again
	pause  time.Duration
	group  *cgroup // nil where there is none
	unit   *end    // nil unless it is a unit
}

// who names the work in the log.
func (w *work) who() slog.Attr {
	if w.unit != nil {
		return slog.String("unit", w.spec.Unit.Name)
	}
	return slog.Int("pid", w.pid)
}

// ending reports whether the work has to be swept up. Only a look shows the end of a unit that was asked to stop.
func (w *work) ending() bool { return w.doomed || w.unit != nil && w.killAt != 0 }

// due is when the work has to be looked at again; 0 for not by itself.
func (w *work) due() time.Duration {
	switch {
	case w.doomed:
		return max(1, w.next)
	case w.unit != nil && w.killAt != 0:
		return max(1, min(w.next, w.killAt))
	case w.status == "":
		return w.killAt
	}
	return 0
}

// start has work started, if there is a lease for it.
func (g *guard) start(m message) {
	err := errNoLease
	if !enforced || g.lease != 0 && !past(g.lease) {
		g.work = &work{seq: m.Seq, spec: m.Spec}
		err = g.launch(g.work)
	}
	if err != nil {
		g.finish(g.work)
		g.tell(message{Kind: kindStarted, Seq: m.Seq, Error: err.Error()})
		return
	}
	harden.RefreshLocks()
	if g.work.unit != nil {
		g.tell(message{Kind: kindStarted, Seq: m.Seq})
	}
}

// launch has systemd or the keeper start the work.
func (g *guard) launch(w *work) (err error) {
	if w.spec.Unit != nil {
		w.unit, err = newEnd(*w.spec.Unit)
		if err == nil {
			err = w.spec.Unit.allow()
		}
		return err
	}
	if g.keeper == nil {
		return errNoKeeper
	}
	m := message{Kind: kindStart, Seq: w.seq, Spec: w.spec, At: g.deadline()}
	if g.opt.Containment == CgroupContainment {
		if w.group, err = newCgroup(g.groups, w.seq); err != nil {
			return err
		}
		m.Dir = w.group.dir
	}
	g.keeper.heard = false
	return g.keeper.hand(m)
}

// hold says what holds the work.
func (g *guard) hold(w *work) *ContainmentRecord {
	h := &ContainmentRecord{Mode: g.opt.Containment, Keeper: g.keeper.Process, StateFile: w.spec.StateFile}
	if w.group != nil {
		h.Group, h.Inode = w.group.dir, w.group.inode
	}
	return h
}

// stop ends the work as a message says.
func (g *guard) stop(w *work, m message) {
	switch {
	case m.Grace <= 0: // of a kill it is 0
		w.doomed = true
	case w.killAt == 0:
		w.killAt = boottime.Now() + m.Grace
		if w.unit == nil { // else systemd has been asked
			g.keeper.tell(m)
		}
	}
}

// judge dooms the work that may not go on, and kills it: S1. It logs after that.
func (g *guard) judge(w *work) {
	if w.doomed {
		return
	}
	var why string
	switch {
	case past(w.limit):
		why = "what undoes leadership is not done in time and is killed"
	case w.limit != 0:
		return
	case g.daemon == nil, g.daemon.gone:
		w.doomed = true
		g.kill(w)
		return
	case g.expired():
		why = "the lease has ended: killing the work"
	case w.status == "" && past(w.killAt):
		why = "the child did not stop in time and is killed"
	default:
		return
	}
	w.doomed = true
	g.kill(w)
	g.log.Error(why, w.who())
}

// sweep kills what is doomed until it is dead.
func (g *guard) sweep(w *work) {
	if !w.ending() || boottime.Now() < w.next {
		return
	}
	w.next = boottime.Now() + longer(&w.pause)
	switch {
	case w.unit != nil:
		if w.unit.sweep(w.doomed) {
			g.tell(message{Kind: kindExited, Seq: w.seq, Status: w.outcome()})
			g.dead(w, "")
		}
	case w.unkept && g.gone(w):
		if w.status == "" {
			g.tell(message{Kind: kindExited, Seq: w.seq, Status: "was killed with its keeper"})
		}
		g.dead(w, "")
	default:
		g.kill(w)
	}
}

// gone reports whether the kernel says that nothing is left of work whose keeper is dead: the namespace has ended with the
// keeper, or neither the control group nor this process, which adopts all orphans, has any process left (A3).
func (g *guard) gone(w *work) bool {
	if g.opt.Containment == PidnsContainment {
		return true
	}
	return g.childless && !w.group.populated()
}

// kill kills the work by all means. The keeper is asked first, and helped if it does not act; nothing has to be opened for
// what comes first.
func (g *guard) kill(w *work) {
	if w.unit != nil {
		w.unit.sweep(true)
		return
	}
	w.group.kill()
	if w.since == 0 {
		w.since = boottime.Now()
		g.keeper.tell(message{Kind: kindKill, Seq: w.seq})
	}
	waited := boottime.Now() - w.since
	switch k := g.keeper; {
	case k == nil:
		g.killOrphans()
	case waited < helpAfter:
	case waited > keeperHung && !k.heard:
		syscall.Kill(k.pid, syscall.SIGKILL) // what is left becomes this process' own
	default:
		for _, pid := range descendants(k.pid) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		syscall.Kill(k.pid, syscall.SIGCONT)
	}
}

// killOrphans kills what a dead keeper has left behind: everything below this process but the daemon.
func (g *guard) killOrphans() {
	var spare int
	if g.daemon != nil {
		spare = g.daemon.pid
	}
	g.children.each(func(pid int) {
		if pid != spare {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	for _, pid := range descendants(os.Getpid(), spare) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// dead reports work of which nothing is left.
func (g *guard) dead(w *work, output string) {
	g.finish(w)
	if w.limit == 0 {
		g.tell(message{Kind: kindDead, Seq: w.seq, Output: output})
	}
}

// finish releases what belonged to work of which nothing is left, or nothing came.
func (g *guard) finish(w *work) {
	g.work = nil
	if w == nil {
		return
	}
	if w.unit != nil {
		w.unit.close()
	}
	if err := w.group.remove(); err != nil {
		g.log.Warn("a control group is left behind", "err", err)
	}
	w.group.close()
}

// alarm says that something of the work can't be killed: then nothing is released, and no session closed.
func (g *guard) alarm(w *work, text string) {
	if text != w.alarm && text != "" {
		g.log.Error("the work can't be ended by force; nothing is released while it runs", "reason", text)
	}
	w.alarm = text
	g.tell(message{Kind: kindAlarm, Seq: w.seq, Error: text})
}

// outcome says how a unit ended, as far as the guard had a hand in it.
func (w *work) outcome() string {
	if w.doomed {
		return "was killed"
	}
	return "has stopped"
}
