package guard

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"zkelectd/internal/sys/boottime"
)

// keeperProcess is a keeper as the guard sees it.
type keeperProcess struct {
	Process
	pid     int
	seq     int // its number, which its report contains
	socket  *socket
	out     outbox
	ready   bool          // it has started
	retired bool          // it is hung: it gets no more work, and is killed once it has none
	dead    bool          // it has been reaped
	readyBy time.Duration // it is killed if it is not ready by then; 0 if it is
	exitBy  time.Duration // it is killed if it has not exited by then; 0 if it was not asked to exit
}

// How long the guard waits for a keeper.
const (
	// for the first one to start: nothing else goes on, and the host may be busy
	firstKeeperTimeout = 30 * time.Second
	keeperStartTimeout = 4 * time.Second      // for another one to start; shorter than startTimeout
	assistAfter        = 5 * time.Millisecond // the guard then helps it kill the work
	// the same if it has confirmed the kill, so that both do not compete for a processor
	assistLater     = 50 * time.Millisecond
	keeperHungAfter = 500 * time.Millisecond // a keeper that has not confirmed a kill by then is hung
)

// keeperFor returns the keeper for the next work of a leadership; it may not be ready yet. With control groups, one
// keeper runs the works of all leaderships: the kernel kills each group by itself, and reports when it is empty.
// Otherwise a work can be told from others by its keeper only.
func (g *guard) keeperFor(l *leadership) (*keeperProcess, error) {
	if l.keeper != nil {
		return l.keeper, nil
	}
	if g.keeper == nil {
		if err := g.startKeeper(); err != nil {
			return nil, err
		}
	}
	k := g.keeper
	if g.opt.Containment != CgroupContainment {
		l.keeper, g.keeper = k, nil
	}
	return k, nil
}

// returnKeeper takes the keeper from a leadership that does not need it any more.
func (g *guard) returnKeeper(l *leadership) {
	switch {
	case l.keeper == nil:
	case g.keeper == nil && !l.keeper.retired:
		g.keeper = l.keeper
	default:
		l.keeper.requestExit()
	}
	l.keeper = nil
}

// tendKeepers flushes the messages to the keepers, kills those that are late, and keeps one ready for the next
// leadership.
func (g *guard) tendKeepers() {
	for _, k := range g.keepers {
		k.out.flush()
		if past(k.readyBy) {
			g.log.Error("killing a keeper: it is not ready in time; is this host short of processor time?",
				"pid", k.pid, "after", keeperStartTimeout)
		}
		if past(k.readyBy) || past(k.exitBy) || k.retired && !g.hasWorkOn(k) {
			syscall.Kill(k.pid, syscall.SIGKILL)
			k.readyBy, k.exitBy = 0, boottime.Now()+exitTimeout
		}
		if g.onlyKeepersLeft() {
			k.requestExit()
		}
	}
	if g.daemon != nil && g.keeper == nil && g.needsKeeper() && boottime.Now() >= g.spareAt {
		g.startKeeper() // keeperFor reports an error
	}
}

// needsKeeper reports whether a leadership may soon need a keeper that is not there.
func (g *guard) needsKeeper() bool {
	return len(g.keepers) == 0 || g.opt.Containment == CgroupContainment
}

// hasWorkOn reports whether a keeper has work.
func (g *guard) hasWorkOn(k *keeperProcess) bool {
	return slices.ContainsFunc(g.leaderships, func(l *leadership) bool { return l.work != nil && l.work.keeper == k })
}

// startKeeper starts a keeper, which reports when it is ready.
func (g *guard) startKeeper() error {
	near, far, err := socketpair()
	if err != nil {
		return err
	}
	defer far.Close()
	g.keeperSeq++
	k := &keeperProcess{seq: g.keeperSeq, socket: near, out: newOutbox(near, keeperOutbox), readyBy: boottime.Now() +
		keeperStartTimeout}
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2, far.Fd(), g.reportWriter.Fd(),
		g.boardFile.Fd()}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	err = g.forker.do(func() error {
		return withChildLimits(func() (err error) {
			k.pid, err = syscall.ForkExec(g.opt.Path, []string{g.opt.Argv[0], keeperArgument}, attr)
			return err
		})
	})
	if err != nil {
		near.Close()
		return fmt.Errorf("cannot start the keeper (child.containment: %s): %w", g.opt.Containment, err)
	}
	k.Process, _ = Identify("keeper", k.pid)
	k.send(message{Kind: kindHello, Seq: k.seq})
	g.makeRealtime(k.pid)
	g.keeper, g.keepers = k, append(g.keepers, k)
	go readFrames(near, g.fromKeeper, incoming{keeper: k})
	return nil
}

// awaitKeeper waits until the first keeper is ready, or the guard is asked to exit. It may block, because no work is
// running.
func (g *guard) awaitKeeper(timeout time.Duration) error {
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	late := false
	for waiting := true; waiting; {
		select {
		case in := <-g.fromKeeper:
			if in.err == nil {
				g.receiveFromKeeper(in)
				g.reap() // for a signal that was passed over below
				return nil
			}
			waiting = false
		case sig := <-g.signals:
			if sig != syscall.SIGCHLD { // the end of the socket says it as well
				g.handleSignal(sig.(syscall.Signal))
			}
			waiting = !g.stopping
		case <-limit.C:
			waiting, late = false, true
		}
	}
	syscall.Kill(g.keeper.pid, syscall.SIGKILL)
	var status syscall.WaitStatus
	syscall.Wait4(g.keeper.pid, &status, 0, nil)
	switch {
	case g.stopping:
		return nil
	case late:
		return fmt.Errorf("cannot start the keeper: it was not ready within %s, so it was killed; "+
			"is this host short of processor time, or its disk slow?", timeout)
	}
	return fmt.Errorf("cannot start the keeper: it %s before it was ready", exitText(status))
}

// requestExit asks the keeper to exit, as it gets no more work. It is killed if it has not exited in time.
func (k *keeperProcess) requestExit() {
	if k.exitBy == 0 {
		k.exitBy = boottime.Now() + exitTimeout
		closeWrite(k.socket)
	}
}

// send sends the keeper a message without waiting. If the keeper does not read, the guard acts without it.
func (k *keeperProcess) send(m message) {
	if !k.dead {
		k.out.send(m)
	}
}

// receiveFromKeeper handles a message from a keeper about a work and passes it on to the daemon.
func (g *guard) receiveFromKeeper(in incoming) {
	k, m := in.keeper, in.msg
	if in.err != nil || k.dead {
		return
	}
	if m.Kind == kindReady {
		k.ready, k.readyBy = true, 0
		for _, l := range g.leaderships {
			if w := l.work; w != nil && w.keeper == k {
				g.tryFinishPrepare(w)
			}
		}
		return
	}
	w := g.findTask(k, m.Seq)
	if w == nil {
		return
	}
	if w.hookDeadline != 0 {
		g.checkHook(w, m)
	}
	m.Seq = w.seq
	switch m.Kind {
	case kindKilling:
		w.confirmed = true
		return
	case kindStarted:
		if m.Error != "" {
			g.releaseWork(w)
		} else {
			w.pid = m.Pid
		}
	case kindExited:
		w.status = m.Status
	case kindDead:
		g.workDied(w, m.Output)
		return
	case kindUnkillable:
		g.reportUnkillable(w, m.Error)
		return
	default:
		return
	}
	if w.hookDeadline == 0 {
		g.reply(w, m)
	}
}

// endText says how the keeper has ended.
func (k *keeperProcess) endText(status syscall.WaitStatus) string {
	if !k.ready && k.exitBy != 0 {
		return fmt.Sprintf("was not ready within %s, so it was killed", keeperStartTimeout)
	}
	return exitText(status)
}

// keeperExited handles the death of a keeper. Its children are now this process's own.
func (g *guard) keeperExited(k *keeperProcess, status syscall.WaitStatus) {
	k.dead = true
	k.socket.Close()
	g.keepers = slices.DeleteFunc(g.keepers, func(other *keeperProcess) bool { return other == k })
	if g.keeper == k {
		g.keeper = nil
	}
	if !k.ready {
		g.spareAt = boottime.Now() + time.Second
	}
	if k.exitBy == 0 {
		g.log.Error("a keeper has died: killing its work", "pid", k.pid, "status", exitText(status))
	}
	for _, l := range g.leaderships {
		if l.keeper == k {
			l.keeper = nil
		}
		w := l.work
		switch {
		case w == nil || w.keeper != k:
		case !w.launched:
			g.refuse(w, fmt.Errorf("the keeper %s", k.endText(status)))
		case !w.killing:
			g.startKilling(w)
		}
	}
}
