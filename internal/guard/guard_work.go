package guard

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/sys/harden"
)

// work is a piece of work as the guard sees it: leader-only work, which a keeper or systemd runs, or a pending hook.
type work struct {
	leadership   *leadership
	seq          int // the daemon's number for it
	task         int // the guard's number for it: unlike seq, no other daemon's work ever has it
	spec         *Spec
	keeper       *keeperProcess // nil if systemd runs it
	prepared     bool           // everything that a kill needs is open
	arming       bool           // it waits for the watchdog device
	order        int            // the number of the order that arms the device
	armBy        time.Duration  // the device must be armed by then
	launched     bool           // some of it may run
	pid          int
	status       string        // how the main process ended; empty while it runs
	hookDeadline time.Duration // the deadline of a pending hook, which has no lease; 0 for leader-only work
	killAt       time.Duration // when the grace period of a stop ends; 0 if it was not asked to stop
	killing      bool          // it is to be killed, until it is dead
	killStarted  time.Duration // when the first attempt to kill it was made
	confirmed    bool          // its keeper has confirmed that it is killing it
	unkillable   string        // the reason why it cannot be killed; empty for none
	nextSweep    time.Duration // when to sweep next
	sweepDelay   time.Duration
	container    Container
	group        *cgroup        // nil without a control group
	unit         *unitContainer // nil unless systemd runs it; then it is the container
}

// logAttr identifies the work in the log.
func (w *work) logAttr() slog.Attr {
	if w.unit != nil {
		return slog.String("unit", w.spec.Unit.Name)
	}
	return slog.Int("pid", w.pid)
}

// needsSweep reports whether sweep has to be called. For a unit that was asked to stop, only sweep notices that it has
// ended.
func (w *work) needsSweep() bool { return w.killing || w.unit != nil && w.killAt != 0 }

// nextCheck returns when the work has to be checked next; 0 if only after an event.
func (w *work) nextCheck() time.Duration {
	switch {
	case w.killing:
		return max(1, w.nextSweep)
	case w.unit != nil && w.killAt != 0:
		return earliest(max(1, min(w.nextSweep, w.killAt)), w.deadline())
	case w.status == "":
		return earliest(w.killAt, w.deadline())
	}
	return w.deadline()
}

// deadline returns when the work must not run any more; 0 for never. A pending hook has its own deadline instead of the
// lease, as it only cleans up after the leadership.
func (w *work) deadline() time.Duration {
	switch l := w.leadership; {
	case w.hookDeadline != 0:
		return w.hookDeadline
	case !enforced || !w.launched:
		return 0
	default:
		return max(1, l.lease())
	}
}

var (
	errNoLease     = errors.New("there is no lease")
	errKilledEarly = errors.New("it was killed before it had started")
	errStillRuns   = errors.New("work of an earlier instance of this group still runs on this host")
)

// errSeveralGroups is returned for several groups where their works could not be told apart.
var errSeveralGroups = errors.New("child.containment: keeper allows one group only, because it cannot tell the works " +
	"of several groups apart: " +
	"delegate control groups to zkelectd (Delegate=yes)")

// newWork adds work to a leadership that has none.
func (g *guard) newWork(l *leadership, seq int, spec *Spec) *work {
	g.task++
	w := &work{leadership: l, seq: seq, task: g.task, spec: spec}
	w.container = &keptWork{g, w}
	l.work = w
	return w
}

// findWork returns the current daemon's work with a number; nil if there is none.
func (g *guard) findWork(seq int) *work {
	for _, l := range g.leaderships {
		if l.work != nil && l.work.seq == seq && l.work.hookDeadline == 0 && l.daemon == g.daemon {
			return l.work
		}
	}
	return nil
}

// findTask returns the work of a keeper with the guard's number; nil if there is none.
func (g *guard) findTask(k *keeperProcess, task int) *work {
	for _, l := range g.leaderships {
		if w := l.work; w != nil && w.task == task && w.keeper == k {
			return w
		}
	}
	return nil
}

// prepare opens what killing and finding the work will need, before any of it runs.
func (g *guard) prepare(m message) {
	l := g.find(g.daemon, m.Leadership)
	err := ErrAbandoned
	if l != nil {
		g.readLease(l) // what the board says since the last work
		err = g.mayPrepare(l, m.Spec)
	}
	if err != nil {
		g.sendToDaemon(message{Kind: kindPrepared, Seq: m.Seq, Error: err.Error()})
		return
	}
	m.Spec.KeepInput = g.opt.KeepInput
	w := g.newWork(l, m.Seq, m.Spec)
	if err = g.armDevice(w); err == nil {
		err = g.openWork(w)
	}
	if err != nil {
		g.refuse(w, err)
	}
}

// openWork opens what the work needs, except for the watchdog device.
func (g *guard) openWork(w *work) (err error) {
	if w.spec.Unit == nil {
		return g.assignKeeper(w)
	}
	if w.unit, err = newUnitContainer(*w.spec.Unit); err == nil {
		w.container = w.unit
		g.tryFinishPrepare(w)
	}
	return err
}

// mayPrepare returns an error if a leadership may have no work now: it has some, or another instance of the group has
// (S1). Promotable work and a hook run beside each other, unless the leadership of one is over.
func (g *guard) mayPrepare(l *leadership, s *Spec) error {
	oneKeeper := g.opt.Containment == KeeperContainment && s.Unit == nil
	for _, other := range g.leaderships {
		switch {
		case other.isOfSameGroup(l) && other.work != nil && (other.standby == l.standby || g.mustEnd(other)):
			return errStillRuns
		case oneKeeper && other.name != l.name && other.daemon == g.daemon:
			return errSeveralGroups
		case s.Unit != nil && other.work != nil && other.work.unit != nil && other.work.spec.Unit.Permit == s.Unit.Permit:
			return fmt.Errorf("the permit %s is in use by the group %s: each unit needs its own", s.Unit.Permit, other.name)
		}
	}
	return nil
}

// assignKeeper gives the work a keeper. If that is not ready, receiveFromKeeper goes on.
func (g *guard) assignKeeper(w *work) (err error) {
	if w.keeper, err = g.keeperFor(w.leadership); err == nil {
		g.tryFinishPrepare(w)
	}
	return err
}

// tryFinishPrepare calls finishPrepare once all that the work waits for is there.
func (g *guard) tryFinishPrepare(w *work) {
	if !w.prepared && !w.arming && (w.unit != nil || w.keeper.ready) {
		g.finishPrepare(w)
	}
}

// finishPrepare creates the control group. A pending hook is then started at once; for other work the daemon, which can
// now find it without this process, has to ask for that.
func (g *guard) finishPrepare(w *work) {
	if w.unit == nil && g.opt.Containment == CgroupContainment {
		var err error
		if w.group, err = newCgroup(g.cgroupParent, w.task); err != nil {
			g.refuse(w, err)
			return
		}
	}
	w.prepared = true
	if w.hookDeadline != 0 {
		g.launch(w)
		return
	}
	m := message{Kind: kindPrepared}
	if w.unit == nil {
		m.Containment = containmentRecord(g.opt.Containment, w)
	}
	g.reply(w, m)
}

// containmentRecord describes how the work is contained.
func containmentRecord(mode Containment, w *work) *ContainmentRecord {
	r := &ContainmentRecord{Mode: mode, Keeper: w.keeper.Process, KeeperSeq: w.keeper.seq, StateFile: w.spec.StateFile}
	if w.group != nil {
		r.Group, r.Inode = w.group.dir, w.group.inode
	}
	return r
}

// reply sends the daemon a message about its work.
func (g *guard) reply(w *work, m message) {
	if w.hookDeadline == 0 && w.leadership.daemon == g.daemon {
		m.Seq = w.seq
		g.sendToDaemon(m)
	}
}

// refuse reports that work was not started, and forgets it.
func (g *guard) refuse(w *work, err error) {
	m := message{Kind: kindPrepared, Error: err.Error()}
	if w.prepared {
		m.Kind = kindStarted
	}
	if w.hookDeadline != 0 {
		g.failHook(w, err.Error())
	}
	g.releaseWork(w)
	g.reply(w, m)
}

// request carries out a message about existing work.
func (g *guard) request(w *work, m message) {
	switch {
	case m.Kind == kindStart && w.prepared && !w.launched:
		g.start(w)
	case m.Kind == kindStart:
	case !w.launched:
		g.workDied(w, "")
	case w.killing:
	case m.Grace <= 0: // always so in a kill message
		g.startKilling(w)
	case w.killAt == 0:
		w.killAt = boottime.Now() + m.Grace
		if w.unit == nil { // the daemon asks systemd to stop a unit
			w.keeper.send(message{Kind: kindStop, Seq: w.task, Grace: m.Grace})
		}
	}
}

// start starts prepared work, if there is a lease for it.
func (g *guard) start(w *work) {
	g.readLease(w.leadership)
	if enforced && !g.hasLease(w.leadership) {
		g.refuse(w, errNoLease)
		return
	}
	if w.unit != nil {
		if err := w.spec.Unit.grantPermit(); err != nil {
			g.refuse(w, err)
			return
		}
		w.launched = true
		g.reply(w, message{Kind: kindStarted})
	} else {
		g.launch(w)
	}
	harden.RefreshLocks()
}

// launch makes the keeper start the work.
func (g *guard) launch(w *work) {
	m := message{Kind: kindStart, Seq: w.task, Spec: w.spec, At: w.hookDeadline}
	if w.group != nil {
		m.Dir = w.group.dir
	}
	if m.At == 0 {
		m.Place, m.Leadership = w.leadership.place.index, w.leadership.id
	}
	if err := w.keeper.out.send(m); err != nil {
		g.refuse(w, fmt.Errorf("the keeper: %w", err))
		return
	}
	w.launched = true
}

// workDied handles the death of the work and reports it to the daemon, which does not wait for the removal of the
// control group.
func (g *guard) workDied(w *work, output string) {
	g.reply(w, message{Kind: kindDead, Output: output})
	g.releaseWork(w)
}

// releaseWork releases the resources of work that is dead or was never started.
func (g *guard) releaseWork(w *work) {
	w.leadership.work = nil
	g.removeGroup(w.group)
	w.container.Close()
}

// removeGroup removes a control group. It does not wait for the removal of those in it, of which the work may have
// created many.
func (g *guard) removeGroup(c *cgroup) {
	err := c.removeItself()
	if err == nil {
		return
	}
	log := g.log
	g.removals.Go(func() {
		if err := c.remove(); err != nil {
			log.Warn("cannot remove a control group", "err", err)
		}
	})
}

// reportUnkillable handles the report that a process of the work cannot be killed, or, if reason is empty, that this is
// resolved. While such a process lives, leadership is not released.
func (g *guard) reportUnkillable(w *work, reason string) {
	if reason != w.unkillable && reason != "" {
		g.log.Error("cannot kill the work; leadership is not released while it runs", "group", w.leadership.name,
			"reason", reason)
	}
	w.unkillable = reason
	g.reply(w, message{Kind: kindUnkillable, Error: reason})
}

// assumedStatus returns the Status of dead work whose main process nobody has reported.
func (w *work) assumedStatus() string {
	switch {
	case w.unit == nil:
		return "was killed with its keeper"
	case w.killing:
		return "was killed"
	}
	return "has stopped"
}
